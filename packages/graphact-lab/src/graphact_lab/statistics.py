"""Inference on means of graphs or splits: intervals, tests for a difference and for none, Holm, and what could be seen.

Everything stands on one :class:`Estimate`: a mean with a standard error and the degrees of freedom of Student's t.
Units are what was drawn independently: graphs, or splits of one data set with the correction for their overlap.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

CONFIDENCE, ALPHA, POWER = 0.95, 0.05, 0.8


@dataclass(frozen=True)
class Estimate:
    """A mean of units, or a difference of two such means."""

    mean: float
    standard_error: float  # infinite where there is a single unit
    degrees: float  # of freedom
    units: int  # graphs, or splits where there is one graph
    spread: float = math.nan  # sample standard deviation of the units; of an estimate that is no mean of units, NaN

    @property
    def margin(self) -> float:
        """Half the width of the 95 % confidence interval."""
        return self.reach(CONFIDENCE)

    @property
    def is_certain(self) -> bool:
        """Whether the 95 % interval leaves out 0."""
        return abs(self.mean) > self.margin

    @property
    def effect(self) -> float:
        """Mean over standard deviation of the units: Cohen's d of pairs, where units are paired differences."""
        always_alike = math.copysign(math.inf, self.mean) if self.mean else 0.0
        return self.mean / self.spread if self.spread else always_alike

    def reach(self, confidence: float) -> float:
        """Half the width of Student's interval; infinite for a single unit."""
        from scipy.stats import t

        if not math.isfinite(self.standard_error):
            return math.inf
        return float(t.ppf((1 + confidence) / 2, self.degrees)) * self.standard_error

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Student's interval around the mean."""
        return self.mean - self.reach(confidence), self.mean + self.reach(confidence)

    def p_above(self, bound: float = 0.0) -> float:
        """The one-sided p-value of the claim that the true mean lies above a bound."""
        from scipy.stats import t

        if not math.isfinite(self.standard_error):
            return 1.0
        if self.standard_error == 0:
            return 0.0 if self.mean > bound else 1.0
        return float(t.sf((self.mean - bound) / self.standard_error, self.degrees))

    def p_below(self, bound: float = 0.0) -> float:
        """The one-sided p-value of the claim that the true mean lies below a bound."""
        return Estimate(-self.mean, self.standard_error, self.degrees, self.units).p_above(-bound)

    def p_unlike(self, bound: float = 0.0) -> float:
        """The two-sided p-value of the claim that the true mean is another number."""
        return min(1.0, 2 * min(self.p_above(bound), self.p_below(bound)))

    def p_within(self, margin: float) -> float:
        """The p-value of equivalence, by two one-sided tests: the true mean lies between -margin and margin.

        It is below 0.05 exactly where the 90 % interval lies inside.
        """
        if not margin > 0:
            raise ValueError(f"margin must be a positive number, got {margin}")
        return max(self.p_above(-margin), self.p_below(margin))

    def p_outside(self, margin: float) -> float:
        """The two-sided p-value of the claim that the true mean is further from 0 than the margin."""
        if not margin > 0:
            raise ValueError(f"margin must be a positive number, got {margin}")
        return min(1.0, 2 * min(self.p_above(margin), self.p_below(-margin)))

    def detectable(self, power: float = POWER, alpha: float = ALPHA) -> float:
        """The smallest true difference that a two-sided test of such data would have found with this probability.

        It depends on the standard error alone, not on the mean that was found.
        """
        from scipy.optimize import brentq
        from scipy.stats import nct, t

        if not math.isfinite(self.standard_error):
            return math.inf
        limit = float(t.ppf(1 - alpha / 2, self.degrees))

        def missing(shift: float) -> float:
            return float(nct.sf(limit, self.degrees, shift) + nct.cdf(-limit, self.degrees, shift)) - power

        high = 2.0 * limit + 2.0
        return float(brentq(missing, 1e-9, high)) * self.standard_error

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference from an independent estimate, with Welch's degrees of freedom."""
        parts = [(one.standard_error**2, one.degrees) for one in (self, other)]
        variance = sum(part for part, _ in parts)
        degrees = min(self.degrees, other.degrees)
        if degrees and variance:
            degrees = variance**2 / sum(part**2 / own for part, own in parts)
        return Estimate(self.mean - other.mean, math.sqrt(variance), degrees, min(self.units, other.units))

    def __str__(self) -> str:
        return f"{self.mean:+.4g} ± {self.margin:.2g}"


class Summary(NamedTuple):
    """Mean and sample standard deviation (divisor n - 1) of numbers that are finite, NaN if they are too few."""

    mean: float
    std: float
    runs: int  # all numbers
    not_finite: int


def summarize(values: Iterable[float]) -> Summary:
    """Summarize numbers, to the same bits in whatever order they come.

    Example:
        >>> summarize([1.0, 3.0, float("nan")])
        Summary(mean=2.0, std=1.4142135623730951, runs=3, not_finite=1)
    """
    every = list(values)
    finite = sorted(value for value in every if math.isfinite(value))
    mean = fmean(finite) if finite else math.nan
    std = stdev(finite) if len(finite) > 1 else math.nan
    return Summary(mean, std, len(every), len(every) - len(finite))


def estimate(values: Sequence[float], *, overlap: float = 0.0) -> Estimate:
    r"""The mean of independent units, or of splits of one data set.

    Splits share samples, so that their mean varies more than that of as many independent units; its variance is
    :math:`s^2 (1/n + n_{test} / n_{train})` (Nadeau and Bengio 2003).

    Args:
        values: one for each unit.
        overlap: test samples over training samples of a split; 0 where units are independent.

    Example:
        >>> print(estimate([70.0, 71.0, 72.0, 73.0, 74.0]))
        +72 ± 2
    """
    if not values:
        raise ValueError("values must hold at least one unit, got none")
    if not overlap >= 0:
        raise ValueError(f"overlap must be a number from 0, got {overlap}")
    count = len(values)
    if count == 1:
        return Estimate(values[0], math.inf, 0, 1)
    spread = stdev(values)
    return Estimate(fmean(values), spread * math.sqrt(1 / count + overlap), count - 1, count, spread)


def published(mean: float, std: float, *, share: float, units: int) -> Estimate:
    """A mean that a paper gives with the standard deviation of its runs, as the uncertain number that it is.

    Args:
        mean: as printed.
        std: the standard deviation of the runs, as printed.
        share: standard error of the mean over that standard deviation. Runs on one graph are alike, so it is not
            ``1 / sqrt(runs)``; that of a repetition with the same design tells it.
        units: graphs or splits.
    """
    return Estimate(mean, std * share, units - 1, units)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values of one family of claims for their number (Holm 1979), in the order in which they come.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def bootstrap_interval(
    values: Sequence[float], *, confidence: float = CONFIDENCE, seed: int = 0
) -> tuple[float, float]:
    """The bias-corrected and accelerated bootstrap interval of the mean of independent units: a check of Student's.

    Where all units are alike, it is the one value they have.
    """
    import numpy as np
    from scipy.stats import bootstrap

    if len(values) < 3:
        raise ValueError(f"values must hold at least 3 units to draw from, got {len(values)}")
    if min(values) == max(values):
        return values[0], values[0]
    options: dict[str, Any] = {"confidence_level": confidence, "method": "BCa", "n_resamples": 9999}
    found = bootstrap((np.asarray(values),), np.mean, random_state=np.random.default_rng(seed), **options)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)
