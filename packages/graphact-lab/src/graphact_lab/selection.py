"""Nested selection: settings are chosen by validation scores alone, and judged on test samples that chose nothing."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from graphact_lab.protocols import TrainingJob

if TYPE_CHECKING:
    from graphact.training.fleet import FleetResult

Row = dict[str, Any]


class Point(NamedTuple):
    """A point of the grid, the same for all methods that are compared."""

    rate: float
    decay: float
    dropout: float


class TrainingTrial(NamedTuple):
    """One model to train: with these settings, on this replica (a split, or a fold)."""

    point: Point
    replica: int


Train = Callable[[Sequence[TrainingTrial]], "FleetResult"]


def grid(rates: Sequence[float], decays: Sequence[float], dropouts: Sequence[float]) -> list[Point]:
    """All combinations, in a fixed order; of two points that validate equally well, the first is chosen."""
    return [Point(*values) for values in product(rates, decays, dropouts)]


def choose(points: Sequence[Point], validation: Sequence[Sequence[float]]) -> Point:
    """Return the point with the highest mean validation score; one with a run that diverged is chosen last.

    Args:
        points: the grid.
        validation: of each point, the scores on the replicas that choose.

    Example:
        >>> points = grid([0.01, 0.001], [0.0], [0.5])
        >>> choose(points, [[70.0, 80.0], [76.0, 75.0]]).rate
        0.001
    """
    means = [fmean(scores) for scores in validation]
    worths = [mean if math.isfinite(mean) else -math.inf for mean in means]
    return points[worths.index(max(worths))]


def tuning_score(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """The mean validation score of the chosen point on the splits that choose and are not reported.

    ``rows`` are all those of one method in one setting. None where no such splits were run: then settings were chosen
    on the very splits that are reported, or there was nothing to choose.
    """
    for row in rows:
        if row.get("tuning") and (row.get("settings") or {}).get("tuning_splits"):
            means = [fmean(scores) for scores in row["tuning"]]
            return max((mean for mean in means if math.isfinite(mean)), default=None)
    return None


def nested(
    train: Train, points: Sequence[Point], tuning: Sequence[int], reporting: Sequence[int]
) -> tuple[list[Row], list[list[float]]]:
    """Choose settings and report with them; return parts of rows, and the validation scores of each point.

    With replicas for tuning, the point with the best mean validation score on them is trained on the others. Without,
    each replica that is reported takes the point that is best on its own validation samples. Test scores of tuning
    replicas are never looked at, and those of reported ones only after the choice.

    Args:
        train: trains trials, all of which are independent of each other, and so may be one fleet.
        points: the grid.
        tuning, reporting: replicas, none in common.
    """
    if set(tuning) & set(reporting):
        raise ValueError(f"tuning and reporting must share no replica, got {sorted(set(tuning) & set(reporting))}")

    def by_point(replicas: Sequence[int]) -> list[list[list[float]]]:
        """Test scores, validation scores and best epochs, each by point and replica."""
        found = train([TrainingTrial(point, replica) for point in points for replica in replicas])
        width, kinds = len(replicas), (found.test, found.validation, found.best_epoch)
        return [[list(values[at : at + width]) for at in range(0, len(values), width)] for values in kinds]

    chosen_by: list[list[float]] = []
    if tuning and len(points) > 1:
        chosen_by = by_point(tuning)[1]
        points = [choose(points, chosen_by)]
    test, validation, epochs = by_point(reporting)
    rows = []
    for place, replica in enumerate(reporting):
        point = choose(points, [[scores[place]] for scores in validation])
        kinds = {"value": test, "validation": validation, "best_epoch": epochs}
        values = {name: kind[points.index(point)][place] for name, kind in kinds.items()}
        rows.append({"split": replica, **values, "chosen": point._asdict()})
    return rows, validation if len(points) > 1 else chosen_by


def nested_rows(job: TrainingJob, train: Train, network: Any, metric: str) -> list[Row]:
    """Return the rows of a job whose settings are chosen by nested selection; ``network`` is one of those it trains."""
    protocol = job.protocol
    reporting = range(protocol.tuning_splits, protocol.tuning_splits + protocol.splits)
    points = grid(protocol.rates, protocol.decays, protocol.dropouts)
    rows, validation = nested(train, points, range(protocol.tuning_splits), reporting)
    rows = [network_row(network, metric) | row for row in rows]
    rows[0]["tuning"] = validation  # of each grid point on each split that chooses
    return rows


def network_row(network: Any, metric: str) -> Row:
    """Return what the rows of a network have in common, whatever it was tested on."""
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return {"metric": metric, "parameters": parameters, "exchanges": network.exchanges, "beta": None, "weights": None}
