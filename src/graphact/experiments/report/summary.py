"""Mean and spread of the runs of a cell."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

SCIENTIFIC_FROM = 1e5


@dataclass(frozen=True)
class Summary:
    """What is reported of several numbers. Those that are not finite are counted and left out of mean and spread.

    Attributes:
        mean: mean of the finite numbers, None if there are none.
        std: sample standard deviation (divisor n - 1) of the finite numbers, None if there are fewer than two.
        runs: how many numbers there are.
        not_finite: how many of them are NaN or infinite.
    """

    mean: float | None
    std: float | None
    runs: int
    not_finite: int = 0


def summarize(values: Iterable[float]) -> Summary:
    """Mean and sample standard deviation, the same in whatever order the numbers come.

    Example:
        >>> from graphact.experiments.report.summary import summarize
        >>> summarize([1.0, 3.0, float("nan")])
        Summary(mean=2.0, std=1.4142135623730951, runs=3, not_finite=1)
    """
    every = list(values)
    finite = sorted(value for value in every if math.isfinite(value))
    return Summary(
        mean=statistics.fmean(finite) if finite else None,
        std=statistics.stdev(finite) if len(finite) > 1 else None,
        runs=len(every),
        not_finite=len(every) - len(finite),
    )


def number(value: float, digits: int) -> str:
    """A number with so many decimals, or in scientific notation where they would be noise.

    Example:
        >>> from graphact.experiments.report.summary import number
        >>> number(73.14, 1), number(-0.04, 1), number(123456789.0, 1)
        ('73.1', '0.0', '1.23e+08')
    """
    if abs(value) >= SCIENTIFIC_FROM:
        return f"{value:.3g}"
    return f"{value:z.{digits}f}"


def spread(mean: float | None, std: float | None, digits: int) -> str:
    """A mean with its standard deviation as tables show it."""
    if mean is None:
        return "diverged"
    return number(mean, digits) if std is None else f"{number(mean, digits)} ± {number(std, digits)}"
