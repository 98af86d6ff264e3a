"""The package without what POSIX alone has, as on Windows; simulated, see ``support/without_posix.py``."""

import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphact_lab.store import Store
from support.without_posix import PACKAGES

FOLDER = str(Path(__file__).parent)
pytestmark = pytest.mark.slow


def run_without_posix(*arguments):
    command = [sys.executable, "-X", "warn_default_encoding", "-m", "support.without_posix", *arguments]
    path = os.pathsep.join(filter(None, [FOLDER, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_every_module_is_imported():
    result = run_without_posix()
    assert result.returncode == 0, result.stderr
    modules = {
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    }
    assert modules == set(result.stdout.split())
    assert {"graphact_lab.store", "graphact_agents.node", "graphact_lab.commands.run"} <= modules


def test_what_is_not_there_is_refused():
    """The simulation itself: a module of the package would not get what it asks for."""
    code = "import support.without_posix as w; w.refuse('fcntl', {'__name__': 'graphact.storage'})"
    path = FOLDER
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=path)
    assert "ModuleNotFoundError: No module named 'fcntl'" in result.stderr


def test_an_experiment_runs(tmp_path):
    words = ["source-localization", "--preset", "smoke", "--activation", "relu", "--device", "cpu"]
    result = run_without_posix("run", *words, "--out", str(tmp_path))
    assert result.returncode == 0, result.stderr
    rows = Store(tmp_path).rows()
    assert {row["method"] for row in rows if row["kind"] == "model"} == {"relu"}
    assert (tmp_path / "report.html").exists()
    assert not [*(tmp_path / "checkpoints").iterdir()]  # locks are removed
