"""Inference on means of graphs or splits: intervals, tests, Holm's adjustment, power, paired comparisons.

Everything stands on one :class:`Estimate`: a mean with a standard error and the degrees of freedom of Student's t.
Units are what was drawn independently: graphs, or splits of one data set with the correction for their overlap.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, NamedTuple

Row = Mapping[str, Any]

REPLICA = ("graph", "split", "node", "realization", "seed")
MIN_UNITS = 3  # graphs or splits that an interval needs
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
        """True if the 95 % interval excludes 0."""
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


@dataclass(frozen=True, kw_only=True)
class Difference(Estimate):
    """The first method minus the second, or a method minus a number; its effect is Cohen's d of pairs."""

    wins: float  # share of the runs in which the first has the larger value, ties counted by half
    runs: int  # number of pairs
    values: tuple[float, ...]  # of the units


def difference(first: Iterable[Row], second: Iterable[Row] | float, *, overlap: float | None = None) -> Difference:
    r"""Compare two methods run by run, or one method with a number.

    Runs on one graph are not independent: where graphs were drawn, differences are averaged over each graph, and the
    interval is Student's over the graphs. Splits of one data set share samples; there the variance of the mean is
    :math:`s^2 (1/n + n_{test} / n_{train})`, as Nadeau and Bengio (2003) correct it.

    Args:
        first: rows of a method in one setting.
        second: rows of another one on the same graphs, splits and nodes; or a number.
        overlap: test samples over training samples of a split; needed where one data set was split.

    Raises:
        ValueError: the methods differ in graphs, splits or nodes, a run diverged, or overlap is missing.

    Example:
        >>> rows = [{"graph": graph, "split": 0, "value": 70.0 + graph} for graph in range(5)]
        >>> print(difference(rows, 70.0))
        +2 ± 2
    """
    ours = by_place(first)
    if isinstance(second, (int, float)):
        pairs = {place: value - second for place, value in ours.items()}
    else:
        theirs = by_place(second)
        if ours.keys() != theirs.keys():
            raise ValueError(
                f"both methods must have the same graphs, splits and nodes, got {len(ours)} and {len(theirs)} runs of "
                f"which {len(ours.keys() & theirs.keys())} are common"
            )
        pairs = {place: ours[place] - theirs[place] for place in ours}
    if not pairs:
        raise ValueError("first must have rows, got none")
    if lost := sum(not math.isfinite(value) for value in pairs.values()):
        raise ValueError(f"values must be finite numbers, got {lost} of {len(pairs)} pairs with one that is not")
    if overlap is not None and not overlap >= 0:
        raise ValueError(f"overlap must be a number from 0, got {overlap}")
    drawn = all(graph is not None for graph, *_ in pairs)
    if not drawn and overlap is None:
        raise ValueError("overlap must be given for splits of one data set: test samples over training samples")
    units: dict[object, list[float]] = defaultdict(list)
    for (graph, split, *_, seed), value in pairs.items():
        units[seed, graph if drawn else split].append(value)
    means = [fmean(values) for values in units.values()]
    found = estimate(means, overlap=0.0 if drawn or overlap is None else overlap)
    wins = fmean((value > 0) + 0.5 * (value == 0) for value in pairs.values())
    return Difference(**vars(found), wins=wins, runs=len(pairs), values=tuple(means))


def common_difference(one: Any, other: Any, overlap: float | None) -> Difference | None:
    """The difference of two entries of tables over the runs with a finite value that both have; None without such runs.

    An entry has the ``value`` of each of its runs, and the ``replica``, which are the values of :data:`REPLICA`.
    """
    pairs = (zip(entry.replica, entry.value, strict=True) for entry in (one, other))
    ours, theirs = ({replica: value for replica, value in pair if math.isfinite(value)} for pair in pairs)
    both = sorted(ours.keys() & theirs.keys(), key=str)
    rows = [
        [dict(zip(REPLICA, replica, strict=True), value=found[replica]) for replica in both] for found in (ours, theirs)
    ]
    return difference(*rows, overlap=overlap) if both else None


def place_of(row: Row) -> tuple[Any, ...]:
    """Graph, split, node, realization and seed of a run."""
    return tuple(row.get(name) for name in REPLICA)


def by_place(rows: Iterable[Row]) -> dict[tuple[Any, ...], float]:
    """The value at each graph, split and node."""
    found: dict[tuple[Any, ...], float] = {}
    for row in rows:
        place = place_of(row)
        if place in found:
            raise ValueError(
                f"rows must be of one method in one setting, got two at {dict(zip(REPLICA, place, strict=True))}"
            )
        found[place] = float(row["value"])
    return found


def choose(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with the given values, such as ``method="relu", features=8``; a condition is given as a dictionary."""
    return [row for row in rows if all(row.get(name) == value for name, value in values.items())]
