"""Parts of sections: tables of the paper with our numbers, sweeps over a number, learned weights, figures."""

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

import pandas as pd

from graphact_lab.descriptions import Measure
from graphact_lab.report.sentences import headline as tell
from graphact_lab.report.tables import PublishedTable, Table, entries_of, make_table, mark_best, uncapitalized
from graphact_lab.statistics import MIN_UNITS, Difference, common_difference, summarize
from graphact_lab.style import Variant, format_number

PLACE = ("line", "line_index", "method", "hops", "key", "column", "column_index")  # of an entry in a table
Gaps = dict[int, Difference]  # from another entry, by index of the entry


@dataclass(frozen=True)
class Figure:
    """A table as a figure: lines over an axis on which its columns are numbers, or dots where there is no such axis."""

    name: str  # of its files, without ending
    title: str
    caption: str
    table: Table
    axis: str | None = None

    @property
    def alt(self) -> str:
        entries, unit, digits = self.table.entries, uncapitalized(self.table.measure.axis), self.table.measure.digits
        kind, over = ("Dot", "by activation") if self.axis is None else ("Line", f"over the {uncapitalized(self.axis)}")
        methods = sum(not line.is_baseline for line in self.table.lines)
        best = entries[entries.best].sort_values("column_index").itertuples()
        each = [f"{entry.column}: best is {entry.line}, {format_number(entry.mean, digits)}." for entry in best]
        last = f"All values are in the table “{self.table.title}”."
        return " ".join([f"{kind} chart of {unit} {over}, {methods} methods.", *each, last])


@dataclass(frozen=True)
class Content:
    """The parts that a section shows of one preset and protocol; contents can be added."""

    headlines: list[tuple[str, str]] = field(default_factory=list)  # each a setting and a sentence
    figures: list[Figure] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)  # the first is the main one
    more_tables: list[Table] = field(default_factory=list)  # folded away

    def __add__(self, other: "Content") -> "Content":
        return Content(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(Content)))


def file_name(*parts: str) -> str:
    """Lower-case letters, digits and hyphens, whatever the parts hold.

    Example:
        >>> file_name("table-1", "../Quick & dirty")
        'table-1-quick-dirty'
    """
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")


BESIDE = "Filled markers are ours, hollow ones the paper's; bars"
DOTS = "{} reach one standard deviation to either side. Dotted lines are baselines that need no network."
SPREADS = " {} reach one standard deviation to either side. Dotted: baselines."
DIFFERENCES = (
    "On the same graphs, splits and nodes, minus {}: below 0 is better. {} are 95 % intervals, over graphs or, "
    "corrected for their overlap, over splits."
)
WEIGHTS = (
    "β weighs the ReLU term, h1, h2, … the terms of the hops; these differ in sign, so their sizes are shown, as "
    "shares of β. Mean ± standard deviation over replicas and, for h, over features."
)


def comparison(
    cells: pd.DataFrame,
    name: str,
    measure: Measure,
    *,
    exhibit: str,
    title: str,
    paper: PublishedTable,
    column: str,
    column_label: Callable[[Any], str],
    column_order: Sequence[Hashable],
    settings: Mapping[str, str],
    headlines: slice = slice(None),
) -> Content:
    """A table of the paper with our numbers beside its own, and as dots.

    ``column`` is the key of a cell that decides its column, ``settings`` are further keys with their letters: networks
    that differ in them have tables of their own, with the baselines that do not contradict. ``headlines`` are the
    columns that the summary speaks of.
    """
    cells = cells.assign(column=cells[column], setting=list(zip(*(cells[key] for key in settings), strict=True)))
    networks, baselines = cells[cells.kind == "model"], cells[cells.kind == "baseline"]
    found = sorted(set(networks.setting), key=lambda setting: [value or -1 for value in setting])

    def words(setting: tuple[Any, ...]) -> str:
        known = [pair for pair in zip(settings.values(), setting, strict=False) if pair[1] is not None]
        return "".join(f", {letter} = {value}" for letter, value in known) if len(found) > 1 else ""

    content = Content()
    for setting in found or [()]:
        own = networks[[one == setting for one in networks.setting]]
        fits = [
            all(one in (None, wanted) for one, wanted in zip(pair, setting, strict=False)) for pair in baselines.setting
        ]
        table = make_table(
            pd.concat([own, baselines[fits]]),
            measure,
            name=file_name(exhibit, name, words(setting)),
            title=f"{exhibit}: {title}{words(setting)}",
            column_label=column_label,
            paper=paper,
            column_order=column_order,
        )
        heading = f"{title[:1].upper()}{title[1:]}{words(setting)}"
        figure = Figure(
            file_name("figure", name, words(setting)),
            heading,
            DOTS.format(BESIDE if table.has_paper else "Bars"),
            table,
        )
        told = list(enumerate(table.columns))[headlines]
        sentences = [(f"{label}{words(setting)}", tell(table, index)) for index, label in told]
        content += Content(sentences, [figure] if table.entries.best.any() else [], [table])
    in_words = [column_label(cell.column) + words(cell.setting) for cell in networks.itertuples()]
    return content + learned_weights(networks.assign(setting_in_words=in_words), name, content.headlines[0][0])


