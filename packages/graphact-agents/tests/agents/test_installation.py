"""The package alone in an environment of its own: small, without torch, and able to split, run and simulate."""

import json
import os
import subprocess
import sys
import time
import venv

import pytest

import graphact
from agents.networks import GRAPHS
from graphact import nn
from graphact_agents.addresses import free_addresses
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


@pytest.fixture
def files(tmp_path):
    """A model and a graph of six nodes, which the library wrote."""
    model = nn.GCNN([1, 2], order=1, activation="max-ga", out_features=1).double()
    graphact.save(model, tmp_path / "model.safetensors")
    GRAPHS["line"]().save(tmp_path / "graph.npz")
    return tmp_path / "model.safetensors", tmp_path / "graph.npz"


@pytest.mark.slow
def test_it_is_small_and_brings_no_torch(environment):
    assert size_of(environment) < MAX_SIZES["numpy"]
    assert run(environment / "bin" / "python", "-c", MODULES) == (0, "[]\n")


@pytest.mark.slow
def test_simulate(environment, files):
    code, told = run(environment / "bin" / "graphact-agents", "simulate", *files, "--runs", "3", "--loss", "0.1")
    assert code == 0, told
    assert "error, links that answered" in told


@pytest.mark.slow
def test_six_nodes_over_udp(environment, files, tmp_path):
    command = environment / "bin" / "graphact-agents"
    nodes = "".join(f'[nodes.{i}]\naddress = "{each}"\n' for i, each in enumerate(free_addresses(6)))
    (tmp_path / "network.toml").write_text(nodes)
    words = ["--out", tmp_path / "nodes", "--no-tls", "--network", tmp_path / "network.toml"]
    code, told = run(command, "split", *files, *words)
    assert code == 0, told
    (tmp_path / "signals.jsonl").write_text("[1.0]\n")
    options = ["--transport", "udp", "--period", "1", "--slot", "0.2", "--repeat", "--runs", "5"]
    options += ["--origin", str(int(time.time())), "--signals", str(tmp_path / "signals.jsonl")]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    processes = [
        subprocess.Popen(
            [command, "run", tmp_path / "nodes" / f"node-{i}", *options], stdout=subprocess.PIPE, env=variables
        )
        for i in range(6)
    ]
    try:
        printed = [process.communicate(timeout=60)[0].decode().splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
    for lines in printed:
        assert any(event["event"] == "result" and event["complete"] for event in map(json.loads, lines))


@pytest.mark.slow
def test_cryptography_stays_small(environment):
    """The last test: it adds to the environment of the others."""
    install(environment / "bin" / "python", "cryptography>=43")
    assert size_of(environment) < MAX_SIZES["cryptography"]
