"""From rows to the files of a report."""

import os
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from graphact.storage import write_atomically
from graphact.training.settings import TrainingSettings
from graphact_lab.descriptions import BENCHMARKS, EXPERIMENTS, Experiment, find_experiment
from graphact_lab.protocols import REPLICAS, Protocol, TrainingJob
from graphact_lab.report.rows import gather, read_rows
from graphact_lab.report.tables import Table, file_name
from graphact_lab.style import Variant

SHORT = ("quick", "smoke")  # presets that are no reproduction
SIZES = {"Features F": "features", "Filter order K": "order", "Hops of the activation": "hops", "Epochs": "epochs"}
# Settings that change neither the problem nor a network of a table
APART = {
    *("experiment", "protocol", "method", "hops", "features", "order", "condition", "seed", "data_seed", *REPLICAS),
    *("loss_probabilities", "loss_realizations", "task_options"),
}
USUAL = {item.name: item.default for kind in (Protocol, TrainingSettings) for item in fields(kind)}
USUAL = {name: value for name, value in USUAL.items() if value is not MISSING}
TEMPLATE = Path(__file__).with_name("page.html.j2")


@dataclass(frozen=True)
class Section:
    """One preset and protocol of an experiment."""

    title: str
    explanation: list[str]
    caveats: list[str]  # what a reader should know before comparing
    tables: list[Table]
    facts: dict[str, str]  # settings and provenance in words


def sections_of(rows: Iterable[Mapping[str, Any]]) -> list[Section]:
    """Return the sections of rows in the paper's order, the paper's own preset and protocol first."""
    runs, names, keys = read_rows(rows), (*EXPERIMENTS, *BENCHMARKS), ["experiment", "preset", "protocol"]
    cells_of = dict(list(gather(runs).groupby(keys)))
    runs_of, sections = dict(list(runs.groupby(keys))), {}
    for key in sorted(cells_of, key=lambda key: [names.index(key[0]), *((name != "paper", name) for name in key[1:])]):
        experiment, prefix = find_experiment(key[0]), file_name(*key)
        if prefix in sections:
            raise ValueError(
                f"presets and protocols must differ in letters or digits, which name files, got {key} twice"
            )
        changes = departures(runs_of[key], experiment)
        options = {} if experiment.published is None else {"paper": {} if changes else experiment.published}
        tables = experiment.make_tables(cells_of[key], prefix, experiment.measure, **options)
        sections[prefix] = Section(
            f"{experiment.title}, protocol {key[2]}, preset {key[1]}",
            explanation_of(experiment, runs_of[key]),
            [*caveats(experiment, key[1], changes), *missing_in(tables)],
            tables,
            facts_of(runs_of[key]),
        )
    return list(sections.values())