def sweeps(
    cells: pd.DataFrame,
    name: str,
    measure: Measure,
    *,
    usual_level: float,
    shown: Callable[[pd.DataFrame, pd.DataFrame], list[pd.DataFrame]],
    orders: tuple[str, str],
    levels: tuple[str, str],
    title: str,
    axis: str,
    column: str,
    headline: str = "lowest",
    references: tuple[str | None, str | None] = (None, None),
) -> Content:
    """Methods over the filter order at the usual level of the condition, and then over its levels.

    ``orders`` and ``levels`` are the paper's name of a figure and its caption. ``shown`` chooses the cells of the
    second figure, from cells with their level as ``column`` and from all cells; the other words are that figure's. The
    summary speaks of the "lowest" order, or of the one that is "best" on validation samples. ``references`` are the
    networks from which differences are shown beside the two figures.
    """
    usual = at_levels(cells, usual_level, prefer_named=False)
    usual = usual[usual.column == usual_level]
    networks, exhibit = usual[usual.kind == "model"], orders[0]
    tables: list[Table] = []
    for features in sorted(networks.features.unique(), reverse=True) or [None]:  # the most are seen, others folded
        fits = (usual.features == features) | (usual.features.isna() & (usual.kind == "baseline"))
        own_name = file_name(exhibit, name, f"f{features}" if tables else "")
        words = f"{exhibit} in numbers: error over the filter order" + (f", F = {features}" if features else "")
        chosen = usual[fits].assign(column=usual.order)
        tables.append(make_table(chosen, measure, name=own_name, title=words, column_label="K = {}".format))
    told = best_column(tables[0], networks) if headline == "best" else 0
    where = tables[0].columns[told] + tables[0].title.partition("filter order")[2]
    in_words = [f"K = {cell.order}, F = {cell.features}" for cell in networks.itertuples()]
    figures = sweep_figures(tables[0], orders[1], "Filter order K")
    content = Content([(where, tell(tables[0], told))], figures, tables[:1], tables[1:])
    content += differences(tables[0], references[0], "Filter order K")
    content += learned_weights(networks.assign(setting_in_words=in_words), name, where)
    swept = pd.concat(shown(at_levels(cells, usual_level, prefer_named=True), cells))
    table = level_table(swept, measure, file_name(levels[0], name), f"{levels[0]} in numbers: {title}", column)
    if table is None:
        return content
    content += Content(figures=sweep_figures(table, levels[1], axis), tables=[table])
    return content + differences(table, references[1], axis)


def best_column(table: Table, networks: pd.DataFrame) -> int:
    """The column in which the best network validates best; the first where validation errors are not known."""
    errors = networks.groupby("order").validation.min().dropna()
    known = [(errors[key], index) for index, key in enumerate(table.keys) if key in errors.index]
    return min(known)[1] if known else 0


def differences(table: Table, reference: str | None, axis: str) -> Content:
    """A table as paired differences from one of its networks, with intervals: what bands of runs do not show."""
    references = {entry.column_index: entry for entry in table.networks.itertuples() if entry.method == reference}
    gaps = paired_with(table, references, lambda _: table.measure.overlap)
    if not gaps:
        return Content()
    look, alone = Variant(str(reference), None).style, table.entries.column_index[list(gaps)].nunique() == 1
    exhibit, _, words = table.title.replace(" in numbers", "", 1).partition(":")
    made = difference_table(
        table,
        gaps,
        name=file_name(table.name, "minus", str(reference)),
        title=f"{exhibit}, minus {look.short}:{words}",
        axis=f"{table.measure.axis}, minus {look.short}",
        caption="Paired difference ± half of its 95 % interval.",
    )
    caption = DIFFERENCES.format(look.long, "Bars" if alone else "Bands")
    return Content(figures=[Figure(made.name, made.title, caption, made, None if alone else axis)], more_tables=[made])


def paired_with(table: Table, references: Mapping[int, Any], overlap: Callable[[Any], float | None]) -> Gaps:
    """Differences of networks from the reference of their column, which ``references`` has by index, with an interval.

    ``overlap`` is that of the column with a key.
    """
    gaps = {}
    for entry in table.networks.itertuples():
        reference = references.get(entry.column_index)
        if reference is not None and entry.method != reference.method:
            gap = common_difference(entry, reference, overlap(entry.key))
            if gap is not None and gap.units >= MIN_UNITS:
                gaps[entry.Index] = gap
    return gaps


def difference_table(table: Table, gaps: Gaps, *, name: str, title: str, axis: str, caption: str) -> Table:
    """Differences and half of their intervals, in the places of the entries that they are of."""
    measure = table.measure._replace(axis=axis, limits=(-math.inf, math.inf), unit="")
    values = {index: {"mean": gap.mean, "std": gap.margin, "runs": gap.runs} for index, gap in gaps.items()}
    entries = mark_best(with_values(table, values), measure)
    return Table(name, title, measure, table.columns, entries, caption, with_runs=False)


