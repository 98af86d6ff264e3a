"""Every example of the gallery runs as it stands, without data sets, and draws."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parent.parent / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))
QUICK = {"hops", "own_function"}  # the others take more than five seconds, most of it to load and compile
RUNNER = """
import runpy, sys
import matplotlib.pyplot as plt
runpy.run_path(sys.argv[1], run_name="__main__")
axes = [axis for number in plt.get_fignums() for axis in plt.figure(number).axes]
assert axes, "no figure"
assert all(axis.has_data() for axis in axes), "an empty axis"
"""


def cases():
    for path in EXAMPLES:
        yield pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else pytest.mark.slow)


def test_there_are_at_least_twelve():
    assert len(EXAMPLES) >= 12


@pytest.mark.parametrize("path", list(cases()))
def test_example(path, tmp_path):
    environment = {**os.environ, "MPLBACKEND": "agg", "GRAPHACT_DATA": str(tmp_path), "MPLCONFIGDIR": str(tmp_path)}
    command = [sys.executable, "-c", RUNNER, str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert result.returncode == 0, result.stderr
