"""The package alone in an environment of its own: small and without torch. What it does there: test_alone.py."""

import os
import subprocess
import sys
import venv

import pytest

from support.places import ROOT

MEBIBYTE = 2**20
MAX_SIZES = {"numpy": 80, "cryptography": 95}
"""Mebibytes of all that is installed, without extras and with cryptography."""
MODULES = "import importlib.util as i; print([m for m in ('torch', 'scipy', 'graphact') if i.find_spec(m)])"


def run(*words, **options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, env=environment, **options)
    return done.returncode, done.stdout + done.stderr


def install(python, *packages):
    """Install packages into an environment; skips where no index has them."""
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", *packages]
    code, told = run(*command)
    if "No matching distribution" in told or "Could not find a version" in told or "ConnectionError" in told:
        pytest.skip(f"pip reaches no index: {told.strip().splitlines()[-1]}")
    assert code == 0, told


def size_of(folder):
    """Return the mebibytes of the files below a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return sum(path.stat().st_size for path in files) / MEBIBYTE


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The folder of an environment with the package alone."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    install(folder / "bin" / "python", ROOT / "packages" / "graphact-agents")
    return folder


@pytest.mark.slow
def test_it_is_small_and_brings_no_torch(environment):
    assert size_of(environment) < MAX_SIZES["numpy"]
    assert run(environment / "bin" / "python", "-c", MODULES) == (0, "[]\n")


@pytest.mark.slow
def test_cryptography_stays_small(environment):
    """The last test: it adds to the environment of the others."""
    install(environment / "bin" / "python", "cryptography>=43")
    assert size_of(environment) < MAX_SIZES["cryptography"]
