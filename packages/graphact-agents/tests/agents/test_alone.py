"""Agents where nothing is installed but NumPy and safetensors: torch, SciPy and the rest of graphact are blocked."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import graphact
import graphact_agents
from agents.networks import undirected
from graphact import nn
from local_agents import free_addresses

SOURCE = Path(graphact_agents.__file__).parent
ALONE = """
import importlib, importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("torch", "scipy", "numba", "graphact", "graphact_lab"):
            raise ModuleNotFoundError(name + " is blocked")
sys.meta_path.insert(0, Block())
"""


def alone(code, *words, **pipes):
    """Start Python with everything but NumPy and safetensors blocked."""
    return subprocess.Popen([sys.executable, "-W", "error", "-c", ALONE + code, *words], **pipes)


COMMAND = "from graphact_agents.command import main; sys.exit(main(sys.argv[1:]))"


def test_every_module_is_imported_alone():
    names = [".".join(file.relative_to(SOURCE.parent).with_suffix("").parts) for file in SOURCE.rglob("*.py")]
    code = f"for name in {names!r}: importlib.import_module(name.removesuffix('.__init__'))"
    process = alone(code, stderr=subprocess.PIPE)
    assert process.communicate(timeout=60)[1].decode() == ""
    assert process.returncode == 0


@pytest.fixture
def files(tmp_path):
    """A model and a graph of six nodes as the library writes them, signals, and what the library answers."""
    torch.manual_seed(0)
    model = nn.GCNN([2, 3], order=2, activation="kernel-ga", hops=2, out_features=2, learn_gamma=True).double()
    graph = undirected([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3)], 6).normalize("spectral")
    graphact.save(model, tmp_path / "model.safetensors")
    graph.save(tmp_path / "graph.npz")
    x = np.random.default_rng(0).normal(size=(4, 6, 2))
    np.save(tmp_path / "x.npy", x)
    return tmp_path, x, model(torch.from_numpy(x), graph).detach().numpy()


def test_a_simulation(files):
    folder, *_ = files
    words = ["simulate", "model.safetensors", "graph.npz", "--signals", "x.npy", "--loss", "0.2"]
    process = alone(COMMAND, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder)
    printed, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.decode()) == (0, "")
    assert dict(line.split(maxsplit=1) for line in printed.decode().splitlines())["outputs"] == "24 of 24"


def test_six_nodes_over_udp(files):
    """Deployed and run from the files alone: the library's values to 1e-12."""
    folder, x, expected = files
    nodes = "".join(f'[nodes.{i}]\naddress = "{each}"\n' for i, each in enumerate(free_addresses(6)))
    for words in (["init", "model.safetensors", "graph.npz", "--out", "network"], ["deploy", "network", "--out", "n"]):
        process = alone(COMMAND, *words, stdout=subprocess.PIPE, cwd=folder)
        assert process.communicate(timeout=60)[0]
        assert process.returncode == 0
        (folder / "network" / "network.toml").write_text(nodes)
    processes = []
    for i in range(6):
        np.save(folder / f"x-{i}.npy", x[:, i])
        run = ["run", f"n/node-{i}", "--period", "0", "--slot", "10"]
        words = [*run, "--signals", f"x-{i}.npy"]
        processes.append(alone(COMMAND, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder))
    for i, process in enumerate(processes):
        printed, errors = process.communicate(timeout=120)
        assert (process.returncode, errors.decode()) == (0, "")
        results = [event for event in map(json.loads, printed.splitlines()) if event["event"] == "result"]
        assert [(event["run"], event["complete"]) for event in results] == [(run, True) for run in range(4)]
        outputs = np.array([event["output"] for event in results])
        np.testing.assert_allclose(outputs, expected[:, i], rtol=1e-12, atol=1e-12)
