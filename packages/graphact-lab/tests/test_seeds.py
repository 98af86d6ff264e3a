"""Invalid seeds are refused by tasks."""

import pytest

from graphact_lab.tasks import consensus


@pytest.mark.parametrize(
    ("seed", "error"), [(1.5, TypeError), (True, TypeError), (None, TypeError), (-1, ValueError), (2**63, ValueError)]
)
def test_tasks(seed, error):
    with pytest.raises(error, match="^seed must be"):
        consensus(seed=seed)
