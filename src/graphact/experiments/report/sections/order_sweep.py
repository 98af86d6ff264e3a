"""Methods over the filter order: figures 2a and 2c, their tables, and what was learned."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.figures.charts import Figure, describe, line_chart, on_thin_lines
from graphact.experiments.report.grid import Grid
from graphact.experiments.report.sections.section import file_name
from graphact.experiments.report.sections.sentences import headline
from graphact.experiments.report.sections.sweep import feature_counts, over_order
from graphact.experiments.report.sections.weights import learned_weights
from graphact.experiments.report.tables.table import BEST, Table, table_of


@dataclass(frozen=True)
class OrderSweep:
    """What a block shows of the sweep."""

    grids: tuple[Grid, ...]
    headlines: tuple[tuple[str, str], ...]
    figures: tuple[Figure, ...]
    tables: tuple[Table, ...]
    weights: tuple[Table, ...]
    more_tables: tuple[Table, ...]


def order_sweep(experiment: str, cells: Sequence[Cell], *, number: str, name: str, caption: str) -> OrderSweep:
    """The largest number of features in a figure and a table, the others in tables of their own.

    Args:
        experiment: the experiment.
        cells: its cells, all under the same condition.
        number: the figure's number in the paper.
        name: beginning of the names of its files.
        caption: what the figure shows.
    """
    counts: Sequence[int | None] = feature_counts(cells) or [None]
    largest = counts[0]
    grids = {features: over_order(experiment, cells, features) for features in counts}
    tables = []
    for features, grid in grids.items():
        own_name = file_name(number, name) if features == largest else file_name(number, name, f"f{features}")
        title = f"{number} in numbers: {words_of(features)}"
        tables.append(table_of(grid, name=own_name, title=title, caption=BEST if grid.has_models else ""))
    main = grids[largest]
    chart = line_chart(main, "Filter order K")
    figure = Figure(
        name=tables[0].name,
        title=f"{number}: {words_of(largest)}",
        caption=f"{caption}{on_thin_lines(chart)}",
        alt=describe("Line chart", main, "over the filter order K", tables[0].title),
        chart=chart,
    )
    column, label = main.columns[0]
    where = f"{label}, F = {largest}" if largest else label
    weights = learned_weights(
        cells, name=name, setting=lambda cell: f"K = {cell.order}, F = {cell.features}", headline=where
    )
    return OrderSweep(
        grids=tuple(grids.values()),
        headlines=((where, headline(main, column)),),
        figures=(figure,) if main.has_models else (),
        tables=tuple(tables[:1]),
        weights=weights.shown,
        more_tables=(*tables[1:], *weights.folded),
    )


def words_of(features: int | None) -> str:
    """What is shown."""
    return "error over the filter order" + (f", F = {features}" if features else "")
