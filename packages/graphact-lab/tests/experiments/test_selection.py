"""Nested selection: what is chosen, on what, and that test samples have no say in it."""

import math
from types import SimpleNamespace

import pytest

from graphact_lab.selection import TrainingTrial, choose, grid, nested

POINTS = grid([0.1, 0.01], [0.0, 0.5], [0.2])


def scores(trials, validation, test):
    made = SimpleNamespace(test=[test(trial) for trial in trials], validation=[validation(trial) for trial in trials])
    made.best_epoch = [round(1000 * trial.point.rate) + trial.replica for trial in trials]
    return made


def test_the_grid_is_every_combination_in_a_fixed_order():
    expected = [(0.1, 0.0, 0.2), (0.1, 0.5, 0.2), (0.01, 0.0, 0.2), (0.01, 0.5, 0.2)]
    assert [tuple(point) for point in POINTS] == expected


def test_the_best_mean_is_chosen_the_first_of_equals_and_never_one_that_diverged():
    assert choose(POINTS, [[1.0, 5.0], [4.0, 4.0], [4.0, 4.0], [math.nan, 99.0]]) == POINTS[1]
    assert choose(POINTS, [[math.nan]] * 4) == POINTS[0]


def test_settings_are_chosen_on_tuning_replicas_and_reported_on_others():
    asked = []

    def train(trials):
        asked.append(list(trials))
        # on the replicas that report, other points would be better; they are not asked
        return scores(trials, lambda trial: trial.point.decay + (trial.replica > 1) * trial.point.rate, lambda t: 7.0)

    rows, validation = nested(train, POINTS, [0, 1], [2, 3, 4])
    assert asked[0] == [TrainingTrial(point, replica) for point in POINTS for replica in (0, 1)]
    assert asked[1] == [TrainingTrial(POINTS[1], replica) for replica in (2, 3, 4)]
    assert [row["split"] for row in rows] == [2, 3, 4]
    assert validation == [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0], [0.5, 0.5]]
    assert rows[0] == {
        **{"split": 2, "value": 7.0, "validation": 0.6, "best_epoch": 102},
        "chosen": {"rate": 0.1, "decay": 0.5, "dropout": 0.2},
    }


def test_without_tuning_replicas_each_chooses_for_itself():
    def validation(trial):
        return 10 * trial.point.rate if trial.replica == 0 else -trial.point.rate + trial.point.decay

    rows, table = nested(lambda trials: scores(trials, validation, lambda trial: 1.0), POINTS, [], [0, 1])
    assert [row["chosen"] for row in rows] == [POINTS[0]._asdict(), POINTS[3]._asdict()]
    assert table == [[validation(TrainingTrial(point, replica)) for replica in (0, 1)] for point in POINTS]


@pytest.mark.parametrize("tuning", [[0, 1], []])
def test_test_scores_have_no_say(tuning):
    def run(test):
        return nested(lambda trials: scores(trials, lambda t: t.point.rate, test), POINTS, tuning, [2, 3])[0]

    first, second = run(lambda trial: 1.0), run(lambda trial: -1e6 * trial.point.rate)
    assert [row["chosen"] for row in first] == [row["chosen"] for row in second]
    assert first != second


def test_one_point_needs_no_choice_and_replicas_are_never_shared():
    asked = []

    def train(trials):
        asked.append(len(trials))
        return scores(trials, lambda trial: 0.0, lambda trial: 0.0)

    assert len(nested(train, POINTS[:1], [0, 1], [2, 3])[0]) == 2
    assert asked == [2]
    with pytest.raises(ValueError, match=r"tuning and reporting must share no replica, got \[1\]"):
        nested(train, POINTS, [0, 1], [1, 2])
