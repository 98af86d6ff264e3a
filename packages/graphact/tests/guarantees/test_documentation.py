"""The examples of docs/guarantees.md run as they stand."""

import re
import subprocess
import sys

import pytest

from support.places import ROOT

PRINTED = ("of the decisions hold", "LipschitzBound(value=")  # by each of the blocks
DOCUMENT = ROOT / "docs" / "guarantees.md"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "printed"),
    list(zip(re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), flags=re.DOTALL), PRINTED, strict=True)),
)
def test_examples(block, printed, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(block)
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert printed in result.stdout
