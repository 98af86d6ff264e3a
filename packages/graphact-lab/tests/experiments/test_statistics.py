"""Inference against independent oracles: scipy's tests, brute force, textbook numbers, and simulation."""

import math
from itertools import product

import numpy as np
import pytest
import scipy.stats

from graphact_lab.statistics import Estimate, bootstrap_interval, estimate, holm, published

VALUES = np.random.default_rng(0).normal(0.4, 1.0, 9).tolist()


@pytest.mark.parametrize("null", [-0.5, 0.0, 0.7])
def test_p_values_are_those_of_scipys_t_test(null):
    found = estimate(VALUES)
    for ours, alternative in [(found.p_unlike, "two-sided"), (found.p_above, "greater"), (found.p_below, "less")]:
        expected = scipy.stats.ttest_1samp(VALUES, null, alternative=alternative).pvalue
        assert ours(null) == pytest.approx(expected, rel=1e-12)


def test_interval_is_that_of_scipys_t_test():
    for confidence in (0.5, 0.9, 0.95, 0.99):
        expected = scipy.stats.ttest_1samp(VALUES, 0.0).confidence_interval(confidence)
        assert estimate(VALUES).interval(confidence) == pytest.approx((expected.low, expected.high))


def test_difference_of_independent_means_is_welchs():
    others = np.random.default_rng(1).normal(0.0, 3.0, 5).tolist()
    found = estimate(VALUES).minus(estimate(others))
    expected = scipy.stats.ttest_ind(VALUES, others, equal_var=False)
    assert found.degrees == pytest.approx(expected.df)
    assert found.p_unlike() == pytest.approx(expected.pvalue)
    low, high = expected.confidence_interval(0.95)
    assert found.interval() == pytest.approx((low, high))


def test_equivalence_is_where_the_90_percent_interval_lies_inside():
    rng = np.random.default_rng(2)
    decisions = set()
    for _ in range(200):
        found = estimate(rng.normal(rng.uniform(-3, 3), 0.8, 8).tolist())
        low, high = found.interval(0.9)
        inside, outside = low > -1 and high < 1, low > 1 or high < -1
        assert (found.p_within(1.0) < 0.05) == inside
        assert (found.p_outside(1.0) < 0.1) == outside
        decisions.add((inside, outside))
    assert len(decisions) == 3


def test_margins_must_be_positive():
    for margin in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="margin must be a positive number"):
            estimate(VALUES).p_within(margin)
        with pytest.raises(ValueError, match="margin must be a positive number"):
            estimate(VALUES).p_outside(margin)


def closed_test(p_values):
    """Holm by definition: the largest Bonferroni p of all sets of hypotheses that hold a hypothesis."""
    count = len(p_values)
    sets = [[i for i in range(count) if chosen[i]] for chosen in product((0, 1), repeat=count)]
    bonferroni = {tuple(some): min(1.0, len(some) * min(p_values[i] for i in some)) for some in sets if some}
    return [max(p for some, p in bonferroni.items() if i in some) for i in range(count)]


def test_holm_is_the_closure_of_bonferroni():
    rng = np.random.default_rng(3)
    for _ in range(50):
        p_values = (rng.uniform(0, 1, 6) ** 4).tolist()
        assert holm(p_values) == pytest.approx(closed_test(p_values))
    assert holm([]) == []


@pytest.mark.parametrize(("count", "effect"), [(10, 0.9960), (20, 0.6604), (34, 0.4952)])
def test_detectable_effects_are_those_of_tables_of_power(count, effect):
    """Paired t test, two-sided 0.05, power 0.8: 20 and 34 pairs are the textbook sizes for d of 0.66 and 0.5."""
    values = np.random.default_rng(5).normal(0, 1, count)
    found = estimate(((values - values.mean()) / values.std(ddof=1)).tolist())
    assert found.detectable() == pytest.approx(effect, abs=6e-3)


def test_correction_for_overlap_covers_where_plain_intervals_do_not():
    """Means of random splits of one data set against the mean over data sets."""
    rng = np.random.default_rng(7)
    covered = {0.0: 0, 0.25: 0}
    for _ in range(600):
        data = rng.normal(0, 1, 100)
        values = [rng.permutation(data)[:20].mean() for _ in range(15)]  # 20 for testing, 80 for training
        for overlap in covered:
            low, high = estimate(values, overlap=overlap).interval()
            covered[overlap] += low <= 0 <= high
    assert covered[0.0] / 600 < 0.8
    assert covered[0.25] / 600 == pytest.approx(0.95, abs=0.04)


def test_published_numbers_are_uncertain():
    ours = estimate(VALUES)
    exact = ours.minus(Estimate(0.0, 0.0, 1, 9))
    uncertain = ours.minus(published(0.0, 1.0, share=0.3, units=9))
    assert exact.p_unlike() == pytest.approx(ours.p_unlike())
    assert uncertain.standard_error == pytest.approx(math.hypot(ours.standard_error, 0.3))
    assert uncertain.margin > exact.margin


def test_bootstrap_intervals_are_near_students_for_normal_units_and_lean_for_skewed_ones():
    rng = np.random.default_rng(8)
    values = rng.normal(1, 1, 200).tolist()
    assert bootstrap_interval(values) == pytest.approx(estimate(values).interval(), abs=0.02)
    skewed = rng.exponential(1, 30) ** 2
    low, high = bootstrap_interval(skewed.tolist())
    assert high - skewed.mean() > 1.2 * (skewed.mean() - low)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval([2.0] * 5) == (2.0, 2.0)
    with pytest.raises(ValueError, match="at least 3 units"):
        bootstrap_interval([1.0, 2.0])


def test_a_single_unit_says_nothing_and_equal_units_everything():
    one, equal = estimate([3.0]), estimate([3.0] * 4)
    assert one.interval() == (-math.inf, math.inf)
    assert (one.p_unlike(), one.p_within(1.0), one.detectable()) == (1.0, 1.0, math.inf)
    assert (equal.p_unlike(), equal.p_unlike(3.0), equal.p_within(4.0)) == (0.0, 1.0, 0.0)
    assert one.minus(equal).p_unlike() == 1.0


def test_wrong_values_are_refused():
    with pytest.raises(ValueError, match="at least one unit, got none"):
        estimate([])
    with pytest.raises(ValueError, match="overlap must be a number from 0, got -1"):
        estimate([1.0, 2.0], overlap=-1)
