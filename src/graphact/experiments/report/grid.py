"""A grid of cells: methods down, settings across. Every table and figure is drawn from one."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.measures import Measure, cost
from graphact.experiments.report.methods import Variant
from graphact.experiments.report.paper import Published, PublishedTable, published

Columns = tuple[tuple[Hashable, str], ...]
EVERY_COLUMN = None


@dataclass(frozen=True)
class GridLine:
    """One network or baseline: its cells by column, and the published numbers by column.

    Attributes:
        label: what stands before the line.
        variant: method and hops of a network, None for a baseline.
        cells: our results by column; a column without result is not there.
        paper: the published results by column.
        constant: whether this is one result that holds for every column.
    """

    label: str
    variant: Variant | None
    cells: Mapping[Hashable, Cell]
    paper: Mapping[Hashable, Published] = field(default_factory=dict)
    constant: bool = False

    def mean(self, column: Hashable) -> float | None:
        """Our mean in a column, if there is one."""
        return self.cells[column].summary.mean if column in self.cells else None


@dataclass(frozen=True)
class Grid:
    """Columns (key and label), lines of networks in the paper's order, lines of baselines from worst to best."""

    measure: Measure
    columns: Columns
    models: tuple[GridLine, ...]
    baselines: tuple[GridLine, ...]

    @property
    def has_models(self) -> bool:
        """Whether any network has a finite result."""
        return any(line.mean(column) is not None for line in self.models for column, _ in self.columns)

    def best(self, lines: Iterable[GridLine], column: Hashable) -> GridLine | None:
        """The line with the best mean in a column."""
        means = [(line, mean) for line in lines if (mean := line.mean(column)) is not None]
        return min(means, key=lambda item: cost(self.measure, item[1]))[0] if means else None


def make_grid(
    measure: Measure,
    models: Iterable[tuple[Hashable, Cell]],
    baselines: Iterable[tuple[Hashable, Cell]],
    column_label: Callable[[Hashable], str],
    *,
    model_label: Callable[[Cell], str] | None = None,
    baseline_label: Callable[[Cell], str] | None = None,
    paper: PublishedTable | None = None,
    column_order: Sequence[Hashable] = (),
) -> Grid:
    """Arrange cells, each with the key of its column.

    Args:
        measure: what the cells measure.
        models: cells of networks; columns are the keys that occur among them.
        baselines: cells of baselines; one under ``EVERY_COLUMN`` holds for all that have none of their own.
        column_label: the text above a column.
        model_label: the text before a network's line; by default the method with its hops.
        baseline_label: the text before a baseline's line; by default its name.
        paper: published numbers; its methods have a line even where we have no result.
        column_order: columns that come first, in this order; the columns where there is no network at all.
    """
    by_variant: dict[tuple[Variant, str], dict[Hashable, Cell]] = {}
    for key, cell in models:
        variant = Variant(cell.method, cell.hops)
        label = variant.label if model_label is None else model_label(cell)
        by_variant.setdefault((variant, label), {})[key] = cell
    by_name: dict[str, dict[Hashable, Cell]] = {}
    for key, cell in baselines:
        by_name.setdefault(cell.method if baseline_label is None else baseline_label(cell), {})[key] = cell

    keys = keys_of(by_variant.values()) or set(column_order) or keys_of(by_name.values()) or {EVERY_COLUMN}
    ordered = sorted(keys, key=position_in(column_order))
    for variant in paper_only(paper or {}, [variant for variant, _ in by_variant]):
        by_variant[(variant, variant.label)] = {}
    networks = [
        GridLine(label, variant, cells, published(paper or {}, variant.method, variant.hops))
        for (variant, label), cells in by_variant.items()
    ]
    simple = [baseline_line(name, cells, ordered) for name, cells in by_name.items()]
    return Grid(
        measure,
        columns=tuple((key, "any setting" if key is EVERY_COLUMN else column_label(key)) for key in ordered),
        models=tuple(sorted(networks, key=lambda line: (line.variant.rank if line.variant else (), line.label))),
        baselines=tuple(sorted(simple, key=lambda line: (-badness(measure, line), line.label))),
    )


def baseline_line(name: str, cells: Mapping[Hashable, Cell], columns: Sequence[Hashable]) -> GridLine:
    """A baseline over the columns, filled with the result that holds for all of them, if there is one."""
    everywhere = cells.get(EVERY_COLUMN)
    filled = {column: cell for column in columns if (cell := cells.get(column, everywhere)) is not None}
    return GridLine(name, None, filled, constant=set(cells) == {EVERY_COLUMN})


def paper_only(paper: PublishedTable, ours: Iterable[Variant]) -> list[Variant]:
    """The published methods that we have no result for."""
    ours = list(ours)
    return [
        Variant(method, hops)
        for method, hops in paper
        if not any(variant.method == method and hops in (None, variant.hops) for variant in ours)
    ]


def badness(measure: Measure, line: GridLine) -> float:
    """How far down a baseline is, by its mean over the columns."""
    means = [cell.summary.mean for cell in line.cells.values() if cell.summary.mean is not None]
    return cost(measure, fmean(means)) if means else math.inf


def keys_of(lines: Iterable[Mapping[Hashable, Cell]]) -> set[Hashable]:
    """The columns that lines have a result of their own for."""
    return {key for cells in lines for key in cells if key is not EVERY_COLUMN}


def position_in(order: Sequence[Hashable]) -> Callable[[Hashable], tuple[int, float, str]]:
    """A key for sorting columns: the given order first, then numbers, then texts."""

    def rank(key: Hashable) -> tuple[int, float, str]:
        if key in order:
            return order.index(key), 0.0, ""
        return (len(order), float(key), "") if isinstance(key, int | float) else (len(order) + 1, 0.0, str(key))

    return rank
