"""How much of what is shown has been run."""

from collections.abc import Sequence
from typing import NamedTuple

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.grid import Grid
from graphact.experiments.report.tables.table import MISSING


class Progress(NamedTuple):
    """Counts of networks' results.

    Attributes:
        cells: places for networks in the tables.
        filled: those with at least one run.
        expected: runs, if every place had as many replicas as occur in the fullest column of its grid.
        done: runs that there are.
        not_finite: those of them that diverged.
    """

    cells: int
    filled: int
    expected: int
    done: int
    not_finite: int

    @property
    def percent(self) -> int:
        """The share of the expected runs that is done; 100 where nothing is missing, and only there."""
        if self.expected == 0:
            return 0
        return 100 if self.done == self.expected else min(99, 100 * self.done // self.expected)

    @property
    def sentence(self) -> str:
        """The counts in words."""
        if self.filled == 0:
            return f"No network has a result yet; a cell without result shows {MISSING}."
        left_out = " did not end in a finite number and are left out of the means."
        lost = f" {self.not_finite:,} of them{left_out}" if self.not_finite else ""
        if self.percent == 100:
            return (
                f"Complete: {self.done:,} results of networks in {self.cells} "
                f"cell{'' if self.cells == 1 else 's'} of the tables.{lost}"
            )
        return (
            f"Partial, {self.percent} % of what is shown: {self.done:,} of {self.expected:,} results of networks, in "
            f"{self.filled} of {self.cells} cells of the tables; a cell without result shows {MISSING}.{lost}"
        )


def progress_of(grid: Grid) -> Progress:
    """Count the places and runs of one grid.

    A line that only the paper has is expected to be run, too, unless we ran the method with other hops.
    """
    ours = {line.variant.method for line in grid.models if line.variant and line.cells}
    lines = [line for line in grid.models if line.cells or (line.variant and line.variant.method not in ours)]
    columns = [[line.cells.get(key) for line in lines] for key, _ in grid.columns]
    replicas = {False: 0, True: 0}
    for column in columns:  # each counts its own: films are read at different nodes
        count = len({run.replica for cell in column if cell for run in cell.runs})
        replicas[is_repeated(column)] = max(replicas[is_repeated(column)], count)
    cells = [cell for column in columns for cell in column if cell]
    return Progress(
        cells=sum(len(column) for column in columns),
        filled=len(cells),
        expected=sum(len(column) * replicas[is_repeated(column)] for column in columns),
        done=sum(len(cell.runs) for cell in cells),
        not_finite=sum(cell.summary.not_finite for cell in cells),
    )


def is_repeated(column: Sequence[Cell | None]) -> bool:
    """Whether runs of a column are repeated over realizations, as results on graphs with lost links are."""
    return any(run.realization is not None for cell in column if cell for run in cell.runs)


def progress_over(grids: Sequence[Grid]) -> Progress:
    """Count the places and runs of several grids."""
    return Progress(*(sum(values) for values in zip(*map(progress_of, grids), strict=True)))
