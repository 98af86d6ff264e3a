"""What CONTRIBUTING promises of the house: a reader follows a signal through twelve files, and reports stay small."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_forward_pass_visits_at_most_twelve_files():
    command = [sys.executable, str(ROOT / "benchmarks" / "files_visited.py"), "--list"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_files_that_contributing_names_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text().split("**The way of a signal.**")[1].split("## Habits")[0]
    package = ROOT / "src" / "graphact"
    for word in page.replace("`", " ").split():
        if word.endswith(".py") and not {"<", "*"} & set(word):
            assert list(package.rglob(word)) or (ROOT / word).exists(), word
