"""Results and settings in sentences: the best network, how much was run, and departures from the paper's settings."""

import math
import string
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any

import pandas as pd

from graphact.training.settings import TrainingSettings
from graphact_lab.descriptions import BENCHMARKS, Experiment
from graphact_lab.protocols import REPLICAS, Protocol, TrainingJob
from graphact_lab.report.rows import in_words
from graphact_lab.report.tables import MISSING as NO_VALUE
from graphact_lab.report.tables import Table
from graphact_lab.statistics import MIN_UNITS, REPLICA, common_difference
from graphact_lab.style import Variant, format_number

SHOWN_OTHERWISE = {
    *("experiment", "preset", "protocol", "method", "hops", "features", "order", "condition", "seed", "epochs"),
    *("graphs", "splits", "nodes"),
}
SIZES = {"Features F": "features", "Filter order K": "order", "Hops of the activation": "hops"}
SHORT = ("quick", "smoke")  # presets that are no reproduction
Facts = list[tuple[str, str]]
# How much of what is shown has been run: 100 where nothing is missing, and only there; and in words
Progress = namedtuple("Progress", "percent sentence")
# Settings that change neither the problem nor a network of a table: names, what lines and columns stand for, how many
# runs there are, and what trained networks are evaluated on besides
APART = {
    *("experiment", "protocol", "method", "hops", "features", "order", "condition", "seed", "data_seed", *REPLICAS),
    *("loss_probabilities", "loss_realizations"),
}
USUAL = {item.name: item.default for kind in (Protocol, TrainingSettings) for item in fields(kind)}
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

Settings = dict[str, Any]
Departures = dict[str, tuple[list[str], str]]  # by setting: the values of the runs, and that of the paper, in words


def headline(table: Table, column_index: int, rivals: tuple[int, int] | None = None, units: str | None = None) -> str:
    """The best graph-adaptive network of a column beside ReLU, FIR, the best network and the best baseline.

    With ``rivals``, the lines of two networks that were chosen otherwise, these stand in the place of the
    graph-adaptive one and of ReLU. ``units`` is what runs differ in, where it is neither graphs nor splits. It reads
    like "graph-adaptive max (2 hops) 73.1 % ± 7.0, ReLU 47.5 % ± 13.0, a difference of +25.6 ± 3.1 on the same graphs
    (95 % interval); chance 25.0 %".
    """
    measure, entries = table.measure, table.entries
    known = entries[(entries.column_index == column_index) & entries["mean"].notna()]
    ranked = known.sort_values("mean", ascending=not measure.higher_is_better, kind="stable")
    networks, simple = (list(ranked[ranked.kind == kind].itertuples()) for kind in ("model", "baseline"))

    def words(entry: Any) -> str:
        mean = f"{format_number(entry.mean, measure.digits, small=True)}{measure.unit}"
        std = "" if math.isnan(entry.std) else f" ± {format_number(entry.std, measure.digits)}"
        is_network = entry.kind == "model"
        return f"{Variant(entry.method, entry.hops).long_label} {mean}{std}" if is_network else f"{entry.line} {mean}"

    if not networks:
        return "No network has a result yet" + (f"; {words(simple[0])}." if simple else ".")
    adaptive = next((entry for entry in networks if entry.method.endswith("-ga")), networks[0])
    relu, fir = (next((entry for entry in networks if entry.method == name), adaptive) for name in ("relu", "fir"))
    if rivals:
        adaptive, relu = (next(entry for entry in networks if entry.line_index == line) for line in rivals)
        fir = relu
    told = list({entry.line_index: entry for entry in (adaptive, relu, fir)}.values())
    texts = [words(entry) for entry in told]
    gap = common_difference(adaptive, relu, measure.overlap) if adaptive is not relu else None
    if gap and gap.units >= MIN_UNITS:
        drawn = adaptive.replica[0][REPLICA.index("graph")] is not None
        units = units or ("graphs" if drawn else "splits")
        size = f"{gap.mean:+.{measure.digits}f} ± {gap.margin:.{measure.digits}f}"
        texts.insert(2, f"a difference of {size} on the same {gap.units} {units} (95 % interval)")
    sentence = ", ".join(texts)
    if networks[0].line_index not in {entry.line_index for entry in told}:
        sentence += f"; the best is {words(networks[0])}"
    if not simple:
        return f"{sentence}."
    best, baseline = networks[0], simple[0]
    beaten = best.mean > baseline.mean if measure.higher_is_better else best.mean < baseline.mean
    if beaten and sum(line.is_baseline for line in table.lines) == 1:
        return f"{sentence}; {words(baseline)}."
    verdict = "which the best network beats" if beaten else "which no network beats"
    gap = common_difference(best, baseline, measure.overlap)
    if gap and gap.runs >= 3 and not gap.is_certain:
        verdict = "from which the best network does not clearly differ"
    return f"{sentence}; the best simple baseline is {words(baseline)}, {verdict}."


