"""Nothing is lost and nothing is repeated when a run is killed with SIGKILL, at any moment, many times."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_run.py")
VOLATILE = ("seconds", "finished")


def run(directory, kills):
    result = subprocess.run(
        [sys.executable, str(SCRIPT), str(directory), str(kills), "7"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    rows = [row for file in sorted((directory / "rows").glob("*.json")) for row in json.loads(file.read_text())]
    rows = [{name: value for name, value in row.items() if name not in VOLATILE} for row in rows]
    return rows, json.loads(result.stdout)


@pytest.mark.slow
def test_killed_twenty_times(tmp_path):
    undisturbed, _ = run(tmp_path / "undisturbed", kills=0)
    killed, met = run(tmp_path / "killed", kills=24)
    assert met["checkpoint"] >= 10
    assert len(undisturbed) == 4 * 3 + 4  # four models for each of three activations, and their baseline
    assert killed == undisturbed
    leftovers = [path.name for path in (tmp_path / "killed").rglob("*") if path.suffix == ".safetensors"]
    assert not leftovers
