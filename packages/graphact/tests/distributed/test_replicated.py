"""Gradients that ``replicate`` sums are those of one process, also where parameters are used inside of a pass."""

import json
from pathlib import Path

import pytest

from distributed.processes import run_together


@pytest.mark.slow
def test_summed_gradients_are_those_of_one_process_and_nobody_waits_for_ever(tmp_path):
    """A gradient that is ready before the halo on one process and after it on another once stopped both."""
    codes, printed = run_together(Path(__file__).with_name("replicated.py"), 3, tmp_path)
    assert codes == [0, 0, 0], "\n".join(printed)
    for rank in range(3):
        found = json.loads((tmp_path / f"replicated-{rank}.json").read_text())
        assert found.pop("timeout")  # that of the other group, not half an hour
        tolerance = found.pop("tolerance")
        assert len(found) == (6 * 3 if rank < 2 else 6 * 2)
        assert {name: far for name, (far, _) in found.items() if far > tolerance} == {}
        assert all(buckets > 1 for name, (_, buckets) in found.items() if name.endswith("several buckets"))
