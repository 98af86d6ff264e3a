"""Tables of an experiment: beside the paper's, over a number, or of all activations over data sets."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from graphact_lab.descriptions import Measure
from graphact_lab.protocols import POOLING, is_neighborhood, is_pointwise
from graphact_lab.report.tables import (
    PublishedTable,
    Table,
    difference_table,
    file_name,
    headline,
    make_table,
)
from graphact_lab.statistics import MIN_UNITS, common_difference, holm
from graphact_lab.style import title_of


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
) -> list[Table]:
    """Return a table of the paper with our numbers beside its own.

    ``column`` is the key of a cell that decides its column, ``settings`` are further keys with their letters: networks
    that differ in them have tables of their own. ``headlines`` are the columns that the summary speaks of.
    """
    cells = cells.assign(column=cells[column])
    is_model = cells.kind == "model"
    found = cells[is_model].groupby(list(settings), dropna=False)
    tables = []
    for setting, own in found if len(found) else [((), cells[is_model])]:
        known = [(letter, value) for letter, value in zip(settings.values(), setting, strict=False) if value == value]
        words = "".join(f", {letter} = {value}" for letter, value in known) if len(found) > 1 else ""
        table = make_table(
            pd.concat([own, cells[~is_model]]),
            measure,
            name=file_name(exhibit, name, words),
            title=f"{exhibit}: {title}{words}",
            column_label=column_label,
            paper=paper,
            column_order=column_order,
        )
        told = list(enumerate(table.columns))[headlines]
        tables.append(replace(table, headlines=tuple((f"{label}{words}", headline(table, at)) for at, label in told)))
    return tables


def sweeps(
    cells: pd.DataFrame,
    name: str,
    measure: Measure,
    *,
    usual_level: float,
    shown: Callable[[pd.DataFrame], pd.DataFrame],
    exhibits: tuple[str, str],
    axis: str,
    column: str,
    is_best_told: bool = False,
) -> list[Table]:
    """Return methods over the filter order at the usual level of the condition, and then over its levels.

    ``exhibits`` are the paper's names of the two figures. ``shown`` chooses the cells of the second from all cells with
    their level as ``column``; its axis has the label ``axis``. The summary speaks of the lowest order or, with
    ``is_best_told``, of the one whose best network validates best.
    """
    # A network may have been tested at the usual level under its own name, and as it was trained
    at = cells.assign(column=[usual_level if level is None else level for level in cells.level])
    once = ["kind", "method", "hops", "features", "order", "column"]
    usual = at[at.column == usual_level].sort_values("level", na_position="first", kind="stable")
    usual = usual.drop_duplicates(once).sort_index()
    networks = usual[usual.kind == "model"]
    tables: list[Table] = []
    for features in sorted(networks.features.unique(), reverse=True) or [None]:
        own = usual[(usual.features == features) | (usual.kind == "baseline")]
        words = "" if features is None else f", F = {features}"
        made = make_table(
            own.assign(column=own.order),
            measure,
            name=file_name(exhibits[0], name, words if tables else ""),
            title=f"{exhibits[0]}: error over the filter order{words}",
            column_label="K = {}".format,
            axis="Filter order K",
        )
        errors = own[own.kind == "model"].groupby("order").validation.min()
        told = made.columns.index(f"K = {errors.idxmin()}") if is_best_told and errors.notna().any() else 0
        sentences = [(f"{made.columns[told]}{words}", headline(made, told))] if not tables else []
        tables.append(replace(made, headlines=tuple(sentences)))
    chosen = shown(at.sort_values("level", na_position="last", kind="stable").drop_duplicates(once).sort_index())
    if not (chosen.kind == "model").any():
        return tables
    own = chosen[chosen.kind == "model"]
    sizes = {"K": sorted(own.order.unique()), "F": sorted(own.features.unique())}
    words = "".join(f", {letter} = {values[0]}" for letter, values in sizes.items() if len(values) == 1)
    table = make_table(
        chosen,
        measure,
        name=file_name(exhibits[1], name),
        title=f"{exhibits[1]}: error over the {axis[:1].lower()}{axis[1:]}{words}",
        column_label=lambda level: column.format(f"{level:g}"),
        axis=axis,
    )
    return [tables[0], table, *tables[1:]]


def benchmark(
    cells: pd.DataFrame,
    name: str,
    measure: Measure,
    *,
    overlaps: Mapping[str, float],
    alone: Sequence[str] = (),
    levels: Sequence[str] = (),
) -> list[Table]:
    """Return scores of all activations on all data sets, and differences from the best pointwise one, by width.

    ``overlaps`` are the corrections for splits of one data set that share samples, by data set. In the protocols of
    ``alone`` runs differ in their seeds alone, on one split, and need none. With ``levels``, these are the columns in
    the place of data sets, and the protocol is the name of the data set.
    """
    tables, protocol = list[Table](), cells.protocol.iloc[0]
    if protocol in alone:
        overlaps = dict.fromkeys(overlaps, 0.0)
    if levels:
        overlaps = dict.fromkeys((*levels, *sorted(set(cells.level))), overlaps[protocol])
    widths = sorted(cells.features.unique(), reverse=True)
    for width in widths:
        own = cells[cells.features == width]
        words = f", F = {width}" if len(widths) > 1 else ""
        table = make_table(
            own.assign(column=own.level),
            measure,
            name=file_name("scores", name, words),
            title=f"Test scores{words}",
            column_label=title_of,
            column_order=[level for level in overlaps if level in set(own.level)],
        )
        if pooled := sorted({line.line for line in table.networks.itertuples() if line.method in POOLING}):
            told = (
                f"{' and '.join(pooled)} read a mean over all nodes besides, which no exchange with neighbours gives."
            )
            table = replace(table, caption=f"{table.caption} {told}".strip())
        headlines, references = [], dict[int, Any]()
        for index, level in enumerate(dict.fromkeys(table.entries.sort_values("column_index").key)):
            best, reference = (
                best_in(table, index, own[own.level == level], kind) for kind in (is_neighborhood, is_pointwise)
            )
            if reference is not None:
                references[index] = reference
                rivals = [one for one in (best, reference) if one is not None]
                headlines.append((f"{table.columns[index]}{words}", headline(table, index, rivals, overlaps[level])))
        tables.append(replace(table, headlines=tuple(headlines)))
        tables += differences(table, references, overlaps, words, is_alone=protocol in alone)
    return tables


def differences(
    table: Table, references: Mapping[int, Any], overlaps: Mapping[str, float], words: str, *, is_alone: bool
) -> list[Table]:
    """Return a table of paired differences from the reference of each column, with adjusted p-values."""
    gaps = {}
    for entry in table.networks.itertuples():
        reference = references.get(entry.column_index)
        if reference is not None and entry.line != reference.line:
            gap = common_difference(entry, reference, overlaps[entry.key])
            if gap is not None and gap.units >= MIN_UNITS:
                gaps[entry.Index] = gap
    if not gaps:
        return []
    adjusted = holm([gap.p_unlike() for gap in gaps.values()])
    listed = ", ".join(f"{entry.column}: {entry.line}" for entry in references.values())
    units = "seeds on one split, which tells nothing of other test samples" if is_alone else "splits"
    made = difference_table(
        table,
        gaps,
        {index: f"p = {value:.3f}" for index, value in zip(gaps, adjusted, strict=True)},
        title=f"Differences from the best pointwise activation{words}",
        axis="Difference of test scores (points)",
        caption=f"Minus the pointwise activation that validates best ({listed}), paired over {units}; ± half the 95 % "
        "interval. p is two-sided and adjusted for the number of differences (Holm).",
    )
    return [made]


def best_in(table: Table, index: int, cells: pd.DataFrame, is_kind: Callable[[str], bool]) -> Any:
    """Return the network of a kind that validates best in a column, None where none has a validation score.

    Scores are those on splits that are not reported where all networks have some.
    """
    scores = cells.tuning if cells.tuning.notna().all() else cells.validation
    by_line = dict(zip(cells.line, scores, strict=True))
    column = table.networks[table.networks.column_index == index].itertuples()
    known = [entry for entry in column if is_kind(entry.method) and by_line[entry.line] == by_line[entry.line]]
    return max(known, key=lambda entry: by_line[entry.line], default=None)


def optimistic(
    cells: pd.DataFrame, name: str, measure: Measure, *, suffix: str, published: PublishedTable, **options: Any
) -> list[Table]:
    """Return a benchmark, and apart from it scores at levels with a suffix, which chose what they are reported with."""
    is_apart = cells.level.str.endswith(suffix)
    tables = [] if is_apart.all() else benchmark(cells[~is_apart], name, measure, **options)
    for width, own in cells[is_apart].groupby("features"):
        methods = set(own.method)
        table = make_table(
            own.assign(column=own.level.str.removesuffix(suffix)),
            measure._replace(axis="Best mean test accuracy (%)"),
            name=file_name("optimistic", name, f"f{width}"),
            title=f"Optimistic protocol, F = {width}",
            column_label=str,
            paper={key: line for key, line in published.items() if key[0] in methods},
            column_order=tuple(options["overlaps"]),
        )
        caption = "Settings and epoch are the best on the folds that are reported. Paper: DiGRAF (NeurIPS 2024), whose "
        tables.append(replace(table, caption=f"{caption}Max and Median have no shift. {table.caption}"))
    return tables
