"""A table of means: what stands in it, whatever it is rendered as."""

from collections.abc import Hashable
from dataclasses import dataclass

from graphact.experiments.report.grid import Grid, GridLine
from graphact.experiments.report.paper import Published
from graphact.experiments.report.summary import Summary, spread

MISSING = "\N{EN DASH}"
ROUNDING = 1e-9
BEST = "The best network of a column is in bold."
SIGNS = {"inside": "✓", "above": "▲", "below": "▼"}


@dataclass(frozen=True)
class Entry:
    """One place of a table: our result and the paper's, either of which may be missing."""

    ours: Summary | None
    paper: Published | None = None
    best: bool = False

    @property
    def against_paper(self) -> str | None:
        """Where our mean lies: "inside" the paper's mean ± standard deviation, "above" or "below" it."""
        if self.ours is None or self.ours.mean is None or self.paper is None:
            return None
        difference = self.ours.mean - self.paper.mean
        if abs(difference) <= self.paper.std + ROUNDING:
            return "inside"
        return "above" if difference > 0 else "below"

    def ours_text(self, digits: int) -> str:
        """Our mean and standard deviation."""
        return MISSING if self.ours is None else spread(self.ours.mean, self.ours.std, digits)

    def paper_text(self, digits: int) -> str:
        """The paper's mean and standard deviation."""
        return MISSING if self.paper is None else spread(self.paper.mean, self.paper.std, digits)

    @property
    def runs_text(self) -> str:
        """How many runs, and how many of them diverged."""
        if self.ours is None:
            return ""
        lost = f", {self.ours.not_finite} not finite" if self.ours.not_finite else ""
        return f"{self.ours.runs} run{'' if self.ours.runs == 1 else 's'}{lost}"


@dataclass(frozen=True)
class TableLine:
    """A line of a table and whether it is a baseline."""

    label: str
    entries: tuple[Entry, ...]
    is_baseline: bool = False


@dataclass(frozen=True)
class Table:
    """A table with everything its renderings need.

    Attributes:
        name: name of its files, without ending.
        title: what it shows, in a few words.
        caption: how to read it.
        corner: what the lines are, above the first column.
        columns: what stands above the other columns.
        lines: the lines; networks first, then baselines.
        digits: decimals of its numbers.
        unit: what the numbers are.
        with_runs: whether every place says how many runs it stands for.
    """

    name: str
    title: str
    caption: str
    corner: str
    columns: tuple[str, ...]
    lines: tuple[TableLine, ...]
    digits: int
    unit: str
    with_runs: bool = True

    @property
    def has_paper(self) -> bool:
        """Whether any place shows a published number."""
        return any(entry.paper is not None for line in self.lines for entry in line.entries)

    def count(self, mark: str) -> int:
        """How many of our results lie "inside", "above" or "below" the paper's spread."""
        return sum(entry.against_paper == mark for line in self.lines for entry in line.entries)


def table_of(grid: Grid, *, name: str, title: str, caption: str = "", corner: str = "Activation") -> Table:
    """The table of a grid; the best network of each column is marked."""
    best = {column: grid.best(grid.models, column) for column, _ in grid.columns}

    def entry(line: GridLine, column: Hashable) -> Entry:
        cell = line.cells.get(column)
        return Entry(cell.summary if cell else None, line.paper.get(column), best=line is best[column])

    return Table(
        name=name,
        title=title,
        caption=caption,
        corner=corner,
        columns=tuple(label for _, label in grid.columns),
        lines=tuple(
            TableLine(line.label, tuple(entry(line, column) for column, _ in grid.columns), line.variant is None)
            for line in (*grid.models, *grid.baselines)
        ),
        digits=grid.measure.digits,
        unit=grid.measure.axis,
    )
