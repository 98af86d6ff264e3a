"""Quality for each exchange: choices by validation alone, comparisons run by run, against plain arithmetic."""

import math
from statistics import fmean

import pytest

from evidence import Cell, Evidence, NotRunError, Study
from exchanges import (
    candidates_of,
    champion,
    champions_of,
    compare,
    depth_first,
    family_of,
    front,
    gains,
    most_layers,
    networks,
    not_tried,
)

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
    found = {line.budget: line.gain for line in gains(evidence, "source-localization", (4, 8, 9))}
    assert found[4] is None  # no pointwise network takes so few
    assert found[8].mean == pytest.approx(fmean([20, 19, 19, 19]))
    assert found[9].mean == pytest.approx(fmean([30, 30, 31, 31]))
    assert found[9].units == 4


def test_networks_are_chosen_averaged_and_compared_on_the_runs_that_all_have(evidence):
    """ReLU has two graphs more, on which it is far better; none of its figures may rest on them."""
    cells = evidence.cells[USUAL]
    relu = Cell("model", "relu", None, 8, 4, ())
    cells[relu] = rows_of(8, [50, 51, 52, 53, 90, 90], 50)
    for row in cells[relu][4:]:
        row["validation"] = 95
    own = networks(evidence, "source-localization")
    assert {len(one.rows) for one in own} == {4}
    (line,) = gains(evidence, "source-localization", (8,))
    assert line.best["pointwise"].value == pytest.approx(51.5)
    assert line.best["pointwise"].validation == 50
    assert line.gain.mean == pytest.approx(line.chosen.value - line.best["pointwise"].value)
    cells[relu] = [{**row, "graph": row["graph"] + 9} for row in cells[relu]]
    with pytest.raises(NotRunError, match="no graph, split and node in common"):
        networks(evidence, "source-localization")


def test_lines_name_the_winner_and_the_networks_that_were_run(evidence):
    (line,) = champions_of(evidence, "source-localization", (8,))
    assert line == [
        "8",
        "ReLU, K = 4: 51.5 (of 2)",
        "Max L. (1), K = 1: 70.8 (of 1)",
        "Max G.A. (1), K = 1: 71.8 (of 1)",
        "Max L. (1), K = 1: **+19.2 ± 0.8**",
        "**+20.2 ± 2.4**",
    ]
    assert list(candidates_of(evidence, "source-localization")) == [
        "Pointwise: ReLU, tanh (K = 4).",
        "Localized: Max L. (1) (K = 1).",
        "Graph-adaptive: Max G.A. (1), Max G.A. (1) in 3 layers (K = 1).",
    ]
    cells = evidence.cells[USUAL]
    cells[Cell("model", "tanh", None, 8, 1, ())] = rows_of(2, [40] * 4, 40)
    missing = not_tried(evidence, "source-localization")
    assert missing["relu"] == [1]
    assert missing["prelu"] == [1, 4]
    assert "tanh" not in missing


def test_values_on_a_link_are_features_but_in_the_first_filter(evidence):
    found = {(one.cell.method, one.layers): one.values for one in networks(evidence, "source-localization")}
    assert found["relu", 2] == 4 + 4 * 8  # one value in each exchange of the first filter, eight in the second
    assert found["max-l", 2] == 1 + 3 * 8  # two activations and the second filter
    assert found["max-ga", 3] == 1 + 8 * 8
    cells = evidence.cells[USUAL]
    cells[Cell("model", "median-l", 2, 8, 1, ())] = rows_of(6, [90] * 4, 90)
    (median,) = [one for one in networks(evidence, "source-localization") if one.cell.method == "median-l"]
    assert median.values == math.inf  # that of a median over two hops depends on the degrees
    (line,) = gains(evidence, "source-localization", (40,), "values")
    assert line.best["localized"].cell.method == "max-l"


def test_the_deepest_pointwise_network_is_found(evidence):
    def most(family):
        return most_layers(evidence, ("source-localization",), family)

    assert (most("pointwise"), most("adaptive")) == (2, 3)
    evidence.cells[DEEP][Cell("model", "relu", None, 8, 1, ())] = rows_of(4, [70] * 4, 60, layers=4)
    assert most("pointwise") == 4


def test_depth_comes_first_where_the_best_pointwise_network_is_deeper_and_not_longer(evidence):
    def first():
        return depth_first(evidence, ("source-localization",))

    assert not first()
    evidence.cells[DEEP][Cell("model", "relu", None, 8, 4, ())] = rows_of(12, [70] * 4, 60, layers=3)
    assert not first()  # as long as the longest of two layers
    evidence.cells[DEEP][Cell("model", "relu", None, 8, 2, ())] = rows_of(6, [70] * 4, 61, layers=3)
    assert first()
    evidence.cells[USUAL][Cell("model", "elu", None, 8, 8, ())] = rows_of(16, [70] * 4, 62)
    assert not first()


def test_lower_is_better_for_errors(evidence):
    own = networks(evidence, "source-localization")
    assert champion(own, 9, higher=False).cell.method == "tanh"
    assert [one.cell.method for one in front(own, higher=True)] == ["max-l", "max-ga"]


def test_the_same_network_gains_nothing(evidence):
    one = networks(evidence, "source-localization")[0]
    assert compare(one, one).mean == 0


@pytest.mark.parametrize(
    ("method", "family"), [("max-ga", "adaptive"), ("median-l", "localized"), ("silu", "pointwise")]
)
def test_families_are_told_by_names(method, family):
    assert family_of(method) == family
