"""What a figure shows, as plain data."""

from dataclasses import dataclass

from graphact.experiments.report.grid import Grid, GridLine
from graphact.experiments.report.measures import Measure
from graphact.experiments.report.methods import Variant
from graphact.experiments.report.paper import Published
from graphact.experiments.report.summary import number
from graphact.experiments.report.words import uncapitalized


@dataclass(frozen=True)
class Point:
    """A mean at a place of the horizontal axis, with its standard deviation (0 where there is one run)."""

    x: float
    mean: float
    std: float


@dataclass(frozen=True)
class Series:
    """A network's means over the horizontal axis."""

    label: str
    variant: Variant
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Reference:
    """A baseline: its means over the horizontal axis, or one that holds everywhere."""

    label: str
    points: tuple[Point, ...]
    constant: bool


@dataclass(frozen=True)
class LineChart:
    """Means over a horizontal axis, one line for each network, baselines as references."""

    measure: Measure
    x_label: str
    series: tuple[Series, ...]
    references: tuple[Reference, ...]

    @property
    def xs(self) -> list[float]:
        """The places of the horizontal axis."""
        return sorted({point.x for series in self.series for point in series.points})


@dataclass(frozen=True)
class Dot:
    """One network in one setting: our result, the paper's, or both."""

    label: str
    variant: Variant
    ours: Point | None
    paper: Published | None


@dataclass(frozen=True)
class Panel:
    """One setting of a dot chart: networks from top to bottom, baselines as references."""

    title: str
    dots: tuple[Dot, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class DotChart:
    """Means along a horizontal axis, one panel for each setting."""

    measure: Measure
    panels: tuple[Panel, ...]


Chart = LineChart | DotChart


@dataclass(frozen=True)
class Figure:
    """A chart with its words.

    Attributes:
        name: name of its files, without ending.
        title: what it shows, in a few words.
        caption: how to read it.
        alt: what a reader who does not see it should know.
        chart: what is drawn.
    """

    name: str
    title: str
    caption: str
    alt: str
    chart: Chart


def line_chart(grid: Grid, x_label: str) -> LineChart:
    """The chart of a grid whose columns are numbers."""
    series = (Series(line.label, line.variant, points_of(line, grid)) for line in grid.models if line.variant)
    return LineChart(
        grid.measure,
        x_label,
        tuple(one for one in series if one.points),
        tuple(reference for line in grid.baselines if (reference := reference_of(line, grid)).points),
    )


def on_thin_lines(chart: LineChart) -> str:
    """A sentence for the caption where a method is drawn with several numbers of hops."""
    methods = [series.variant.method for series in chart.series]
    return " Thin lines: the same method with fewer hops." if len(set(methods)) < len(methods) else ""


def dot_chart(grid: Grid) -> DotChart:
    """The chart of a grid whose columns are settings to compare networks in."""
    panels = []
    for column, label in grid.columns:
        alone = Grid(grid.measure, ((column, label),), grid.models, grid.baselines)
        dots = (
            Dot(line.label, line.variant, next(iter(points_of(line, alone)), None), line.paper.get(column))
            for line in grid.models
            if line.variant
        )
        references = (reference_of(line, alone) for line in grid.baselines)
        shown = tuple(dot for dot in dots if dot.ours or dot.paper)
        panels.append(Panel(label, shown, tuple(one for one in references if one.points)))
    return DotChart(grid.measure, tuple(panels))


def reference_of(line: GridLine, grid: Grid) -> Reference:
    """A baseline as a reference."""
    return Reference(line.label, points_of(line, grid), line.constant)


def points_of(line: GridLine, grid: Grid) -> tuple[Point, ...]:
    """The finite means of a line, from left to right."""
    points = []
    for column, _ in grid.columns:
        if (mean := line.mean(column)) is not None:
            place = float(column) if isinstance(column, int | float) else 0.0
            points.append(Point(place, mean, line.cells[column].summary.std or 0.0))
    return tuple(points)


def describe(kind: str, grid: Grid, over: str, table: str) -> str:
    """A figure in a few sentences, for readers who do not see it."""
    sentences = [f"{kind} of {uncapitalized(grid.measure.axis)} {over}, {len(grid.models)} methods."]
    for column, label in grid.columns:
        if best := grid.best(grid.models, column):
            mean = number(best.cells[column].summary.mean or 0.0, grid.measure.digits)
            sentences.append(f"{label}: best is {best.label}, {mean}.")
    return " ".join([*sentences, f"All values are in the table “{table}”."])
