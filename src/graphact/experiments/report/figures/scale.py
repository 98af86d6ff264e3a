"""The range of an axis: what is drawn, what is left outside of it, and whether it is logarithmic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphact.experiments.report.figures.charts import Reference

MARGIN = 0.06
NEAR = 0.35
LOGARITHMIC_FROM = 30.0


@dataclass(frozen=True)
class Scale:
    """The ends of an axis and whether it is logarithmic."""

    low: float
    high: float
    logarithmic: bool

    def position(self, reference: Reference) -> str:
        """Whether a reference is "on" the scale, or lies "above" or "below" it altogether."""
        means = [point.mean for point in reference.points]
        if min(means) > self.high:
            return "above"
        return "below" if max(means) < self.low else "on"


def scale_of(results: Sequence[tuple[float, float]], references: Sequence[Reference]) -> Scale:
    """A range that holds every result with its spread, and the references that are not far from them.

    A reference far from all results would press them into a line: it is named in the legend instead.
    Where means differ by a factor of 30 or more, the axis is logarithmic.
    """
    means = [mean for mean, _ in results]
    logarithmic = min(means) > 0 and max(means) / min(means) >= LOGARITHMIC_FROM
    if logarithmic:
        everything = means + [point.mean for one in references for point in one.points if point.mean > 0]
        return Scale(min(everything) / 1.5, max(everything) * 1.5, logarithmic=True)
    low = min(mean - std for mean, std in results)
    high = max(mean + std for mean, std in results)
    reach = max(NEAR * (high - low), 0.05 * abs(high), 1e-9)
    near = [p.mean for one in references for p in one.points if low - reach <= p.mean <= high + reach]
    low, high = min([low, *near]), max([high, *near])
    margin = MARGIN * max(high - low, 0.05 * abs(high), 1e-9)
    floor = 0.0 if min(means) >= 0 else low - margin
    return Scale(max(low - margin, floor), high + margin, logarithmic=False)


def set_scale(axis: Any, scale: Scale) -> None:
    """Give an axis its ends, and plain numbers where it is logarithmic."""
    if scale.logarithmic:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axis.axes.set(**{f"{axis.axis_name}lim": (scale.low, scale.high)})
