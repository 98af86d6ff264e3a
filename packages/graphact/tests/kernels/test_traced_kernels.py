"""Kernels that compiled code sees on a GPU, traced without one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="needs triton, which compiles the kernels")
SLOT = "largest_slot"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "forward", "backward"),
    [
        (["max"], [["shifted"], ["shifted", "largest", SLOT], ["largest", SLOT], ["out"]], 5),
        (["kernel"], [["shifted"], ["shifted", "distance"], ["distance"], ["out"]], 8),
        (["max,std", "bank"], [["shifted", "largest", "mean", "std", SLOT]], 1),
    ],
    ids=["max", "kernel", "bank"],
)
def test_the_compiler_sees_every_launch_and_few_compilations_serve_all_sizes(arguments, forward, backward):
    """Graphs of 20 sizes; no operator is left opaque, and nothing but results is written, or inputs would be copied."""
    command = [sys.executable, str(Path(__file__).with_name("traced_kernels.py")), *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(run.stdout)
    assert all(1 <= len(found[direction]) <= 3 for direction in found), found  # one of fixed, one of any size
    for compiled in found["forward"]:
        assert compiled == {"written": forward, "opaque": []}
    for compiled in found["backward"]:
        assert len(compiled["written"]) == backward
        assert compiled["opaque"] == []
