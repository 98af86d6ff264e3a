"""The Triton kernels against the reference without a GPU.

Triton reads TRITON_INTERPRET once, when it is imported, so the cases run in a process of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("triton")


def run_cases(chosen):
    cases = Path(__file__).with_name("interpreted_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(cases), "-k", chosen]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]


# Three classes, so that two workers share the cases: the second and the others take about the same time
FIRST = "columns or graphs"
SECOND = f"(large_signals or hubs or neighbors) and not ({FIRST})"


class TestFirst:
    def test_in_the_interpreter(self):
        run_cases(FIRST)


class TestSecond:
    def test_in_the_interpreter(self):
        run_cases(SECOND)


class TestOthers:
    def test_in_the_interpreter(self):
        run_cases(f"not ({FIRST}) and not ({SECOND})")