def with_values(table: Table, values: Mapping[int, dict[str, Any]]) -> pd.DataFrame:
    """The lines of a table that have new values, which are by index of the entry; their other entries are empty."""
    lines = table.entries.line_index[list(values)]
    own = table.entries[table.entries.line_index.isin(lines)].itertuples()
    return entries_of([{name: getattr(entry, name) for name in PLACE} | values.get(entry.Index, {}) for entry in own])


def level_table(cells: pd.DataFrame, measure: Measure, name: str, title: str, column: str) -> Table | None:
    """Methods over the level of a condition, which is the ``column`` of a cell; None where there is no network.

    Filter order and features stand in the title or, where networks differ in them, at each line.
    """
    networks, letters = cells[cells.kind == "model"], {"order": "K", "features": "F"}
    if networks.empty:
        return None
    common = {key for key in letters if networks[key].nunique(dropna=False) == 1}

    def words(cell: Any, keys: set[str]) -> str:
        return "".join(f", {letters[key]} = {getattr(cell, key)}" for key in letters if key in keys)

    own = [words(cell, letters.keys() - common if cell.kind == "model" else set()) for cell in cells.itertuples()]
    return make_table(
        cells.assign(line=cells.line + own),
        measure,
        name=name,
        title=title + words(networks.iloc[0], common),
        column_label=lambda level: column.format(f"{level:g}"),
    )


def sweep_figures(table: Table, caption: str, axis: str) -> list[Figure]:
    """A sweep as lines, or as dots where it has one column; nothing where no network has a result."""
    drawn = table.entries[(table.entries.kind == "model") & table.entries["mean"].notna()]
    if drawn.empty:
        return []
    alone = drawn.column_index.nunique() == 1
    caption += SPREADS.format("Bars" if alone else "Bands")
    if not alone and drawn.drop_duplicates("line_index").method.duplicated().any():
        caption += " Thin lines: the same method with fewer hops."
    title = table.title.replace(" in numbers", "", 1)
    return [Figure(table.name, title, caption, table, None if alone else axis)]


def at_levels(cells: pd.DataFrame, default: float, *, prefer_named: bool) -> pd.DataFrame:
    """Cells with the level of their condition as ``column``; one without condition has the default level.

    Where the default level occurs both ways, named and not, one of the two is kept.
    """
    levels = [default if level is None else level for level in cells.level]
    marked = cells.assign(column=levels, other=cells.level.notna() != prefer_named).sort_values("other", kind="stable")
    return marked.drop_duplicates(["kind", "method", "hops", "features", "order", "column"]).sort_index()


def learned_weights(networks: pd.DataFrame, name: str, headline: str) -> Content:
    """Tables of beta and the size of h beside it by layer and hop: the headline's setting, and all of them, folded.

    A network has its setting in words as ``setting_in_words``.
    """

    def rank(cell: Any) -> tuple[Any, ...]:
        return Variant(cell.method, cell.hops).rank, cell.features or 0, cell.order or 0, cell.setting_in_words

    learned = sorted((cell for cell in networks.itertuples() if any(cell.beta) or any(cell.weights)), key=rank)
    title, name = "Learned activation weights", file_name("weights", name)
    seen = {cell.line: cell for cell in learned if cell.setting_in_words == headline}
    every = {f"{cell.line}, {cell.setting_in_words}": cell for cell in learned}
    shown = [weights_table(seen, name, f"{title}, {headline}")] if seen else []
    rest = len(every) > len(seen)
    folded = [weights_table(every, f"{name}-every-setting", f"{title} in every setting")] if rest else []
    return Content(tables=shown, more_tables=folded)


def weights_table(cells: Mapping[str, Any], name: str, title: str) -> Table:
    """One line for each layer of a network; the summary of a hop is over the features, too, and counts its runs."""
    found: dict[tuple[str, int], dict[int, list[list[float]]]] = {}  # by label and layer: values of each run by hop
    for label, cell in cells.items():
        for betas, weights in zip(cell.beta, cell.weights, strict=True):
            for layer, beta in enumerate(betas):
                by_hop = found.setdefault((label, layer), {0: []})
                by_hop[0].append([beta])
                for hop, values in enumerate(weights[layer] if layer < len(weights) else (), start=1):
                    shares = [abs(value) / abs(beta) if beta else math.nan for value in values]
                    by_hop.setdefault(hop, []).append(shares)
    has_layers = any(layer for _, layer in found)
    columns = ["β", *(f"|h{hop}| / |β|" for hop in range(1, max(map(len, found.values()), default=1)))]
    records = []
    for index, ((label, layer), by_hop) in enumerate(found.items()):
        line = {"line_index": index, "line": f"{label}, layer {layer + 1}" if has_layers else label}
        for hop, column in enumerate(columns):
            runs = by_hop.get(hop, [])
            summary = summarize(chain.from_iterable(runs))._replace(runs=len(runs))
            records.append(line | {"column_index": hop, "column": column} | summary._asdict())
    measure = Measure("", "Trained parameters", 2)
    return Table(name, title, measure, columns, entries_of(records), WEIGHTS, with_runs=False)
