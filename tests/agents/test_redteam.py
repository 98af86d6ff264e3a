"""A small attack on running agents; `make soak` sends a million datagrams and ten thousand files."""

import pytest
from agents import redteam


@pytest.mark.slow
def test_running_agents_stand_an_attack():
    lines = redteam.attack(datagrams=60_000, files=400, live_share=0.05, seconds=2.0)
    assert len(lines) == 2
