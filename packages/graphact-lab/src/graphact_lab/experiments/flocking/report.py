"""The report on flocking: rows by policy and condition, paired comparisons, and a page of tables and figures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from graphact.storage import write_atomically
from graphact_lab.experiments.flocking.experiment import ORDER, OTHER_GAIN, USUAL, differing, world_of
from graphact_lab.figures import GREY, house_style, new_sheet, to_png
from graphact_lab.protocols import is_pointwise
from graphact_lab.statistics import Difference, choose, difference, holm, summarize
from graphact_lab.store import Row, StoreError
from graphact_lab.style import Variant, markdown_table, spread

GAPS = ("policy", "difference", "runs above", "p (Holm)", "effect d")
"""What :func:`compared` tells of each policy."""
AXES = {
    "loss": "Probability that a link is lost",
    "radius": "Communication radius",
    "agents": "Agents",
    "speed": "Initial speed",
    "noise": "Largest error of a measurement",
    "delay": "Steps that a message takes",
}
NOTHING = "\N{EN DASH}"
INTRODUCTION = """\
Values are the cost of a flight (variance of the velocities, summed over its steps) over the expert's on the same teams:
mean ± standard deviation over realizations, each with training teams, test teams and initial parameters of its own.
Differences are paired over realizations, with 95 % intervals; p is Holm's over the lines of its table alone,
not over all tables. K is the filter order, e the number of exchanges between neighbours for one control."""


class Line(NamedTuple):
    """Policies of one kind."""

    method: str
    hops: int | None
    order: int
    delayed: bool
    exchanges: int
    parameters: int

    @property
    def label(self) -> str:
        return f"{Variant(self.method, self.hops).label}, K = {self.order}"

    @property
    def title(self) -> str:
        return self.label + (" (trained with delay)" if self.delayed else "")

    @property
    def is_pointwise(self) -> bool:
        return is_pointwise(self.method)


class Results:
    """Rows by line and condition."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        if change := differing(self.rows):
            raise StoreError(f"a report is of rows of one setting, got some with {change}; keep them in a folder each")
        networks = choose(self.rows, kind="model")
        self.lines = list(dict.fromkeys(Line(*(row[name] for name in Line._fields)) for row in networks))
        world, imitation = world_of(networks[0]["settings"]), networks[0]["settings"]["imitation"]
        trained = {name: world[name] for name in ("radius", "speed") if name in world}
        self.world = world
        self.usual = USUAL | trained | {"agents": imitation.get("agents", USUAL["agents"])}
        self.lines.sort(key=lambda line: (line.delayed, Variant(line.method, line.hops).rank, line.order))

    def of(self, line: Line, **condition: float) -> list[Row]:
        own = {name: getattr(line, name) for name in ("method", "hops", "order", "delayed")}
        return [*choose(self.rows, kind="model", condition=condition, **own)]  # type: ignore[list-item]

    def baseline(self, name: str, **condition: float) -> list[Row]:
        return [*choose(self.rows, kind="baseline", method=name, condition=condition)]  # type: ignore[list-item]

    def at(self, policy: Line | str, name: str, level: float) -> list[Row]:
        """The rows of policies, or of a baseline, at a level of a condition; at the usual one it is not named."""
        condition = {} if level == self.usual[name] else {name: level}
        return self.baseline(policy, **condition) if isinstance(policy, str) else self.of(policy, **condition)

    def levels(self, name: str) -> list[float]:
        return sorted({row["condition"][name] for row in self.rows if name in row["condition"]})

    def base(self, order: int = ORDER) -> list[Line]:
        return [line for line in self.lines if line.order == order and not line.delayed]


def values(rows: Iterable[Row], key: str = "value") -> list[float]:
    """Return the values of rows under a key, where they have it."""
    return [row[key] for row in rows if row.get(key) is not None]


def compared(results: Results, lines: Sequence[Line], reference: Line, **condition: float) -> list[Sequence[str]]:
    """Each line minus the reference, with Holm's p over all of them."""
    gaps: list[tuple[Line, Difference]] = []
    for line in lines:
        ours, theirs = results.of(line, **condition), results.of(reference, **condition)
        if line != reference and ours and len(ours) == len(theirs) and len(ours) > 1:
            gaps.append((line, difference(ours, theirs)))
    adjusted = holm([gap.p_unlike() for _, gap in gaps])
    return [
        (line.label, f"{gap.mean:+.3f} ± {gap.margin:.3f}", f"{gap.wins:.0%}", f"{p:.2g}", f"{gap.effect:+.1f}")
        for (line, gap), p in zip(gaps, adjusted, strict=True)
    ]


def best_pointwise(results: Results, order: int = ORDER, *, delayed: bool = False) -> Line | None:
    """The pointwise activation with the lowest cost on validation flights."""
    lines = [one for one in results.lines if one.is_pointwise and one.order == order and one.delayed == delayed]
    found = {line: fmean(values(results.of(line), "validation")) for line in lines}
    return min(found, key=found.__getitem__) if found else None


def references_of(results: Results) -> dict[str, Line]:
    """Return the references of comparisons by label: ReLU, and the best pointwise activation."""
    references = {line.label: line for line in results.base() if line.method == "relu"}
    best = best_pointwise(results)
    return references | ({best.label: best} if best else {})


def mean_spread(found: Sequence[float], digits: int = 3) -> str:
    """Mean ± standard deviation."""
    summary = summarize(found)
    return spread(summary.mean, summary.std, digits) if found else NOTHING


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
    parts = ["## As trained", markdown_table(header, cells)]
    for label, reference in references_of(results).items():
        lines = compared(results, results.base(), reference)
        if lines:
            parts += [f"### Minus {label}", markdown_table(GAPS, lines)]
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
        parts += [f"## {words}", markdown_table(("policy", *(f"{level:g}" for level in columns)), cells)]
        parts += trained_gain_section(results, flown, columns) if name == "agents" else []
        lines_flown = [line for line in results.base() if line in flown]
        for label, reference in references_of(results).items() if name != "delay" else ():
            lines = compared(results, lines_flown, reference, **{name: levels[-1]})
            parts += [f"### At {levels[-1]:g}, minus {label}", markdown_table(GAPS, lines)] if lines else []
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
    return [words, markdown_table(("policy", *(f"{size:g}" for size in columns)), cells)]


def delayed_section(results: Results) -> list[str]:
    """Policies that were trained with messages that take a step."""
    lines = [line for line in results.lines if line.delayed]
    if not lines:
        return []
    cells = [(line.label, str(line.exchanges), mean_spread(values(results.of(line)))) for line in lines]
    parts = ["## Trained and flown with delay", markdown_table(("policy", "e", "cost over the expert's"), cells)]
    reference = best_pointwise(results, delayed=True)
    if reference is not None and (gaps := compared(results, lines, reference)):
        parts += [f"### Minus {reference.label}", markdown_table(GAPS, gaps)]
    return parts


def write_page(rows: Sequence[Row], folder: Path, commands: Sequence[str]) -> Path:
    """Write ``report.md`` and the figures; return the path of the page."""
    results = Results(rows)
    drawings = figures(results)
    first = choose(results.rows, kind="model")[0]
    count = len({(row["seed"], row["graph"]) for row in results.rows})
    facts = f"{count} realizations, preset {first['preset']}. {made_by(results)} {setting(results)}"
    parts = ["# Flocking", INTRODUCTION, facts, *base_section(results)]
    parts += [f"![{name}](figures/{name}.png)" for name in drawings]
    parts += [*condition_sections(results), *delayed_section(results)]
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
