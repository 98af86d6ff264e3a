"""Nested selection: settings are chosen by validation scores alone, and judged on test samples that chose nothing."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple, Protocol


class Point(NamedTuple):
    """A point of the grid, the same for all methods that are compared."""

    rate: float
    decay: float
    dropout: float


class TrainingTrial(NamedTuple):
    """One model to train: with these settings, on this replica (a split, or a fold)."""

    point: Point
    replica: int


class Scores(Protocol):
    """Results of training by trial: see :class:`graphact.training.FleetResult`."""

    @property
    def test(self) -> list[float]: ...

    @property
    def validation(self) -> list[float]: ...

    @property
    def best_epoch(self) -> list[int]: ...


Train = Callable[[Sequence[TrainingTrial]], Scores]


@dataclass(frozen=True)
class SelectedResult:
    """The result on one replica, with the settings that were chosen for it."""

    replica: int
    point: Point
    test: float
    validation: float
    best_epoch: int

    def row(self) -> dict[str, Any]:
        """As a part of a row of results."""
        values = {"value": self.test, "validation": self.validation, "best_epoch": self.best_epoch}
        return {"split": self.replica, **values, "chosen": self.point._asdict()}


def grid(rates: Sequence[float], decays: Sequence[float], dropouts: Sequence[float]) -> list[Point]:
    """All combinations, in a fixed order; of two points that validate equally well, the first is chosen."""
    return [Point(*values) for values in product(rates, decays, dropouts)]


def choose(points: Sequence[Point], validation: Sequence[Sequence[float]], *, higher_is_better: bool = True) -> Point:
    """The point with the best mean validation score; one with a run that diverged is chosen last.

    Args:
        points: the grid.
        validation: of each point, the scores on the replicas that choose.
        higher_is_better: whether a high score is good.

    Example:
        >>> points = grid([0.01, 0.001], [0.0], [0.5])
        >>> choose(points, [[70.0, 80.0], [76.0, 75.0]]).rate
        0.001
    """

    def worth(number: int) -> float:
        mean = fmean(validation[number])
        return -math.inf if not math.isfinite(mean) else mean if higher_is_better else -mean

    return points[max(range(len(points)), key=lambda number: (worth(number), -number))]


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
    train: Train,
    points: Sequence[Point],
    tuning: Sequence[int],
    reporting: Sequence[int],
    *,
    higher_is_better: bool = True,
) -> tuple[list[SelectedResult], list[list[float]]]:
    """Choose settings and report with them; return the outcomes, and the validation scores of each point.

    With replicas for tuning, the point with the best mean validation score on them is trained on the others. Without,
    each replica that is reported takes the point that is best on its own validation samples. Test scores of tuning
    replicas are never looked at, and those of reported ones only after the choice.

    Args:
        train: trains trials, all of which are independent of each other, and so may be one fleet.
        points: the grid.
        tuning, reporting: replicas, none in common.
        higher_is_better: whether a high score is good.
    """
    if set(tuning) & set(reporting):
        raise ValueError(f"tuning and reporting must share no replica, got {sorted(set(tuning) & set(reporting))}")
    if tuning and len(points) > 1:
        scores = train([TrainingTrial(point, replica) for point in points for replica in tuning]).validation
        validation = [scores[start : start + len(tuning)] for start in range(0, len(scores), len(tuning))]
        points = [choose(points, validation, higher_is_better=higher_is_better)]
    else:
        validation = []
    trials = [TrainingTrial(point, replica) for point in points for replica in reporting]
    found = train(trials)
    results = zip(trials, found.test, found.validation, found.best_epoch, strict=True)
    outcomes = {
        trial: SelectedResult(trial.replica, trial.point, test, validated, epoch)
        for trial, test, validated, epoch in results
    }
    if len(points) > 1:
        validation = [[outcomes[TrainingTrial(point, replica)].validation for replica in reporting] for point in points]
    chosen = [
        TrainingTrial(choose(points, [[row[place]] for row in validation], higher_is_better=higher_is_better), replica)
        if len(points) > 1
        else TrainingTrial(points[0], replica)
        for place, replica in enumerate(reporting)
    ]
    return [outcomes[trial] for trial in chosen], validation
