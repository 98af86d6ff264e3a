"""Methods over the level of a condition: figures 2b and 2d with their tables."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.figures.charts import Figure, describe, line_chart, on_thin_lines
from graphact.experiments.report.grid import Grid, make_grid
from graphact.experiments.report.measures import MEASURES
from graphact.experiments.report.methods import Variant
from graphact.experiments.report.sections.section import file_name
from graphact.experiments.report.tables.table import BEST, Table, table_of
from graphact.experiments.report.words import uncapitalized


@dataclass(frozen=True)
class LevelSweep:
    """What a block shows of the sweep: nothing where it was not run."""

    grids: tuple[Grid, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()


def level_sweep(
    experiment: str,
    models: Sequence[tuple[float, Cell]],
    baselines: Sequence[tuple[Hashable, Cell]],
    *,
    number: str,
    name: str,
    title: str,
    axis: str,
    column: str,
    caption: str,
    baseline_label: Callable[[Cell], str] | None = None,
) -> LevelSweep:
    """A figure and a table. The networks' order and features are in the title, or where they differ, at each line.

    Args:
        experiment: the experiment.
        models: cells of networks with their level.
        baselines: cells of baselines with their level.
        number: the figure's number in the paper.
        name: beginning of the names of its files.
        title: what is shown.
        axis: label of the horizontal axis.
        column: the text above a column, with {} in the place of the level.
        caption: how to read the figure.
        baseline_label: how a baseline is called.
    """
    if not models:
        return LevelSweep()
    cells = [cell for _, cell in models]
    common, own = settings_of(cells)
    grid = make_grid(
        MEASURES[experiment],
        models,
        baselines,
        lambda level: column.format(f"{level:g}" if isinstance(level, int | float) else level),
        model_label=lambda cell: ", ".join([Variant(cell.method, cell.hops).label, *own(cell)]),
        baseline_label=baseline_label,
    )
    words = ", ".join([title, *common])
    table = table_of(
        grid,
        name=file_name(number, name),
        title=f"{number} in numbers: {words}",
        caption=BEST if grid.has_models else "",
    )
    if not grid.has_models:
        return LevelSweep((grid,), (), (table,))
    alt = describe("Line chart", grid, f"over {uncapitalized(axis)}", table.title)
    chart = line_chart(grid, axis)
    figure = Figure(table.name, f"{number}: {words}", f"{caption}{on_thin_lines(chart)}", alt, chart)
    return LevelSweep((grid,), (figure,), (table,))


def settings_of(cells: Sequence[Cell]) -> tuple[list[str], Callable[[Cell], list[str]]]:
    """Filter order and features: in words what all networks share, and a function for what each has of its own."""
    names = {"order": "K", "features": "F"}
    shared = {name for name in names if len({getattr(cell, name) for cell in cells}) == 1}

    def words(cell: Cell, chosen: set[str]) -> list[str]:
        return [f"{letter} = {getattr(cell, name)}" for name, letter in names.items() if name in chosen]

    return words(cells[0], shared), lambda cell: words(cell, set(names) - shared)
