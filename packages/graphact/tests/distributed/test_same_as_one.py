"""Modules on parts of a graph equal the same modules on the whole graph, and exchange what the cost model says."""

import pytest

from distributed.same_as_one import modules, networks

pytestmark = pytest.mark.slow

# networks on nine graphs, on three of them in two precisions, and modules on one
CASES = (9 + 3) * len([*networks(3)]) + len([*modules(3)])


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_values_gradients_and_bytes(findings, parts):
    for rank in range(parts):
        found = findings[f"same-{parts}-{rank}"]
        assert not found["failed"], next(iter(found["failed"].items()))
        assert len(found["passed"]) == CASES