def write_report(
    rows: Iterable[Mapping[str, Any]], directory: str | os.PathLike[str], *, command: str | None = None
) -> Path:
    """Write ``report.html``, ``tables/`` as Markdown and CSV, ``figures/`` as PNG and SVG; return the page's path.

    The same rows, in whatever order, give the same files byte by byte. The page is written last.

    Args:
        rows: the results; :mod:`graphact_lab.report.rows` describes what a row holds.
        directory: where to write.
        command: the command that made the results, to be shown in the report.

    Raises:
        ValueError: there are no rows, a run occurs twice, or two protocols share a name.
        KeyError: a row lacks a field.
    """
    import jinja2

    from graphact_lab.report.charts import render

    folder, sections = Path(directory), sections_of(rows)
    contents, images = dict[str, bytes](), dict[str, str]()
    for table in (table for section in sections for table in section.tables):
        contents[f"tables/{table.name}.md"] = table.to_markdown().encode()
        contents[f"tables/{table.name}.csv"] = table.to_csv().encode()
        if table.networks["mean"].notna().any():
            png, svg, images[table.name] = render(table)
            contents |= {f"figures/{table.name}.png": png, f"figures/{table.name}.svg": svg}
    template = jinja2.Environment(autoescape=True, trim_blocks=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
    page = template.render(sections=sections, images=images, command=command)
    for name, content in (contents | {"report.html": page.encode()}).items():
        write_atomically(folder / name, content)
    return folder / "report.html"


def terminal_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the main table of each experiment, preset and protocol as aligned Markdown; raises as a report does."""
    sections = sections_of(rows)
    return "\n\n".join("\n".join([one.title, one.tables[0].to_markdown(), *one.caveats]).strip() for one in sections)


def missing_in(tables: Iterable[Table]) -> list[str]:
    """Return a sentence on cells without a result and on runs that diverged, if there are any."""
    networks = pd.concat([table.entries[table.entries.kind == "model"] for table in tables if table.is_result])
    empty, lost = int((networks.runs == 0).sum()), int(networks.not_finite.sum())
    told = [f"Partial: {empty} of {len(networks)} cells of networks have no result."] if empty else []
    return told + ([f"Results that are not finite and left out of the means: {lost:,}."] if lost else [])


def caveats(experiment: Experiment, preset: str, changes: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return sentences on what was cut short and which settings differ from the paper's."""
    whole = "full" if experiment.name in BENCHMARKS else "paper"
    told = [f"Preset “{preset}” is a first look; the preset “{whole}” runs all of it."] if preset in SHORT else []
    if changes and (experiment.published is not None or preset != "best"):
        words = ", ".join(
            f"{name.replace('_', ' ')} {value} instead of {usual}" for name, (value, usual) in changes.items()
        )
        withheld = ", so that its numbers do not stand beside these" if experiment.published is not None else ""
        told.append(f"Not the setting of the paper{withheld}: {words}.")
    return told


def departures(runs: pd.DataFrame, experiment: Experiment) -> dict[str, tuple[str, str]]:
    """Return the settings of runs of one protocol that are not the paper's, each with that of the paper, in words.

    Each run is held against the reading of the paper (a protocol of the preset "paper") that is nearest, of those with
    the name of its protocol if there are some.
    """
    readings = [one for one in experiment.protocols if one.preset == "paper"]
    readings = [one for one in readings if one.name == runs.protocol.iloc[0]] or readings
    found = dict[str, tuple[str, str]]()
    for settings in settings_in(runs, experiment) if readings else ():
        changes = []
        for paper in (settings_of_protocol(one, experiment) for one in readings):
            pairs = {
                name: (in_words(settings.get(name)), in_words(paper.get(name)))
                for name in settings.keys() | paper.keys()
            }
            changes.append({name: pairs[name] for name in sorted(pairs.keys() - APART) if len(set(pairs[name])) > 1})
        for name, (value, usual) in min(changes, key=len).items():
            before = found.get(name, (value, usual))[0]
            found[name] = (before if value in before.split(" or ") else f"{before} or {value}", usual)
    return found


def explanation_of(experiment: Experiment, runs: pd.DataFrame) -> list[str]:
    """Return the paragraphs of an experiment with the settings of its runs in the places of their names."""
    known = list(settings_in(runs, experiment)) or [settings_of_protocol(experiment.protocols[0], experiment)]
    names = {name for text in experiment.explanation for _, name, _, _ in string.Formatter().parse(text) if name}
    words = {name: " or ".join(map(str, sorted({settings[name] for settings in known}))) for name in names}
    return [text.format(**words) for text in experiment.explanation]


def settings_of(given: Mapping[str, Any], experiment: Experiment) -> dict[str, Any]:
    """Return settings as a row has them, with the options of its tasks and whatever is not given as it usually is."""
    return {**USUAL, **experiment.usual_options, **given, **given.get("task_options", {})}


def settings_of_protocol(protocol: Protocol, experiment: Experiment) -> dict[str, Any]:
    """Return the settings of a protocol, as its rows have them."""
    job = TrainingJob(protocol, protocol.methods[0], None, protocol.features[0], protocol.orders[0], seed=0)
    return settings_of(job.settings(), experiment)


def settings_in(runs: pd.DataFrame, experiment: Experiment) -> Iterator[dict[str, Any]]:
    """Return the settings of the networks among runs, each once; none of rows that tell none."""
    networks = runs[runs.kind == "model"]
    distinct = {repr(given): given for given in networks.settings if given}
    yield from (settings_of(given, experiment) for given in distinct.values())


def facts_of(runs: pd.DataFrame) -> dict[str, str]:
    """Return name and value of the settings that runs were made in, and of what made them."""
    models = runs[runs.kind == "model"]
    counts = {name: models[name].nunique() for name in ("graph", "split", "node", "realization")}
    found = {name: listed(models[key]) for name, key in SIZES.items()}
    found["Replicas"] = ", ".join(f"{count} {name}{'s'[: count > 1]}" for name, count in counts.items() if count)
    for name in ("parameters", "exchanges"):
        costs: dict[Variant, list[int]] = {}
        for run in models[models[name].notna()].itertuples():
            costs.setdefault(Variant(run.method, run.hops), []).append(getattr(run, name))
        texts = [
            f"{variant.label} {' to '.join(dict.fromkeys((f'{min(own):,}', f'{max(own):,}')))}"
            for variant, own in sorted(costs.items(), key=lambda pair: pair[0].rank)
        ]
        found[f"{name.capitalize()} of a network"] = ", ".join(texts)
    others: dict[str, set[str]] = {}
    for name, value in (pair for settings in models.settings for pair in settings.items()):
        others.setdefault(name, set()).add(in_words(value))
    shown = {"experiment", "preset", "protocol", "method", "condition", "seed", *SIZES.values(), *REPLICAS}
    found |= {
        name.replace("_", " ").capitalize(): " or ".join(sorted(others[name])) for name in sorted(others.keys() - shown)
    }
    found["Results"] = f"{len(models):,} of networks, {len(runs) - len(models):,} of baselines"
    found |= {name.capitalize(): listed(runs[name]) for name in ("seed", "graphact", "torch", "device")}
    finished = sorted(runs.finished.dropna())
    found["Finished"] = " to ".join(dict.fromkeys(finished[:1] + finished[-1:]))
    return {name: value for name, value in found.items() if value}


def listed(values: pd.Series) -> str:
    """Return the values of a column in words, each once, in order."""
    return ", ".join(map(str, sorted(values.dropna().unique())))


def in_words(value: Any) -> str:
    """Return a JSON value as a reader would write it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(in_words, value)) or "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_words(each)}" for name, each in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
