"""Its part of the report: nested selection as in the other benchmarks, and the optimistic protocol in a table apart."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from graphact_lab.descriptions import Measure
from graphact_lab.experiments.graph_classification.experiment import OPTIMISTIC, PUBLISHED, SETS
from graphact_lab.report.benchmark import benchmark
from graphact_lab.report.content import Content, file_name
from graphact_lab.report.tables import PublishedTable, make_table

CAPTION = (
    "Settings and epoch are the best on average on the folds that are reported: for comparison with published figures "
    "alone. Paper: DiGRAF (NeurIPS 2024), whose Max and Median have no shift."
)


def content(cells: pd.DataFrame, name: str, measure: Measure, *, overlaps: Mapping[str, float]) -> Content:
    """The section of cells of one preset and protocol."""
    is_optimistic = cells.level.str.endswith(OPTIMISTIC)
    made = Content() if is_optimistic.all() else benchmark(cells[~is_optimistic], name, measure, overlaps=overlaps)
    own = cells[is_optimistic]
    widths = sorted(own.features.unique(), reverse=True)
    for width in widths:
        words = f", F = {width}" if len(widths) > 1 else ""
        chosen = own[own.features == width]
        table = make_table(
            chosen.assign(column=chosen.level.str.removesuffix(OPTIMISTIC)),
            measure._replace(axis="Best mean test accuracy (%)"),
            name=file_name("optimistic", name, words),
            title=f"Optimistic protocol{words}",
            column_label=str,
            paper=published(set(chosen.method)),
            column_order=SETS,
        )
        made += Content(tables=[replace(table, caption=f"{CAPTION} {table.caption}")])
    return made


def published(methods: set[str]) -> PublishedTable:
    """Published means of activations by set; there are no standard deviations."""
    return {
        (method, None): {name: (mean, math.nan) for name, mean in zip(SETS, means, strict=True)}
        for method, means in PUBLISHED.items()
        if method in methods
    }
