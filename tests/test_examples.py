"""The examples run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("act", ["max-ga", "relu"])
@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_graph_classification(act, device):
    options = ["--act", act, "--device", device, "--epochs", "3", "--graphs", "320", "--workers", "2"]
    command = [sys.executable, EXAMPLES / "graph_classification.py", *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    accuracy = [float(percent) for percent in re.findall(r"test (\S+)%", result.stdout)]
    assert len(accuracy) == 3
    assert max(accuracy) > 80  # by chance: 50
