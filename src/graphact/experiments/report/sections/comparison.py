"""Blocks that set our results beside a table of the paper: Tables 1 and 2."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.figures.charts import Figure, describe, dot_chart
from graphact.experiments.report.grid import Grid, make_grid
from graphact.experiments.report.measures import MEASURES
from graphact.experiments.report.paper import PublishedTable
from graphact.experiments.report.sections.facts import facts_of
from graphact.experiments.report.sections.progress import progress_over
from graphact.experiments.report.sections.section import Block, file_name
from graphact.experiments.report.sections.sentences import headline
from graphact.experiments.report.sections.weights import learned_weights
from graphact.experiments.report.tables.table import BEST, Table, table_of
from graphact.experiments.report.words import capitalized

Setting = tuple[int | None, ...]

SIGNS_EXPLAINED = "✓ inside, ▲ above, ▼ below the paper's mean ± standard deviation."


@dataclass(frozen=True)
class Comparison:
    """A table of the paper.

    Attributes:
        experiment: the experiment it belongs to.
        number: its number in the paper.
        title: what it shows.
        paper: its numbers.
        column: the key of a cell's column; a baseline under ``EVERY_COLUMN`` holds for all.
        column_label: the text above a column.
        column_order: the paper's columns.
        setting: what a cell has beyond method and column; every setting has a table of its own.
        setting_label: a setting in words.
        headline_columns: which columns the summary speaks of.
    """

    experiment: str
    number: str
    title: str
    paper: PublishedTable
    column: Callable[[Cell], Hashable]
    column_label: Callable[[Hashable], str]
    column_order: Sequence[Hashable]
    setting: Callable[[Cell], Setting]
    setting_label: Callable[[Setting], str]
    headline_columns: slice


def comparison_block(comparison: Comparison, preset: str, protocol: str, cells: Sequence[Cell]) -> Block:
    """Tables and figures of one preset and protocol."""
    models = [cell for cell in cells if cell.is_model]
    settings = sorted({comparison.setting(cell) for cell in models}, key=lambda key: [value or -1 for value in key])
    several = len(settings) > 1

    def words(setting: Setting | None) -> str:
        label = comparison.setting_label(setting) if several and setting else ""
        return f", {label}" if label else ""

    name = file_name(comparison.experiment, preset, protocol)
    tables, figures, headlines, grids = [], [], [], []
    every: Sequence[Setting | None] = settings or [None]
    for setting in every:
        grid = grid_of(comparison, cells, setting)
        own_name = file_name(name, words(setting))
        table = comparison_table(comparison, grid, own_name, words(setting))
        grids.append(grid)
        tables.append(table)
        if grid.has_models:
            figures.append(comparison_figure(comparison, grid, own_name, words(setting), table.title))
        told = grid.columns[comparison.headline_columns]
        headlines += [(f"{label}{words(setting)}", headline(grid, column)) for column, label in told]
    weights = learned_weights(
        models,
        name=name,
        setting=lambda cell: comparison.column_label(comparison.column(cell)) + words(comparison.setting(cell)),
        headline=headlines[0][0],
    )
    return Block(
        preset=preset,
        protocol=protocol,
        headlines=tuple(headlines),
        progress=progress_over(grids),
        facts=facts_of(cells),
        figures=tuple(figures),
        tables=(*tables, *weights.shown),
        more_tables=weights.folded,
    )


def grid_of(comparison: Comparison, cells: Sequence[Cell], setting: Setting | None) -> Grid:
    """The grid of one setting; baselines belong to the settings that they do not contradict."""

    def fits(cell: Cell) -> bool:
        return setting is None or all(
            own is None or own == wanted for own, wanted in zip(comparison.setting(cell), setting, strict=True)
        )

    return make_grid(
        MEASURES[comparison.experiment],
        [(comparison.column(cell), cell) for cell in cells if cell.is_model and comparison.setting(cell) == setting],
        [(comparison.column(cell), cell) for cell in cells if not cell.is_model and fits(cell)],
        comparison.column_label,
        paper=comparison.paper,
        column_order=comparison.column_order,
    )


def comparison_table(comparison: Comparison, grid: Grid, name: str, words: str) -> Table:
    """Ours beside the paper's."""
    table = table_of(
        grid, name=file_name(comparison.number, name), title=f"{comparison.number}: {comparison.title}{words}"
    )
    compared = sum(table.count(mark) for mark in ("inside", "above", "below"))
    if not compared:
        return table
    caption = f"{SIGNS_EXPLAINED} Inside: {table.count('inside')} of {compared} cells that the paper has, too. {BEST}"
    return table_of(grid, name=table.name, title=table.title, caption=caption)


def comparison_figure(comparison: Comparison, grid: Grid, name: str, words: str, table: str) -> Figure:
    """The same as dots."""
    return Figure(
        name=file_name("figure", name),
        title=f"{capitalized(comparison.title)}{words}",
        caption=(
            "Filled markers are ours, hollow ones the paper's; bars reach one standard deviation to either side. "
            "Dotted lines are baselines that need no network."
        ),
        alt=describe("Dot chart", grid, "by activation", table),
        chart=dot_chart(grid),
    )
