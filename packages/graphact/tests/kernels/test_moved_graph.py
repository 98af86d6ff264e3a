"""A graph whose tensors move to other memory between two passes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("use", "move"),
    [
        ("shift", "share"),
        ("activate", "share"),
        ("differentiate", "share"),
        ("activate", "put_into_a_queue"),
    ],
)
def test_is_used_as_before(use, move):
    script = Path(__file__).with_name("moved_graph.py")
    run = subprocess.run([sys.executable, str(script), use, move], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, f"{run.returncode}: {run.stderr[-2000:]}"
