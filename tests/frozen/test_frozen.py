"""Values that no later house may change; ``make.py`` says how they came about."""

from pathlib import Path

import pytest
import torch

from frozen import cases, values
from frozen import library as names

ABOUT, _ = values.stored()
KEPT = values.read()


@pytest.fixture(autouse=True)
def _as_made(real_start):
    """One thread, and the start of activations that users get, as when the values were made."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def marked(name):
    return pytest.param(name, marks=[pytest.mark.slow] if name in cases.SLOW else [], id=name.replace(" ", "-"))


@pytest.mark.parametrize("name", [marked(name) for name in cases.CASES])
# exporters and readers of data warn of what is not theirs
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_values_are_as_they_were(name):
    """Compare within 1e-12, trainings too; in float32 only one machine repeats bits, and others round otherwise."""
    if reason := values.missing(name):
        pytest.skip(reason)
    is_elsewhere = name in cases.SAME_MACHINE and ABOUT["machine"] != values.machine()
    tolerance = values.FLOAT32_TOLERANCE if is_elsewhere else values.TOLERANCE
    wrong = values.differences(KEPT[name], cases.compute(name), tolerance)
    assert not wrong, f"{len(wrong)} of {len(KEPT[name])} values changed:\n" + "\n".join(wrong[:10])


def test_no_case_is_lost():
    """A case that is deleted must be deleted from the values, too, where a reviewer sees it."""
    assert list(KEPT) == list(cases.CASES)


def test_every_activation_operation_and_guarantee_is_frozen():
    assert {f"activation {name}" for name in names.ACTIVATIONS} <= KEPT.keys()
    assert KEPT["activations by name"]["names"].split() == list(names.ACTIVATIONS)
    for name in names.OPERATIONS:
        assert f"localized {name} out" in KEPT["functions, undirected"]
    source = Path(cases.__file__).read_text()
    results = {name for name in names.GUARANTEE_NAMES if name[0].isupper() and name not in ("EdgeNoise", "LostLinks")}
    assert [name for name in names.GUARANTEE_NAMES if name not in results and f"GUARANTEES.{name}(" not in source] == []


def test_a_changed_value_is_noticed():
    expected = KEPT["fit"]
    key = next(key for key in expected if key.endswith("parameters"))
    found = {**expected, key: expected[key] + 1e-11}
    assert [line.partition("[")[0] for line in values.differences(expected, found, values.TOLERANCE)] == [key]
    assert values.differences(expected, {**expected, key: expected[key] + 1e-14}, values.TOLERANCE) == []
    assert values.differences(expected, {**expected, "more": "text"}, values.TOLERANCE) == ["more is new"]
