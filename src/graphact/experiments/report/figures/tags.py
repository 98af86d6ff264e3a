"""What stands at the lines of references: a letter, or the name itself."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from graphact.experiments.report.figures.scale import Scale
from graphact.experiments.report.methods import GREY

CLOSE = 0.045  # of the axis
MANY = 3  # tags that have room at one place
EDGE = 0.08  # where a name in the middle would reach beyond the axis


def write_tags(axes: Any, tags: Sequence[tuple[float, str]], scale: Scale, *, vertical: bool) -> None:
    """Write tags at their values, at the end of a vertical axis or above a horizontal one.

    Those outside of the scale are left out; those too close to each other share a place.
    """
    groups: list[list[tuple[float, str]]] = []
    for value, tag in sorted(tags):
        if not scale.low <= value <= scale.high:
            continue
        place = share(value, scale)
        if groups and place - groups[-1][-1][0] < CLOSE:
            groups[-1].append((place, tag))
        else:
            groups.append([(place, tag)])
    for group in groups:
        place = fmean(place for place, _ in group)
        x, y = (1.012, place) if vertical else (place, 1.01)
        axes.text(
            x,
            y,
            together([tag for _, tag in sorted(group, reverse=vertical)]),
            transform=axes.transAxes,
            color=GREY,
            weight="bold",
            fontsize=7.5,
            ha="left" if vertical or place < EDGE else "center",
            va="center" if vertical else "bottom",
        )


def together(tags: Sequence[str]) -> str:
    """Tags that share a place; of many, the first ones and dots for at least two."""
    return ", ".join(tags if len(tags) <= MANY + 1 else [*tags[:MANY], "…"])


def share(value: float, scale: Scale) -> float:
    """Where a value lies between the ends of a scale, from 0 to 1."""
    if scale.logarithmic:
        return math.log(value / scale.low) / math.log(scale.high / scale.low)
    return (value - scale.low) / (scale.high - scale.low)
