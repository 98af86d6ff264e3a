"""The section of a benchmark: activations over data sets, differences from the best pointwise one, and their cost."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from graphact.experiments.pairing import Difference
from graphact.experiments.protocol import CONTROLS
from graphact.experiments.registry import Measure
from graphact.experiments.report.content import Content, Figure, file_name
from graphact.experiments.report.sentences import FEWEST_UNITS, paired
from graphact.experiments.report.sentences import headline as tell
from graphact.experiments.report.style import Variant
from graphact.experiments.report.tables import Table, entries_of, make_table
from graphact.experiments.statistics import holm
from graphact.registry import POINTWISE

POINTWISE_METHODS = ("relu", *POINTWISE)
POOLING = ("grelu", "digraf")  # read a mean over all nodes besides, which no exchange between neighbours gives
SPREADS = "Bars reach one standard deviation to either side."
DIFFERENCES = (
    "Paired over splits, minus the pointwise activation that validates best{}: {}. Half of the 95 % interval behind ±, "
    "corrected for the test samples that splits have in common."
)
OF_SEEDS = (
    "Paired over seeds on one split, minus the pointwise activation that validates best there: {}. Half of the 95 % "
    "interval behind ±. It tells of the draw of parameters and dropout; of other test samples it tells nothing."
)
ADJUSTED = "Two-sided p-values of these differences, adjusted for their number (Holm)."
COST = {"parameters": "Parameters", "exchanges": "Exchanges", "milliseconds": "Milliseconds a run"}
WHOLE_COST = (
    "Trained numbers, exchanges between neighbours for an answer, and the time to choose the settings and to train, "
    "shared among the runs that are reported."
)
ALSO_POOLED = " {} read a mean over all nodes besides, which no exchange between neighbours gives."


def benchmark(
    cells: pd.DataFrame,
    name: str,
    measure: Measure,
    *,
    overlaps: Mapping[str, float],
    alone: Sequence[str] = (),
    levels: Sequence[str] = (),
) -> Content:
    """Scores of all activations on all data sets, one part for each width.

    ``overlaps`` are the corrections for splits of one data set that share samples, by data set. In the protocols of
    ``alone`` runs differ in their seeds alone, on one split, and need none. With ``levels``, these are the columns in
    the place of data sets, and the protocol is the name of the data set.
    """
    content, protocol = Content(), cells.protocol.iloc[0]
    units = "seeds" if protocol in alone else None
    if units:
        overlaps = dict.fromkeys(overlaps, 0.0)
    if levels:
        overlaps = dict.fromkeys((*levels, *sorted(set(cells.level))), overlaps[protocol])
    known = [level for level in overlaps if level in set(cells.level)]
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
            column_order=known,
        )
        figure = Figure(file_name("figure", name, words), f"Test scores{words}", SPREADS, table)
        headlines = []
        for index, label in enumerate(table.columns):
            overlap = overlaps[column_key(table, index)]
            told = replace(table, measure=measure._replace(overlap=overlap))
            headlines.append((f"{label}{words}", tell(told, index, rivals_in(told, index, own), units)))
        content += Content(headlines, [figure] if table.entries.best.any() else [], [table])
        content += differences(table, own, overlaps, words, units)
        content += cost(own, file_name("cost", name, words), f"Cost{words}")
    return content


def is_neighborhood(method: str) -> bool:
    """Whether a method is one of our activations of neighbourhoods; a mean of them, which is linear, is a control."""
    return method.endswith(("-ga", "-l")) and method not in CONTROLS


def differences(
    table: Table, cells: pd.DataFrame, overlaps: Mapping[str, float], words: str, units: str | None = None
) -> Content:
    """Paired differences from the pointwise activation that validates best, and their adjusted p-values."""
    networks = table.entries[(table.entries.kind == "model") & (table.entries.runs > 0)].to_dict("records")
    found: list[tuple[dict[str, Any], Difference]] = []
    references: dict[str, str] = {}
    for key in dict.fromkeys(entry["key"] for entry in networks):
        column = [entry for entry in networks if entry["key"] == key]
        reference = best_pointwise(cells[cells.level == key], column)
        if reference is None:
            continue
        references[title_of(key)] = reference["line"]
        for entry in column:
            gap = None if entry is reference else paired(entry, reference, overlaps[key])
            if gap is not None and gap.units >= FEWEST_UNITS:
                found.append((entry, gap))
    if not found:
        return Content()
    adjusted = holm([gap.p_unlike() for _, gap in found])
    places = ("line", "line_index", "key", "column", "column_index", "method", "hops", "replica")
    records: list[dict[str, Any]] = [{name: entry[name] for name in places} for entry, _ in found]
    gaps = [
        record | {"mean": gap.mean, "std": gap.margin, "runs": gap.runs}
        for record, (_, gap) in zip(records, found, strict=True)
    ]
    best = {gap["key"]: max(other["mean"] for other in gaps if other["key"] == gap["key"]) for gap in gaps}
    gaps = [gap | {"best": gap["mean"] == best[gap["key"]]} for gap in gaps]
    tests = [record | {"mean": p, "std": math.nan, "runs": 1} for record, p in zip(records, adjusted, strict=True)]
    listed = ", ".join(f"{label}: {line}" for label, line in references.items())
    measure = table.measure._replace(axis="Difference of test scores (points)", limits=(-math.inf, math.inf), unit="")
    name, title = file_name(table.name, "differences"), f"Differences from the best pointwise activation{words}"
    tuned = " on splits that are not reported" if has_tuning(cells) else " on the reported splits"
    caption = OF_SEEDS.format(listed) if units else DIFFERENCES.format(tuned, listed)
    shown = Table(name, title, measure, table.columns, filled(gaps, table), caption, with_runs=False)
    figure = Figure(name, title, caption, replace(shown, entries=entries_of(gaps)))
    p_values = Table(
        file_name(table.name, "p-values"),
        f"Adjusted p-values{words}",
        Measure("", "Adjusted p-value", 3),
        table.columns,
        filled(tests, table),
        ADJUSTED,
        with_runs=False,
    )
    return Content(figures=[figure], tables=[shown], more_tables=[p_values])


def rivals_in(table: Table, index: int, cells: pd.DataFrame) -> tuple[int, int] | None:
    """The lines of a column that stand for their kind by validation: of neighbourhoods, and pointwise."""
    entries = table.entries[(table.entries.kind == "model") & (table.entries.runs > 0)]
    column = entries[entries.column_index == index].to_dict("records")
    own = cells[cells.level == column_key(table, index)]
    others = [entry for entry in column if is_neighborhood(entry["method"])]
    best, reference = best_of(own, others), best_pointwise(own, column)
    return (best["line_index"], reference["line_index"]) if best and reference else None


def best_pointwise(cells: pd.DataFrame, column: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Of the entries of a column, the pointwise activation with the best mean validation score."""
    return best_of(cells, [entry for entry in column if entry["method"] in POINTWISE_METHODS])


