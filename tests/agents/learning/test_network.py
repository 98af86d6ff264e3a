"""Learning by one process a node over a network: the numbers of the simulation, also after a kill."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from agents.networks import directed

import graphact
from graphact import nn
from graphact.agents.learning.state import State
from graphact.cli import main

pytestmark = pytest.mark.slow
NODES = 5


@pytest.fixture
def files(tmp_path):
    graph = directed(NODES, 0.5, 3)
    model = nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=1).double()
    graphact.save(model, tmp_path / "model.safetensors")
    graph.save(tmp_path / "graph.npz")
    x = np.random.default_rng(0).normal(size=(9, NODES, 1))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", 2 * np.maximum(x, 0))
    words = [str(tmp_path / "model.safetensors"), str(tmp_path / "graph.npz"), "--batch", "4", "--rate", "0.02"]
    return [*words, "--signals", str(tmp_path / "x.npy"), "--targets", str(tmp_path / "y.npy")]


def parameters(path):
    return {name: value.numpy() for name, value in graphact.load(path).state_dict().items()}


def compare(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


@pytest.mark.parametrize("transport", ["udp", "zenoh"])
def test_processes_learn_what_the_simulation_does(files, tmp_path, transport, capsys):
    assert main(["agents", "train", *files, "--steps", "25", "--out", str(tmp_path / "simulated.safetensors")]) == 0
    simulated = capsys.readouterr().out.splitlines()
    arguments = ["agents", "train", *files, "--steps", "25", "--out", str(tmp_path / "real.safetensors")]
    assert main([*arguments, "--transport", transport, "--slot", "20"]) == 0
    real = capsys.readouterr().out.splitlines()
    compare(parameters(tmp_path / "simulated.safetensors"), parameters(tmp_path / "real.safetensors"))
    assert real[:3] == simulated[:3]  # losses, copies, costs
    assert real[5].startswith("links missed                0 of ")


def test_a_training_goes_on_after_a_kill(files, tmp_path, capsys):
    """All processes are killed, the one that started them first; the same command goes on to the same numbers."""
    common = ["agents", "train", *files, "--steps", "70"]
    assert main([*common, "--out", str(tmp_path / "simulated.safetensors")]) == 0
    simulated = capsys.readouterr().out.splitlines()
    out, checkpoint = tmp_path / "real.safetensors", tmp_path / "training"
    real = [*common, "--out", str(out), "--checkpoint", str(checkpoint), "--transport", "udp", "--slot", "20"]
    nodes = [tmp_path / "training.nodes" / f"node-{i}" for i in range(NODES)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "graphact.cli", *real], env=variables, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (tmp_path / "training.nodes" / "losses.npz").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.kill()
    process.wait()
    until = time.monotonic() + 15
    while any(running(folder) for folder in nodes) and time.monotonic() < until:
        time.sleep(0.1)  # nobody reads their events any more: they end, and wait for no slot
    assert not any(running(folder) for folder in nodes)
    assert 20 <= min(State.load(folder / "state.npz").steps for folder in nodes) <= 70
    assert not out.exists()
    assert main(real) == 0
    compare(parameters(tmp_path / "simulated.safetensors"), parameters(out))
    assert capsys.readouterr().out.splitlines()[:3] == simulated[:3]
    assert main([*real, "--seed", "9"]) == 2
    assert "holds another training" in capsys.readouterr().err


def running(folder):
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in entry.read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def test_one_node_is_killed_and_comes_back(files, tmp_path):
    """The others go on without it, and it goes on with the step they are in."""
    nodes = tmp_path / "training.nodes"
    real = ["agents", "train", *files, "--steps", "200", "--out", str(tmp_path / "x"), "--checkpoint"]
    command = [sys.executable, "-m", "graphact.cli", *real, str(tmp_path / "training"), "--transport", "udp"]
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with subprocess.Popen([*command, "--slot", "0.3"], **pipes) as process:
        until = time.monotonic() + 120
        while not (nodes / "losses.npz").exists() and time.monotonic() < until:
            time.sleep(0.01)
        (victim,) = (
            int(entry.parent.name)
            for entry in Path("/proc").glob("[0-9]*/cmdline")
            if str(nodes / "node-2").encode() in read(entry).split(b"\0")
        )
        os.kill(victim, signal.SIGKILL)
        said = process.stdout.read().decode()
    assert process.returncode == 0
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in said.strip().splitlines())
    assert lines["crashes"] == "1"
    first, last = (float(lines["loss"].split()[k]) for k in (0, 3))
    assert last < 0.5 * first
    assert State.load(nodes / "node-2" / "state.npz").steps <= 200


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_faults_are_for_simulations(files, tmp_path, capsys):
    arguments = ["agents", "train", *files, "--out", str(tmp_path / "x"), "--transport", "udp", "--loss", "0.1"]
    assert main(arguments) == 2
    assert "--loss is a fault of simulations" in capsys.readouterr().err


def test_a_damaged_plan_is_told_in_one_line(files, tmp_path, capsys):
    folders = graphact.agents.split(
        graphact.load(files[0]),
        graphact.Graph.load(files[1]),
        tmp_path / "n",
        addresses=[f"127.0.0.1:{p}" for p in range(1, 6)],
    )
    for name, content in [("signals", np.zeros((3, 1))), ("targets", np.zeros((3, 1)))]:
        np.save(folders[0] / f"{name}.npy", content)
    assert main(["agents", "learn", str(folders[0]), "--transport", "udp"]) == 2
    assert "learning.json is missing" in capsys.readouterr().err
    for plan in ({}, {"learning": {"rate": -1}, "steps": 1, "first": 0}, {"learning": {}, "steps": "x", "first": 0}):
        (folders[0] / "learning.json").write_text(json.dumps(plan))
        assert main(["agents", "learn", str(folders[0]), "--transport", "udp"]) == 2
        assert "learning.json: damaged" in capsys.readouterr().err
