"""The examples of docs/agents.md run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "agents.md"


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL))
def test_examples(block, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(block)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