def has_tuning(cells: pd.DataFrame) -> bool:
    """Whether all networks have scores of splits that choose and are not reported."""
    return bool(cells.tuning.notna().all())


def best_of(cells: pd.DataFrame, entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The entry with the best mean validation score, on splits that are not reported where all networks have some."""
    basis = "tuning" if has_tuning(cells) else "validation"
    validation = {(cell.method, cell.hops): getattr(cell, basis) for cell in cells.itertuples()}
    known = [entry for entry in entries if not math.isnan(validation[entry["method"], entry["hops"]])]
    return max(known, key=lambda entry: validation[entry["method"], entry["hops"]], default=None)


def filled(records: Sequence[Mapping[str, Any]], table: Table) -> pd.DataFrame:
    """Entries of a table; lines that lack a column get an empty entry there."""
    have = {(record["line_index"], record["column_index"]) for record in records}
    lines = {record["line_index"]: record for record in records}
    empty = [
        {name: line[name] for name in ("line", "line_index", "method", "hops")}
        | {"column_index": index, "column": label}
        for number, line in lines.items()
        for index, label in enumerate(table.columns)
        if (number, index) not in have
    ]
    ordered = sorted([*records, *empty], key=lambda record: (record["line_index"], record["column_index"]))
    return entries_of(ordered)


def cost(cells: pd.DataFrame, name: str, title: str) -> Content:
    """Parameters, exchanges and time of each activation, on the data set that has most of them."""
    counted = cells[cells.parameters.notna() & cells.exchanges.notna()]
    if counted.empty:
        return Content()
    level = counted.level.value_counts().index[0]
    own = counted[counted.level == level]
    ranked = sorted(own.to_dict("records"), key=lambda cell: Variant(cell["method"], cell["hops"]).rank)
    records = [
        {"line": cell["line"], "line_index": line, "method": cell["method"], "hops": cell["hops"]}
        | {"column": label, "column_index": index, "mean": float(value), "runs": 1}
        for line, cell in enumerate(ranked)
        for index, (label, value) in enumerate(
            zip(COST.values(), (cell["parameters"], cell["exchanges"], 1000 * cell["seconds"]), strict=True)
        )
    ]
    measure, columns = Measure("", f"Cost on {title_of(level)}", 0), list(COST.values())
    pooled = " and ".join(cell["line"] for cell in ranked if cell["method"] in POOLING)
    caption = WHOLE_COST + (ALSO_POOLED.format(pooled) if pooled else "")
    table = Table(name, f"{title} on {title_of(level)}", measure, columns, entries_of(records), caption, False)
    return Content(tables=[table])


def column_key(table: Table, index: int) -> Any:
    """The key of a column."""
    return table.entries[table.entries.column_index == index].key.iloc[0]


def title_of(dataset: Any) -> str:
    """A data set as readers know it."""
    usual = {"citeseer": "CiteSeer", "pubmed": "PubMed", "blogcatalog": "BlogCatalog"}
    name = str(dataset)
    return usual.get(name, name.replace("_filtered", "").capitalize() if name.islower() else name)
