"""The report on flocking: a page of tables and figures in Markdown."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from graphact.storage import write_atomically
from graphact_lab.experiments.flocking.experiment import OTHER_GAIN
from graphact_lab.experiments.flocking.policy_certificates import certificate_key, certify, read_certificates
from graphact_lab.experiments.flocking.results import (
    AXES,
    GAPS,
    Line,
    Results,
    best_pointwise,
    compared,
    references_of,
    values,
)
from graphact_lab.figures import house_style, new_sheet, to_png
from graphact_lab.statistics import choose, summarize
from graphact_lab.store import Row
from graphact_lab.style import GREY, Variant, spread

NOTHING = "\N{EN DASH}"
INTRODUCTION = """\
Values are the cost of a flight (variance of the velocities, summed over its steps) over the expert's on the same teams:
mean ± standard deviation over realizations, each with training teams, test teams and initial parameters of its own.
Differences are paired over realizations, with 95 % intervals; p is Holm's over the lines of its table alone,
not over all tables. K is the filter order, e the number of exchanges between neighbours for one control."""


def mean_spread(found: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation."""
    summary = summarize(found)
    return spread(summary.mean, summary.std, digits) if found else NOTHING


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, in which |x| is one cell."""
    marks = ["---", *["---:"] * (len(header) - 1)]
    rows = ((cell.replace("|", "\\|") for cell in cells) for cells in (header, marks, *lines))
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def base_section(results: Results) -> list[str]:
    """Every line as it was trained, then the differences from ReLU and from the best pointwise activation."""
    flown = [line for line in results.lines if not line.delayed]
    cells: list[Sequence[str]] = [
        (
            line.label,
            str(line.exchanges),
            f"{line.parameters:,}",
            mean_spread(values(results.of(line))),
            mean_spread(values(results.of(line), "collisions"), 2),
            mean_spread(values(results.of(line), "training_seconds"), 1).partition(" ")[0],
        )
        for line in flown
    ]
    for name in ("expert", "none"):
        rows = results.baseline(name)
        words = {"expert": "the expert", "none": "no control"}[name]
        collisions = mean_spread(values(rows, "collisions"), 2)
        cells += [(words, NOTHING, NOTHING, mean_spread(values(rows)), collisions, NOTHING)] if rows else []
    header = ("policy", "e", "parameters", "cost over the expert's", "collisions", "seconds of training")
    parts = ["## As trained", table(header, cells)]
    for label, reference in references_of(results).items():
        lines = compared(results, results.base(), reference)
        if lines:
            parts += [f"### Minus {label}", table(GAPS, lines)]
    return parts


def condition_sections(results: Results) -> list[str]:
    """A table for each condition: its levels across."""
    parts = []
    for name, words in AXES.items():
        levels = results.levels(name)
        flown = [line for line in results.lines if levels and results.of(line, **{name: levels[0]})]
        if not flown:
            continue
        columns = sorted({*levels, results.usual[name]})
        cells: list[Sequence[str]] = [
            (line.title, *(mean_spread(values(results.at(line, name, level))) for level in columns)) for line in flown
        ]
        is_felt = name in ("agents", "speed")  # by a team that nobody controls
        nobody = [values(results.at("none", name, x) if is_felt else results.baseline("none")) for x in columns]
        cells += [("no control", *map(mean_spread, nobody))] if all(nobody) else []
        parts += [f"## {words}", table(("policy", *(f"{level:g}" for level in columns)), cells)]
        parts += trained_gain_section(results, flown, columns) if name == "agents" else []
        lines_flown = [line for line in results.base() if line in flown]
        for label, reference in references_of(results).items() if name != "delay" else ():
            lines = compared(results, lines_flown, reference, **{name: levels[-1]})
            parts += [f"### At {levels[-1]:g}, minus {label}", table(GAPS, lines)] if lines else []
    return parts


def trained_gain_section(results: Results, flown: Sequence[Line], columns: Sequence[float]) -> list[str]:
    """The same flights over another expert: its gain is the size of the teams of the training, whoever flies."""
    if not any(OTHER_GAIN in row for row in results.rows):  # the expert has this gain above, too
        return []
    usual = results.usual["agents"]
    key = {size: "value" if size == usual else OTHER_GAIN for size in columns}
    cells = [
        (line.title, *(mean_spread(values(results.at(line, "agents", size), key[size])) for size in columns))
        for line in flown
    ]
    words = (
        f"The gain of the expert above is the size of the team. Over an expert whose gain is {usual:g} for all sizes:"
    )
    return [words, table(("policy", *(f"{size:g}" for size in columns)), cells)]


def delayed_section(results: Results) -> list[str]:
    """Policies that were trained with messages that take a step."""
    lines = [line for line in results.lines if line.delayed]
    if not lines:
        return []
    cells = [(line.label, str(line.exchanges), mean_spread(values(results.of(line)))) for line in lines]
    parts = ["## Trained and flown with delay", table(("policy", "e", "cost over the expert's"), cells)]
    reference = best_pointwise(results, delayed=True)
    if reference is not None and (gaps := compared(results, lines, reference)):
        parts += [f"### Minus {reference.label}", table(GAPS, gaps)]
    return parts


def certificate_section(results: Results, folder: Path) -> list[str]:
    """The certified constant of each policy beside what noise does to it; see ``certify``."""
    known = read_certificates(folder)
    levels = results.levels("noise")
    cells = []
    for line in results.base():
        rows = results.of(line)
        found = [known[key] for key in (certificate_key(row) for row in rows) if key in known]
        if found:
            noisy = [mean_spread(values(results.of(line, noise=level))) for level in levels]
            cells.append((line.label, mean_spread(found, 2), mean_spread(values(rows)), *noisy))
    header = ("policy", "certified constant", "no noise", *(f"noise {level:g}" for level in levels))
    words = (
        "The constant bounds, on the graph of the first test team at its start, how far the largest component of any "
        "control (in units of the largest acceleration) moves for each unit of the largest error of a measurement."
    )
    return ["## Certified constants and noise", words, table(header, cells)] if cells else []


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write ``report.md`` and the figures; return the path of the page."""
    results = Results(rows)
    certify(rows, folder)
    drawings = figures(results)
    first = choose(results.rows, kind="model")[0]
    count = len({(row["seed"], row["graph"]) for row in results.rows})
    facts = f"{count} realizations, preset {first['preset']}. {made_by(results)} {setting(results)}"
    parts = ["# Flocking", INTRODUCTION, facts, *base_section(results)]
    parts += [f"![{name}](figures/{name}.png)" for name in drawings]
    parts += [*condition_sections(results), *delayed_section(results), *certificate_section(results, folder)]
    parts += ["## How this was made", "```\n" + "\n".join(commands) + "\n```"]
    for name, content in drawings.items():
        write_atomically(folder / "figures" / f"{name}.png", content)
    write_atomically(folder / "report.md", ("\n\n".join(parts) + "\n").encode())
    return folder / "report.md"