def progress_over(tables: Iterable[Table]) -> Progress:
    """Count the entries of networks in tables, and their runs.

    Every entry is expected to have as many runs as there are replicas in the fullest column of its table. A line that
    only the paper has is expected to be run, too, unless we ran the method with other hops.
    """
    shown, expected = [], 0
    for table in tables:
        networks = table.entries[table.entries.kind == "model"]
        ours = networks.groupby("line_index").runs.transform("sum") > 0
        shown.append(networks[ours | ~networks.method.isin(networks.method[ours])])
        fullest, sizes = {False: 0, True: 0}, []
        # Each column counts its own replicas: films are read at different nodes
        for _, column in shown[-1].groupby("column_index"):
            replicas: set[Any] = set().union(*column.replica)
            on_lossy_graphs = any(replica[REPLICA.index("realization")] is not None for replica in replicas)
            fullest[on_lossy_graphs] = max(fullest[on_lossy_graphs], len(replicas))
            sizes.append((len(column), on_lossy_graphs))
        expected += sum(size * fullest[kind] for size, kind in sizes)
    every = pd.concat(shown)
    cells, filled, done, lost = len(every), sum(every.runs > 0), sum(every.runs), sum(every.not_finite)
    percent = min(100 if done == expected else 99, 100 * done // max(expected, 1))
    if filled == 0:
        return Progress(percent, f"No network has a result yet; a cell without result shows {NO_VALUE}.")
    sentence = "Complete: no cell of the tables lacks a result."
    if percent < 100:
        sentence = (
            f"Partial: {percent} % of the results that the tables show, in {filled} of {cells} cells; a cell without "
            f"result shows {NO_VALUE}."
        )
    left_out = f" {lost:,} result{' is' if lost == 1 else 's are'} not finite and left out of the means."
    return Progress(percent, sentence + (left_out if lost else ""))


def caveat(preset: str, runs: pd.DataFrame, experiment: Experiment, changes: Departures, *, has_signs: bool) -> str:
    """Return a caution before comparing with the paper: what was cut short, and which settings differ."""
    found = [cut_short(preset, runs, experiment, has_signs=has_signs) if preset in SHORT else ""]
    if changes and (experiment.published is not None or preset != "best"):
        withheld = ", so that its numbers do not stand beside these" if experiment.published is not None else ""
        found.append(f"Not the setting of the paper{withheld}: {departures_in_words(changes)}.")
    return " ".join(filter(None, found))


def cut_short(preset: str, runs: pd.DataFrame, experiment: Experiment, *, has_signs: bool) -> str:
    """In what a preset for a first look does less than the whole; nothing where its settings make up for it."""
    whole, full = (
        ("those of the whole benchmark", "full") if experiment.name in BENCHMARKS else ("the paper's", "paper")
    )
    known = [settings_of_protocol(one, experiment) for one in experiment.protocols if one.preset == full]
    own = [settings_of(given, experiment) for given in given_in(runs)]
    fewest, shortest = (min(map(kind, known)) for kind in (number_of_runs, epochs_of))
    is_fewer = not own or min(map(number_of_runs, own)) < fewest
    is_shorter = not own or min(map(epochs_of, own)) < shortest
    epochs = " or ".join(f"{epochs:,}" for epochs in sorted(runs.epochs.dropna().unique().astype(int)))
    cut = ["fewer runs"] * is_fewer + [f"shorter training{f' ({epochs} epochs)' if epochs else ''}"] * is_shorter
    if not cut:
        return ""
    expected = ["lower scores are to be expected"] * is_shorter + ["the marks do not tell whether the paper's come out"]
    words = f": {', and '.join(expected)}" if has_signs else ""
    return f"Preset “{preset}”: {' and '.join(cut)} than {whole}{words}. The preset “{full}” runs all of it."


def number_of_runs(settings: Settings) -> int:
    """The number of graphs, splits and nodes."""
    return math.prod(settings[name] for name in REPLICAS)


def epochs_of(settings: Settings) -> int:
    """For how many epochs networks train."""
    return int(settings["epochs"])


def facts_of(runs: pd.DataFrame) -> Facts:
    """Name and value of each setting that runs were made in."""
    models = runs[runs.kind == "model"]
    replicas, around = [], ["experiment"]
    for name in ("graph", "split", "node", "realization"):  # nodes are counted by graph and split
        count = max(models.groupby(around, dropna=False)[name].nunique(), default=0)
        replicas += [f"{count} {name}{'' if count == 1 else 's'}"] if count else []
        around.append(name)
    settings: dict[str, set[str]] = {}
    for name, value in (pair for pairs in models.settings.unique() for pair in pairs):
        settings.setdefault(name, set()).add(value)
    others = [(name, " or ".join(sorted(settings[name]))) for name in sorted(settings.keys() - SHOWN_OTHERWISE)]
    found = [
        *((name, listed(models[key])) for name, key in SIZES.items()),
        ("Replicas", " \N{MULTIPLICATION SIGN} ".join(replicas)),
        ("Parameters of a network", cost_by_method(models, "parameters")),
        ("Exchanges for one inference", cost_by_method(models, "exchanges")),
        ("Epochs", listed(models.epochs)),
        *((name.replace("_", " ").capitalize(), value) for name, value in others),
        ("Seed", listed(runs.seed)),
        ("Trained networks", f"{models.work.nunique():,}"),
        ("Results", f"{len(models):,} of networks, {len(runs) - len(models):,} of baselines"),
        ("Computing time, added up", computing_time(runs)),
    ]
    return [(name, value) for name, value in found if value]


def provenance(runs: pd.DataFrame) -> Facts:
    """Name and value of what is known of where results come from: versions, device, time."""
    models, finished = sum(runs.kind == "model"), sorted(runs.finished.dropna())
    found = [
        ("Results", f"{len(runs):,} ({models:,} of networks, {len(runs) - models:,} of baselines)"),
        ("Computing time, added up", computing_time(runs)),
        *((name, listed(runs[name.lower()])) for name in ("graphact", "torch", "Device")),
        ("Finished", " to ".join(dict.fromkeys(finished[:1] + finished[-1:]))),
    ]
    return [(name, value) for name, value in found if value]


def cost_by_method(models: pd.DataFrame, key: str) -> str:
    """Return a cost of networks in words, by method, from the smallest to the largest; empty where it is not known."""
    counts: dict[Variant, list[int]] = {}
    for run in models[models[key].notna()].itertuples():
        counts.setdefault(Variant(run.method, run.hops), []).append(getattr(run, key))
    texts = []
    for variant, own in sorted(counts.items(), key=lambda pair: pair[0].rank):
        ends = dict.fromkeys((f"{min(own):,}", f"{max(own):,}"))
        texts.append(f"{variant.label} {' to '.join(ends)}")
    return ", ".join(texts)


def listed(values: pd.Series) -> str:
    """The values of a column in words, each once, in order."""
    return ", ".join(map(str, sorted(values.dropna().unique())))


def computing_time(runs: pd.DataFrame) -> str:
    """The time in all in words, that of each network once even if it has several rows."""
    seconds = math.fsum(runs.groupby("work").seconds.max())
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


def settings_of(given: Mapping[str, Any], experiment: Experiment) -> Settings:
    """Settings as a row has them, with the options of its tasks among them and what is not given as it usually is."""
    usual = {name: value for name, value in USUAL.items() if value is not MISSING}
    return {**usual, **experiment.usual_options, **given, **given.get("task_options", {})}


def settings_of_protocol(protocol: Protocol, experiment: Experiment) -> Settings:
    """The settings of a protocol, as its rows have them."""
    job = TrainingJob(protocol, protocol.methods[0], None, protocol.features[0], protocol.orders[0], seed=0)
    return settings_of(job.settings(), experiment)


def given_in(runs: pd.DataFrame) -> Iterator[Mapping[str, Any]]:
    """The settings of the networks among runs, each once; none of rows that tell none."""
    networks = runs[runs.kind == "model"]
    yield from (given for given in networks.drop_duplicates("settings").given if given)


def departures(runs: pd.DataFrame, experiment: Experiment) -> Departures:
    """Return the settings of runs of one protocol that are not the paper's; empty where there are none.

    Each run is held against the reading of the paper (a protocol of the preset "paper") that is nearest, of those with
    the name of its protocol if there are some.
    """
    ignored = APART | {"task_options"}
    readings = [one for one in experiment.protocols if one.preset == "paper"]
    own = [one for one in readings if one.name == runs.protocol.iloc[0]]
    known = [settings_of_protocol(one, experiment) for one in own or readings]
    found: Departures = {}
    for settings in (settings_of(given, experiment) for given in given_in(runs)) if known else ():
        changes = [
            {
                name: in_words(paper.get(name))
                for name in sorted((settings.keys() | paper.keys()) - ignored)
                if in_words(settings.get(name)) != in_words(paper.get(name))
            }
            for paper in known
        ]
        for name, usual in min(changes, key=len).items():
            values, _ = found.setdefault(name, ([], usual))
            if (value := in_words(settings.get(name))) not in values:
                values.append(value)
    return found


def departures_in_words(found: Departures) -> str:
    """Departures as part of a sentence.

    Example:
        >>> departures_in_words({"communities": (["3"], "4"), "learning_rate": (["0.1", "0.2"], "0.001")})
        'communities 3 instead of 4, learning rate 0.1 or 0.2 instead of 0.001'
    """
    return ", ".join(
        f"{name.replace('_', ' ')} {' or '.join(values)} instead of {usual}" for name, (values, usual) in found.items()
    )


def explanation_of(experiment: Experiment, runs: pd.DataFrame) -> list[str]:
    """The paragraphs of an experiment with the settings of its runs in the places of their names."""
    usual = settings_of_protocol(experiment.protocols[0], experiment)
    known = [settings_of(given, experiment) for given in given_in(runs)] or [usual]
    paragraphs = []
    for text in experiment.explanation:
        names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
        words = {name: alternatives(settings[name] for settings in known) for name in names}
        filled = text.format(**words)
        paragraphs.append(filled[:1].upper() + filled[1:])
    return paragraphs


def alternatives(values: Any) -> str:
    """Whole numbers in words, each once.

    Example:
        >>> alternatives([20, 3, 3])
        'three or 20'
    """
    return " or ".join(COUNTS[value] if 0 <= value < len(COUNTS) else f"{value:,}" for value in sorted(set(values)))
