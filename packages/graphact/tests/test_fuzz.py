"""A few seconds of tests/fuzz.py, always the same cases; how findings are made small."""

import pytest
import torch

from fuzz import SCENARIOS, describe, run
from support import file_cases
from support.drawing import Draw, kind_of, outcome, shrink

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch about layouts, of NumPy about files without content
CASES = {"graphs": 40, "activations": 40, "filters": 20, "networks": 40, "trained edges": 20}


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


@pytest.mark.parametrize("reader", file_cases.READERS)
def test_damaged_files_are_refused_or_read_right(reader):
    fixed = {"reader": list(file_cases.READERS).index(reader)}
    for number in range(8 if reader in ("checkpoint", "temperatures") else 20):
        _, error = outcome(SCENARIOS["damaged files"], number, fixed)
        assert error is None, describe("damaged files", number, fixed)


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
