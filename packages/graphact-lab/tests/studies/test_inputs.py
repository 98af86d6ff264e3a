"""Raw and prepared inputs: means and differences are those of plain arithmetic, and what was not run is said."""

import pytest

from evidence import Cell, Evidence, Study
from grids import Grids

FILMS = ("toy-story", "contact", "return-of-the-jedi")


def rows_of(values, **row):
    usual = {
        "graph": None,
        "node": 0,
        "seed": 0,
        "validation": 1.0,
        "parameters": 1234,
        "exchanges": 5,
        "seconds": 0.25,
    }
    return [{**usual, "split": split, "value": value, **row} for split, value in enumerate(values)]


@pytest.fixture
def grids():
    made = Evidence("nowhere")
    films = {
        Cell("model", method, hops, 32, 4, (("film", film),)): rows_of([base + n + move for move in moves], node=n)
        for method, hops, base, moves in (("relu", None, 1.0, (0, 1, 0, 1)), ("max-ga", 1, 0.5, (0.01, 1, 0, 0.99)))
        for n, film in enumerate(FILMS)
    }
    made.cells = {
        Study("recommendation", "paper", "converged"): films,
        Study("consensus", "best", "best"): {
            Cell("model", "relu", None, 32, 10, ()): rows_of([0.5, 0.6], graph=0),
            Cell("model", "tanh", None, 32, 10, ()): rows_of([0.4], graph=0, validation=0.5),
            Cell("model", "max-ga", 1, 32, 10, ()): rows_of([0.1, 0.2], graph=0),
        },
    }
    return Grids(made)


def line(grid, label):
    (found,) = [dict(zip(grid.heads, cells, strict=True)) for cells in grid.lines if cells[0] == label]
    return found


def test_films_are_averaged_and_compared_with_relu(grids):
    films = "recommendation, three films, raw"
    assert line(grids.inputs(), "ReLU")[films] == "2.500"
    assert line(grids.inputs(), "Max G.A.")[films].startswith("2.000 (**-0.500 ± 0.0")


def test_what_was_not_run_is_said(grids):
    found = line(grids.inputs(), "tanh")
    assert found["consensus, prepared"].startswith("0.4000 (")
    assert {text for head, text in found.items() if head not in ("", "consensus, prepared")} == {"not run"}


def test_costs_are_those_of_the_rows(grids):
    assert line(grids.costs(), "Max G.A.")["recommendation, three films"] == "1,234 / 5 / 0.25 s"
    assert line(grids.costs(), "Max G.A.")["consensus"] == "not run"


def test_max_ga_is_compared_with_the_pointwise_network_that_validates_best(grids):
    assert grids.over_pointwise("consensus").startswith("tanh: -0.3000")
    relu = grids.evidence.cells[Study("consensus", "best", "best")][Cell("model", "relu", None, 32, 10, ())]
    relu[1]["validation"] = 0.0  # on a split that tanh was not run on
    assert grids.over_pointwise("consensus").startswith("tanh")
    relu[0]["validation"] = 0.4
    assert grids.over_pointwise("consensus").startswith("ReLU: -0.4000")