def made_by(results: Results) -> str:
    """On what which rows were made."""
    found: dict[str, str] = {}
    for kind, words in (("model", "Policies"), ("baseline", "the expert and no control")):
        made = dict.fromkeys(f"{row['device']}, torch {row['torch']}" for row in choose(results.rows, kind=kind))
        found |= {words: " and ".join(made)} if made else {}
    return "; ".join(f"{words}: {made}" for words, made in found.items()) + "."


def setting(results: Results) -> str:
    """Return how teams start and the gain of the expert, in which earlier rows differ from later ones."""
    start = (
        "Teams start connected"
        if results.world["connected"]
        else "Teams may start in parts that do not hear each other"
    )
    gain = results.world["alignment"]
    gains = "the size of the team, as in the papers" if gain is None else f"{gain:g} for teams of any size"
    return f"{start}; the gain of the expert's alignment is {gains}."


def figures(results: Results) -> dict[str, bytes]:
    """Cost over each condition that has levels, and by exchanges."""
    made = {}
    with house_style():
        for name in ("loss", "agents", "noise"):
            if results.levels(name):
                made[f"flocking-{name}"] = to_png(draw_condition(results, name))
        made["flocking-exchanges"] = to_png(draw_exchanges(results))
    return made


def draw_condition(results: Results, name: str) -> Any:
    """Lines over the levels of a condition, of each activation with its fewest hops."""
    levels = sorted({*results.levels(name), results.usual[name]})
    fewest = {line.method: line for line in sorted(results.base(), key=lambda line: -(line.hops or 0))}
    curves = []
    for line in (line for line in results.base() if line == fewest[line.method]):
        rows = {level: results.at(line, name, level) for level in levels}
        points = [(level, fmean(values(found))) for level, found in rows.items() if found]
        curves.append((Variant(line.method, None), points))
    return draw(curves, AXES[name])


def draw_exchanges(results: Results) -> Any:
    """Every kind of policy at the number of its exchanges."""
    groups: dict[Variant, list[tuple[float, float]]] = {}
    for line in results.lines:
        if not line.delayed:
            point = line.exchanges, fmean(values(results.of(line)))
            groups.setdefault(Variant(line.method, line.hops), []).append(point)
    sheet = draw([(variant, sorted(points)) for variant, points in groups.items()], "Exchanges for one control")
    sheet.axes[0].xaxis.get_major_locator().set_params(integer=True)
    return sheet


def draw(curves: Sequence[tuple[Variant, Sequence[tuple[float, float]]]], xlabel: str) -> Any:
    """Lines of costs; of the pointwise activations that are all grey, only the field's choice, tanh."""
    sheet = new_sheet(3.2)
    axes = sheet.subplots()
    methods = [variant.method for variant, _ in curves]
    for variant, points in curves:
        style = variant.style
        if points and (style.color != GREY or variant.method == "tanh"):
            look: dict[str, Any] = {"color": style.color, "linestyle": style.line, "marker": style.marker}
            look["label"] = variant.label if methods.count(variant.method) > 1 else style.short
            axes.plot(*zip(*points, strict=True), **look, markersize=4.5 * style.size, linewidth=1.2)
    axes.set(xlabel=xlabel, ylabel="Cost over the expert's")
    axes.grid(visible=True)
    sheet.legend(*axes.get_legend_handles_labels(), ncols=3, loc="outside upper center")  # which covers no point
    return sheet
