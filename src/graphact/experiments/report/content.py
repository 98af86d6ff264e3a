"""What sections consist of: tables of the paper with our numbers, sweeps over a number, learned weights, figures."""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import chain
from typing import Any

import pandas as pd

from graphact.experiments.registry import Measure
from graphact.experiments.report.rows import summarize
from graphact.experiments.report.sentences import FEWEST_UNITS, paired
from graphact.experiments.report.sentences import headline as tell
from graphact.experiments.report.style import Variant
from graphact.experiments.report.tables import (
    PublishedTable,
    Table,
    entries_of,
    format_number,
    make_table,
    uncapitalized,
)


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
    """What a section shows of one preset and protocol; contents can be added."""

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


DOTS = (
    "Filled markers are ours, hollow ones the paper's; bars reach one standard deviation to either side. "
    "Dotted lines are baselines that need no network."
)
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
        figure = Figure(file_name("figure", name, words(setting)), heading, DOTS, table)
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
    errors = networks.groupby("order").validation.min()
    keys = table.entries.drop_duplicates("column_index").set_index("column_index").key
    known = {index: errors.get(key) for index, key in keys.items()}
    known = {index: error for index, error in known.items() if error is not None and error == error}
    return min(known, key=lambda index: (known[index], index)) if known else 0


def differences(table: Table, reference: str | None, axis: str) -> Content:
    """A table as paired differences from one of its networks, with intervals: what bands of runs do not show."""
    networks = table.entries[(table.entries.kind == "model") & (table.entries.runs > 0)]
    found = {entry.column_index: entry for entry in networks[networks.method == reference].itertuples()}
    records = []
    for entry in networks[networks.method != reference].to_dict("records"):
        other = found.get(entry["column_index"])
        gap = other and paired(entry, other._asdict(), table.measure.overlap)
        if gap and gap.units >= FEWEST_UNITS:
            places = {name: entry[name] for name in ("line", "key", "column", "method", "hops", "replica")}
            summary = {"mean": gap.mean, "std": gap.margin, "runs": gap.runs}
            records.append(places | {name: entry[name] for name in ("line_index", "column_index")} | summary)
    if not records:
        return Content()
    worth = -1 if table.measure.higher_is_better else 1
    best = {index: min(worth * one["mean"] for one in records if one["column_index"] == index) for index in found}
    records = [one | {"best": worth * one["mean"] == best[one["column_index"]]} for one in records]
    look, alone = Variant(str(reference), None).style, is_one_column(records)
    measure = table.measure._replace(axis=f"{table.measure.axis}, minus {look.short}", limits=(-math.inf, math.inf))
    exhibit, _, words = table.title.replace(" in numbers", "", 1).partition(":")
    name, title = file_name(table.name, "minus", str(reference)), f"{exhibit}, minus {look.short}:{words}"
    note = "Paired difference ± half of its 95 % interval."
    made = Table(name, title, measure, table.columns, entries_of(records), note, with_runs=False)
    caption = DIFFERENCES.format(look.long, "Bars" if alone else "Bands")
    return Content(figures=[Figure(name, title, caption, made, None if alone else axis)], more_tables=[made])


def is_one_column(records: Iterable[Mapping[str, Any]]) -> bool:
    """Whether there is nothing to draw an axis for."""
    return len({record["column_index"] for record in records}) == 1


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
    alone = is_one_column(drawn.to_dict("records"))
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
    learned = [cell for cell in networks.itertuples() if any(cell.beta) or any(cell.weights)]
    learned.sort(
        key=lambda cell: (
            Variant(cell.method, cell.hops).rank,
            cell.features or 0,
            cell.order or 0,
            cell.setting_in_words,
        )
    )
    title, name = "Learned activation weights", file_name("weights", name)
    seen = {cell.line: cell for cell in learned if cell.setting_in_words == headline}
    every = {f"{cell.line}, {cell.setting_in_words}": cell for cell in learned}
    shown = [weights_table(seen, name, f"{title}, {headline}")] if seen else []
    rest = len(every) > len(seen)
    folded = [weights_table(every, f"{name}-every-setting", f"{title} in every setting")] if rest else []
    return Content(tables=shown, more_tables=folded)


def weights_table(cells: Mapping[str, Any], name: str, title: str) -> Table:
    """One line for each layer of a network; the summary of a hop is over the features, too, and counts its runs."""
    runs = {
        (label, layer): [
            (beta[layer], by_layer[layer] if layer < len(by_layer) else ())
            for beta, by_layer in zip(cell.beta, cell.weights, strict=True)
            if layer < len(beta)
        ]
        for label, cell in cells.items()
        for layer in range(max(map(len, cell.beta), default=0))
    }
    layers = max((layer for _, layer in runs), default=0) + 1
    hops = max((len(by_hop) for own in runs.values() for _, by_hop in own), default=0)
    columns = ["β", *(f"|h{hop}| / |β|" for hop in range(1, hops + 1))]
    records = []
    for line, ((label, layer), own) in enumerate(runs.items()):
        shares = [
            [
                [abs(value) / abs(beta) if beta else math.nan for value in by_hop[hop]] if hop < len(by_hop) else []
                for beta, by_hop in own
            ]
            for hop in range(hops)
        ]
        for column, by_run in enumerate([[[beta] for beta, _ in own], *shares]):
            summary = summarize(chain.from_iterable(by_run))._replace(runs=sum(map(bool, by_run)))
            where = {"line_index": line, "line": f"{label}, layer {layer + 1}" if layers > 1 else label}
            records.append(where | {"column_index": column, "column": columns[column]} | summary._asdict())
    measure = Measure("", "Trained parameters", 2)
    return Table(name, title, measure, columns, entries_of(records), WEIGHTS, with_runs=False)
