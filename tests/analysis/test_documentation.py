"""The example of docs/guarantees.md runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).parents[2] / "docs" / "guarantees.md"


@pytest.mark.slow
@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL))
def test_examples(block, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(block)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "of the decisions hold" in result.stdout
