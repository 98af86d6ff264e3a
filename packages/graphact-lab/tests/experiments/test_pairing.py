"""Paired differences and their intervals."""

import math

import numpy as np
import pytest
import scipy.stats

from graphact_lab.statistics import choose, difference


def rows(values, **place):
    return [
        {"method": "a", "value": value, **{name: at[n] for name, at in place.items()}} for n, value in enumerate(values)
    ]


def test_interval_over_graphs_is_students_on_their_means():
    rng = np.random.default_rng(0)
    values, other = rng.normal(1, 1, (6, 5)), rng.normal(0, 1, (6, 5))
    graphs, splits = np.divmod(np.arange(30), 5)
    place = {"graph": graphs.tolist(), "split": splits.tolist()}
    found = difference(rows(values.ravel(), **place), rows(other.ravel(), **place))
    means = (values - other).mean(1)
    low, high = scipy.stats.t.interval(0.95, 5, means.mean(), scipy.stats.sem(means))
    assert (found.mean - found.margin, found.mean + found.margin) == pytest.approx((low, high))
    assert (found.runs, found.units) == (30, 6)
    assert found.effect == pytest.approx(means.mean() / means.std(ddof=1))
    assert found.wins == pytest.approx((values > other).mean())


def test_interval_over_splits_of_one_data_set_is_wider():
    values = [0.9, 1.0, 1.1, 0.8]
    place = {"graph": [None] * 4, "split": range(4)}
    found = difference(rows(values, **place), 0.0, overlap=1 / 8)
    expected = scipy.stats.t.ppf(0.975, 3) * np.std(values, ddof=1) * math.sqrt(1 / 4 + 1 / 8)
    assert found.margin == pytest.approx(expected)
    assert found.is_certain


def test_one_unit_says_nothing():
    found = difference(rows([1.0, 2.0], graph=[0, 0], split=[0, 1]), 0.0)
    assert found.margin == math.inf
    assert not found.is_certain


def test_other_places_and_doubles_are_refused():
    ours, theirs = rows([1.0, 2.0], graph=[0, 1]), rows([1.0, 2.0], graph=[0, 2])
    with pytest.raises(ValueError, match="same graphs, splits and nodes, got 2 and 2 runs of which 1 are common"):
        difference(ours, theirs)
    with pytest.raises(ValueError, match="one method in one setting, got two at"):
        difference(rows([1.0, 2.0], graph=[0, 0]), 0.0)
    with pytest.raises(ValueError, match="first must have rows, got none"):
        difference([], 0.0)
    with pytest.raises(ValueError, match="overlap must be given for splits of one data set"):
        difference(rows([1.0, 2.0], graph=[None, None], split=[0, 1]), 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_diverged_runs_are_refused(value):
    with pytest.raises(ValueError, match="values must be finite numbers, got 1 of 3 pairs"):
        difference(rows([1.0, value, 2.0], graph=[0, 1, 2]), 0.0)


def test_a_negative_overlap_is_refused():
    with pytest.raises(ValueError, match="overlap must be a number from 0, got -0.1"):
        difference(rows([1.0, 2.0], graph=[None, None], split=[0, 1]), 0.0, overlap=-0.1)


def test_equal_methods_have_no_effect():
    ours = rows([1.0, 2.0], graph=[0, 1])
    assert difference(ours, ours).effect == 0
    assert difference(ours, rows([0.0, 1.0], graph=[0, 1])).effect == math.inf


def test_seeds_are_units_of_their_own():
    ours = [{**row, "seed": seed} for seed in (0, 1) for row in rows([1.0 + seed, 2.0], graph=[0, 1])]
    assert difference(ours, 0.0).units == 4


def test_choose():
    table = [{"method": "relu", "features": 8}, {"method": "relu", "features": 2}, {"method": "max-ga", "features": 8}]
    assert choose(table, method="relu", features=8) == table[:1]
    assert choose(table, features=8) == [table[0], table[2]]
