"""A few seconds of tests/fuzz.py, always the same cases; its oracle against loops; how findings are made small."""

import numpy as np
import pytest
import torch

from fuzz import SCENARIOS, describe, run
from support import file_cases, oracle
from support.dense import Operator
from support.drawing import Draw, kind_of, outcome, shrink
from support.graphs import random_case

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about layouts, of NumPy about files without content
CASES = {
    "graphs": 25,
    "activations": 40,
    "neighborhoods": 25,
    "filters": 20,
    "networks": 20,
    "trained edges": 15,
    "refusals": 45,
}

FOUND = (  # once
    "graphs:530016324",  # a cycle of mixed weights, divided by another number than its radius
    "activations:8110006722",  # the oracle: float32 took 4^9 times the rounding errors of exponentials for exact
    "neighborhoods:8110009235",  # the oracle: row sums of a condition near 1,000 in float32
    "networks:8110013881",  # the oracle: the slope of tanh at 400
)


@pytest.fixture(autouse=True)
def _same_threads_afterwards():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_random_calls_agree_with_the_oracle(kind):
    for number in range(CASES[kind]):
        _, error = outcome(SCENARIOS[kind], number)
        assert error is None, describe(kind, number)


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_is_not_found_again(case):
    kind, _, number = case.rpartition(":")
    draw, error = outcome(SCENARIOS[kind], int(number))
    assert error is None, describe(kind, int(number))
    assert sum(draw.counts.values()) > 0


@pytest.mark.slow
def test_graphs_that_need_threads():
    assert outcome(SCENARIOS["threads"], 0)[1] is None


@pytest.mark.parametrize("reader", file_cases.READERS)
def test_damaged_files_are_refused_or_read_right(reader):
    fixed = {"reader": list(file_cases.READERS).index(reader)}
    for number in range(8 if reader in ("checkpoint", "temperatures") else 20):
        _, error = outcome(SCENARIOS["damaged files"], number, fixed)
        assert error is None, describe("damaged files", number, fixed)


@pytest.mark.parametrize("seed", range(12))
def test_the_dense_operators_agree_with_plain_loops(seed):
    case = random_case(seed)
    operator = Operator(torch.from_numpy(case.matrix), case.edges, False)
    rng = np.random.default_rng(seed)
    for op in ("max", "min", "median", "kernel"):
        for kind in ("graph_adaptive", "localized"):
            weights, closed = rng.normal(size=(3, case.x.shape[-1])), bool(rng.integers(2))
            expected = oracle.activation(kind, case.matrix, case.edges, case.x, 0.5, weights, op, 0.7, closed)
            found = operator.activation(kind, case.signal, 0.5, torch.from_numpy(weights), op, 0.7, closed)
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10, atol=1e-12)
    taps = rng.normal(size=(3, case.x.shape[-1], 2))
    found = operator.filter(case.signal, torch.from_numpy(taps))
    np.testing.assert_allclose(found.numpy(), oracle.graph_filter(case.matrix, case.x, taps), rtol=1e-10, atol=1e-12)


def wrong_at_three(draw):
    size, op = draw.integer("size", 0, 50), draw.choice("op", ("max", "min", "median"))
    assert size < 3, f"{op} of {size}"


def test_a_finding_is_made_as_small_as_it_gets():
    number = next(number for number in range(100) if outcome(wrong_at_three, number)[1] is not None)
    draw, error = shrink(wrong_at_three, number)
    assert draw.chosen == {"size": (3, 3), "op": (0, "max")}
    assert str(error).startswith("max of 3")
    assert kind_of(error) == kind_of(outcome(wrong_at_three, number)[1])


def test_setting_one_choice_leaves_the_others():
    for fixed in ({}, {"a": 0}):
        draw = Draw(5, fixed)
        first = draw.integer("a", 0, 10**6)
        assert first == (0 if fixed else Draw(5).integer("a", 0, 10**6))
        assert draw.integer("b", 0, 10**6) == Draw(5).integer("b", 0, 10**6)


def test_the_command_counts_and_reports(monkeypatch):
    monkeypatch.setitem(SCENARIOS, "graphs", wrong_at_three)
    lines = []
    counts, findings = run(0.005, 0, ["graphs"], log=lines.append)
    assert counts["cases of graphs"] > 10
    assert len(findings) == 1
    assert "max of 3" in findings[0]
    assert "--set 'size=3'" in findings[0]
