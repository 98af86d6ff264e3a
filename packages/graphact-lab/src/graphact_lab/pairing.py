"""Paired comparisons: by how much one method differs from another on the same graphs, splits and nodes."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from graphact_lab.statistics import Estimate, estimate

Row = Mapping[str, Any]

REPLICA = ("graph", "split", "node", "realization", "seed")
FEWEST_UNITS = 3  # graphs or splits that an interval needs


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
        ValueError: the methods have not the same graphs, splits and nodes; a run diverged; or overlap is missing.

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
