"""Tables over settings: what they compare is what validates best, and a lead is certain or not said."""

import numpy as np
import pytest

from evidence import Cell, Evidence, Study
from grids import Grids
from quotes import STALE

PRELU = Cell("model", "prelu", None, 8, 4, ())
NOISE = np.random.default_rng(0).normal(0, 1, 10)


def rows_of(values, validation):
    return [
        {"graph": n, "split": 0, "node": 0, "seed": 0, "value": value, "validation": validation}
        for n, value in enumerate(values)
    ]


@pytest.fixture
def grids():
    """Two settings: in the first PReLU validates best of the pointwise ones, and FIR tests best."""

    def cells(gain):
        return {
            Cell("model", "fir", None, 8, 4, ()): rows_of(60 + NOISE, 50),
            PRELU: rows_of(55 + NOISE[::-1], 55),
            Cell("model", "max-ga", 2, 8, 4, ()): rows_of(55 + gain + NOISE, 60),
            Cell("model", "median-l", 2, 8, 4, ()): rows_of(70 + NOISE, 65),
        }

    made = Evidence("nowhere")
    made.cells = {
        Study("source-localization", "paper", "converged"): cells(9),
        Study("source-localization", "paper", "converged, layers 3"): cells(0),
    }
    return Grids(made)


def test_gains_are_over_what_validates_best(grids):
    one, other = grids.other_settings().lines
    gain = np.mean(55 + 9 + NOISE - (55 + NOISE[::-1]))
    assert one[0] == "as in Table 1: two layers, F = 8"
    assert one[-2].startswith(f"PReLU **{gain:+.1f} ±")
    assert other[0] == "three layers"
    assert "**" not in other[-2]
    assert one[1:5] == [f"{60 + NOISE.mean():.1f}", "not run", "not run", f"{55 + NOISE.mean():.1f}"]
    assert grids.max_ga_leads_not() == ["three layers"]
    del grids.evidence.cells[Study("source-localization", "paper", "converged, layers 3")][PRELU]
    assert grids.other_settings().lines[1][-2:] == ["", ""]  # the strongest is missing
    assert grids.max_ga_leads_not() == []
    assert len(grids.leads()) == 1


def test_the_lead_is_that_of_the_best_of_both_families_everywhere(grids):
    assert set(grids.leads()) == {"as in Table 1: two layers, F = 8", "three layers"}
    for lead in grids.leads().values():
        assert lead.mean == pytest.approx(15)
    assert grids.seeing_lead_everywhere()
    cells = grids.evidence.cells[Study("source-localization", "paper", "converged, layers 3")]
    cells[Cell("model", "median-l", 2, 8, 4, ())] = rows_of(55 + 5 * NOISE, 65)
    assert not grids.seeing_lead_everywhere()


@pytest.mark.parametrize(("layers", "holds"), [(3, True), (2, False), (4, False)])
def test_the_limit_of_depth_is_said_as_long_as_it_is_one(grids, monkeypatch, layers, holds):
    monkeypatch.setattr("grids.most_layers", lambda _evidence: layers)
    assert grids.depth_limit().startswith("Pointwise networks had at most three layers") is holds
    assert (STALE in grids.depth_limit()) is not holds
