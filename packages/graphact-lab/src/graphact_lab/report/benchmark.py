"""The section of a benchmark: activations over data sets, differences from the best pointwise one, and their cost."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from graphact_lab.descriptions import Measure
from graphact_lab.protocols import POOLING, is_neighborhood, is_pointwise
from graphact_lab.report.content import Content, Figure, difference_table, file_name, paired_with, with_values
from graphact_lab.report.sentences import headline as tell
from graphact_lab.report.tables import Table, entries_of, make_table
from graphact_lab.statistics import holm
from graphact_lab.style import Variant, title_of

SPREADS = "Bars reach one standard deviation to either side."
DIFFERENCES = (
    "Paired over splits, minus the pointwise activation that validates best{}: {}. Half the 95 % interval follows ±, "
    "corrected for the test samples that splits have in common."
)
SEED_DIFFERENCES = (
    "Paired over seeds on one split, minus the pointwise activation that validates best there: {}. Half of the 95 % "
    "interval follows ±. It tells of the draw of parameters and dropout; of other test samples it tells nothing."
)
ADJUSTED = "Two-sided p-values of these differences, adjusted for their number (Holm)."
COST = ["Parameters", "Exchanges", "Milliseconds a run"]
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
            if own[own.level == table.keys[index]].validation.isna().all():
                continue  # chosen on the very samples that are reported: such scores tell no difference
            told = replace(table, measure=measure._replace(overlap=overlaps[table.keys[index]]))
            best, reference = (best_in(table, index, own, is_kind) for is_kind in (is_neighborhood, is_pointwise))
            rivals = (best.line_index, reference.line_index) if best and reference else None
            headlines.append((f"{label}{words}", tell(told, index, rivals, units)))
        content += Content(headlines, [figure] if table.entries.best.any() else [], [table])
        content += differences(table, own, overlaps, words, units)
        content += cost(own, file_name("cost", name, words), f"Cost{words}")
    return content


def differences(
    table: Table, cells: pd.DataFrame, overlaps: Mapping[str, float], words: str, units: str | None
) -> Content:
    """Paired differences from the pointwise activation that validates best, and their adjusted p-values."""
    chosen = {index: best_in(table, index, cells, is_pointwise) for index in range(len(table.columns))}
    references = {index: entry for index, entry in chosen.items() if entry is not None}
    gaps = paired_with(table, references, overlaps.__getitem__)
    if not gaps:
        return Content()
    listed = ", ".join(f"{entry.column}: {entry.line}" for entry in references.values())
    tuned = " on splits that are not reported" if has_tuning(cells) else " on the reported splits"
    shown = difference_table(
        table,
        gaps,
        name=file_name(table.name, "differences"),
        title=f"Differences from the best pointwise activation{words}",
        axis="Difference of test scores (points)",
        caption=SEED_DIFFERENCES.format(listed) if units else DIFFERENCES.format(tuned, listed),
    )
    adjusted = holm([gap.p_unlike() for gap in gaps.values()])
    p_values = replace(
        shown,
        name=file_name(table.name, "p-values"),
        title=f"Adjusted p-values{words}",
        measure=Measure("", "Adjusted p-value", 3),
        entries=with_values(table, {index: {"mean": p, "runs": 1} for index, p in zip(gaps, adjusted, strict=True)}),
        caption=ADJUSTED,
    )
    figure = Figure(shown.name, shown.title, shown.caption, shown)
    return Content(figures=[figure], tables=[shown], more_tables=[p_values])


def best_in(table: Table, index: int, cells: pd.DataFrame, is_kind: Callable[[str], bool]) -> Any:
    """The network of a kind that validates best in a column, on splits that are not reported where all have some.

    None where there is no such network.
    """
    own = cells[cells.level == table.keys[index]]
    names = zip(own.method, own.hops, strict=True)
    scores = dict(zip(names, own.tuning if has_tuning(own) else own.validation, strict=True))
    column = table.networks[table.networks.column_index == index].itertuples()
    known = [entry for entry in column if is_kind(entry.method) and not math.isnan(scores[entry.method, entry.hops])]
    return max(known, key=lambda entry: scores[entry.method, entry.hops], default=None)


def has_tuning(cells: pd.DataFrame) -> bool:
    """Return whether all networks have scores of splits that choose and are not reported."""
    return bool(cells.tuning.notna().all())


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
        | {"column": COST[index], "column_index": index, "mean": float(value), "runs": 1}
        for line, cell in enumerate(ranked)
        for index, value in enumerate((cell["parameters"], cell["exchanges"], 1000 * cell["seconds"]))
    ]
    measure = Measure("", f"Cost on {title_of(level)}", 0)
    pooled = " and ".join(cell["line"] for cell in ranked if cell["method"] in POOLING)
    caption = WHOLE_COST + (ALSO_POOLED.format(pooled) if pooled else "")
    table = Table(name, f"{title} on {title_of(level)}", measure, COST, entries_of(records), caption, with_runs=False)
    return Content(tables=[table])
