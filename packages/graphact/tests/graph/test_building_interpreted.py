"""The Triton kernels that build graphs, without a GPU.

Triton reads TRITON_INTERPRET once, when it is imported, so the cases run in a process of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("triton")


def test_in_the_interpreter():
    cases = Path(__file__).with_name("interpreted_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(cases)]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
