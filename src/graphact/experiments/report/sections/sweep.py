"""Grids over a number: the filter order, or the level of a condition."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean

from graphact.experiments.report.cells import Cell
from graphact.experiments.report.grid import EVERY_COLUMN, Grid, make_grid
from graphact.experiments.report.measures import MEASURES

Setting = tuple[int, int, int]


def at_levels(cells: Iterable[Cell], name: str, default: float, *, prefer_named: bool) -> list[tuple[float, Cell]]:
    """Cells with the level of a condition; one that does not name it has the default level.

    Where the default level occurs both ways, named and not, one of the two is kept.
    """
    kept: dict[tuple[object, ...], tuple[float, Cell]] = {}
    for cell in cells:
        level = cell.level(name, default)
        key = (cell.kind, cell.method, cell.hops, cell.features, cell.order, level)
        if key not in kept or bool(cell.condition) == prefer_named:
            kept[key] = level, cell
    return list(kept.values())


def feature_counts(cells: Iterable[Cell]) -> list[int]:
    """The numbers of features that networks were run with, largest first."""
    return sorted({cell.features for cell in cells if cell.is_model and cell.features is not None}, reverse=True)


def over_order(experiment: str, cells: Sequence[Cell], features: int | None) -> Grid:
    """Methods over the filter order, with one number of features."""
    return make_grid(
        MEASURES[experiment],
        [(cell.order, cell) for cell in cells if cell.is_model and cell.features == features],
        [(cell.order, cell) for cell in cells if not cell.is_model and cell.features in (None, features)],
        lambda order: f"K = {order}",
    )


def best_settings(levels: Iterable[tuple[float, Cell]], default: float) -> list[tuple[float, Cell]]:
    """The networks of each method's best setting (hops, features and order), at every level.

    Of the settings that were run at other levels than the default one, the best has the lowest validation error at the
    default level; where that is not known for all of them, the lowest test error there; where that is not known
    either, the lowest mean test error over the levels.
    """
    by_method: dict[str, dict[Setting, dict[float, Cell]]] = {}
    for level, cell in levels:
        if cell.is_model:
            setting = (cell.hops or 0, cell.features or 0, cell.order or 0)
            by_method.setdefault(cell.method, {}).setdefault(setting, {})[level] = cell
    chosen: list[tuple[float, Cell]] = []
    for settings in by_method.values():
        swept = {setting: cells for setting, cells in settings.items() if set(cells) - {default}}
        if swept:
            chosen += lowest_error(swept, default).items()
    return chosen


def lowest_error(settings: Mapping[Setting, dict[float, Cell]], default: float) -> dict[float, Cell]:
    """The cells of the setting with the lowest error, the smallest setting among equals."""

    def over_all_levels(cells: dict[float, Cell]) -> float:
        means = [cell.summary.mean for cell in cells.values() if cell.summary.mean is not None]
        return fmean(means) if means else math.inf

    ordered = [settings[setting] for setting in sorted(settings)]
    at_default = [cells.get(default) for cells in ordered]
    for criterion in ("validation", "summary"):
        means = [getattr(cell, criterion).mean if cell else None for cell in at_default]
        known = [mean for mean in means if mean is not None]
        if len(known) == len(ordered):
            return ordered[known.index(min(known))]
    return min(ordered, key=over_all_levels)


def everywhere(cells: Iterable[Cell]) -> list[tuple[Hashable, Cell]]:
    """Baselines that hold for every column; the best of those that differ in the filter order alone."""
    best: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: math.inf if cell.summary.mean is None else cell.summary.mean):
        best.setdefault(cell.method, cell)
    return [(EVERY_COLUMN, cell) for cell in best.values()]
