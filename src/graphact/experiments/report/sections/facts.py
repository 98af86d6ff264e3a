"""The settings of a block, from its runs."""

import math
from collections.abc import Iterable, Sequence

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.rows import Run
from graphact.experiments.report.sections.section import listed

NOUNS = {"graph": "graphs", "split": "splits", "node": "nodes", "realization": "realizations"}
SHOWN_OTHERWISE = {
    *("experiment", "preset", "protocol", "method", "hops", "features", "order", "condition", "seed", "epochs"),
    *("graphs", "splits", "nodes"),
}


def facts_of(cells: Sequence[Cell]) -> tuple[tuple[str, str], ...]:
    """Name and value of each setting that is known."""
    models = [run for cell in cells if cell.is_model for run in cell.runs]
    every = [run for cell in cells for run in cell.runs]
    networks = len({work_of(run) for run in models})
    found = [
        ("Features F", listed(run.features for run in models)),
        ("Filter order K", listed(run.order for run in models)),
        ("Hops of the activation", listed(run.hops for run in models)),
        ("Replicas", replicas(models)),
        ("Epochs", listed(run.epochs for run in models)),
        *other_settings(models),
        ("Seed", listed(run.seed for run in every)),
        ("Trained networks", f"{networks:,}"),
        ("Results", f"{len(models):,} of networks, {len(every) - len(models):,} of baselines"),
        ("Computing time, added up", duration(computing_time(every))),
    ]
    return tuple((name, value) for name, value in found if value)


def other_settings(models: Sequence[Run]) -> list[tuple[str, str]]:
    """The settings that rows carry beyond those with a place of their own; several values where networks differ."""
    values: dict[str, set[str]] = {}
    for run in models:
        for name, value in run.settings:
            if name not in SHOWN_OTHERWISE:
                values.setdefault(name, set()).add(value)
    return [(name.replace("_", " ").capitalize(), " or ".join(sorted(found))) for name, found in sorted(values.items())]


def work_of(run: Run) -> tuple[object, ...]:
    """What was computed in one go: a network, whatever conditions it is tested under; all baselines of a replica."""
    if run.kind == "baseline":
        return run.experiment, run.preset, run.protocol, run.kind, run.replica, run.condition
    setting = (run.method, run.hops, run.features, run.order)
    trained_under = tuple(item for item in run.condition if item[0] != "loss_probability")
    replica = (run.graph, run.split, run.node, run.seed)
    return run.experiment, run.preset, run.protocol, run.kind, setting, replica, trained_under


def computing_time(runs: Iterable[Run]) -> float:
    """Seconds in all, those of each network once even if it has several rows."""
    seconds: dict[object, float] = {}
    for run in runs:
        seconds[work_of(run)] = max(run.seconds, seconds.get(work_of(run), 0.0))
    return math.fsum(seconds.values())


def replicas(models: Sequence[Run]) -> str:
    """How many replicas there are of each kind, such as "10 graphs × 4 nodes"; nodes are counted by graph."""
    parts = []
    for position, (name, noun) in enumerate(NOUNS.items()):
        within: dict[tuple[object, ...], set[object]] = {}
        for run in models:
            around = tuple(getattr(run, outer) for outer in list(NOUNS)[:position])
            within.setdefault(around, set()).add(getattr(run, name))
        count = max((len(found - {None}) for found in within.values()), default=0)
        if count:
            parts.append(f"{count} {noun.removesuffix('s') if count == 1 else noun}")
    return " \N{MULTIPLICATION SIGN} ".join(parts)


def duration(seconds: float) -> str:
    """A length of time in words.

    Example:
        >>> from graphact.experiments.report.sections.facts import duration
        >>> duration(3.21), duration(75), duration(7322)
        ('3.2 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"
