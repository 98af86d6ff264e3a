"""Quality for each exchange: choices by validation alone, comparisons run by run, against plain arithmetic."""

from statistics import fmean

import pytest
from evidence import Cell, Evidence, Study
from exchanges import champion, compare, family_of, front, gains, networks

USUAL = Study("source-localization", "paper", "converged")
DEEP = Study("source-localization", "paper", "converged, layers 3")
OTHER = Study("source-localization", "paper", "converged, shift laplacian")


def rows_of(exchanges, values, validation, layers=2):
    return [
        {"graph": n, "split": 0, "node": 0, "seed": 0, "value": value, "validation": validation, "exchanges": exchanges}
        | {"settings": {"layers": layers}}
        for n, value in enumerate(values)
    ]


@pytest.fixture
def evidence():
    """Networks that a family may send: their number of exchanges, test values on four graphs, validation score."""
    made = Evidence("nowhere")
    made.cells = {
        USUAL: {
            Cell("model", "relu", None, 8, 4, ()): rows_of(8, [50, 51, 52, 53], 50),
            Cell("model", "tanh", None, 8, 4, ()): rows_of(8, [60, 61, 62, 64], 45),  # tests better, validates worse
            Cell("model", "max-l", 1, 8, 1, ()): rows_of(4, [70, 70, 71, 72], 70),
            Cell("model", "max-ga", 1, 8, 1, ()): rows_of(6, [71, 73, 71, 72], 69),
            Cell("model", "max-ga", 1, 4, 1, ()): rows_of(6, [99, 99, 99, 99], 99),  # of another width
            Cell("baseline", "chance", None, None, None, ()): rows_of(0, [25] * 4, 25),
        },
        DEEP: {Cell("model", "max-ga", 1, 8, 1, ()): rows_of(9, [80, 81, 83, 84], 81, layers=3)},
        OTHER: {Cell("model", "max-ga", 1, 8, 1, ()): rows_of(1, [99] * 4, 99)},
    }
    return made


def test_networks_differ_in_order_hops_depth_and_activation_alone(evidence):
    found = {(one.cell.method, one.layers): one.exchanges for one in networks(evidence, "source-localization")}
    assert found == {("relu", 2): 8, ("tanh", 2): 8, ("max-l", 2): 4, ("max-ga", 2): 6, ("max-ga", 3): 9}


def test_a_family_sends_what_validates_best_within_the_budget(evidence):
    own = networks(evidence, "source-localization")
    chosen = {
        (key, budget): getattr(champion([one for one in own if one.family == key], budget, True), "words", None)
        for key in ("pointwise", "adaptive")
        for budget in (5, 8, 9)
    }
    assert chosen == {
        ("pointwise", 5): None,
        ("pointwise", 8): "ReLU, K = 4",
        ("pointwise", 9): "ReLU, K = 4",
        ("adaptive", 5): None,
        ("adaptive", 8): "Max G.A. (1), K = 1",
        ("adaptive", 9): "Max G.A. (1), K = 1, 3 layers",
    }


def test_gains_are_paired_also_between_networks_of_different_depth(evidence):
    found = {budget: gain for budget, _, gain in gains(evidence, "source-localization", (4, 8, 9))}
    assert found[4] is None  # no pointwise network takes so few
    assert found[8].mean == pytest.approx(fmean([20, 19, 19, 19]))
    assert found[9].mean == pytest.approx(fmean([30, 30, 31, 31]))
    assert found[9].units == 4


def test_lower_is_better_for_errors(evidence):
    own = networks(evidence, "source-localization")
    assert champion(own, 9, higher=False).cell.method == "tanh"
    assert [one.cell.method for one in front(own, higher=True)] == ["max-l", "max-ga"]


def test_the_same_network_gains_nothing(evidence):
    one = networks(evidence, "source-localization")[0]
    assert compare(evidence, one, one).mean == 0


@pytest.mark.parametrize(
    ("method", "family"), [("max-ga", "adaptive"), ("median-l", "localized"), ("silu", "pointwise")]
)
def test_families_are_told_by_names(method, family):
    assert family_of(method) == family
