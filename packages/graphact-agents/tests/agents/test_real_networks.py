"""One process a node over UDP and Zenoh: what the centralised model gives, on graphs of every shape."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import graphact
from agents.networks import GRAPHS
from graphact import nn
from graphact_agents.addresses import free_addresses
from support.activations import ON_AGENTS
from support.on_agents import split

TOLERANCE = 1e-12
SHAPES = ["line", "star", "complete", "disconnected", "random", "directed"]


class Workers:
    """Processes of packages/graphact-agents/tests/agents/worker.py."""

    def __init__(self, count):
        script = str(Path(__file__).with_name("worker.py"))
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.processes = [subprocess.Popen([sys.executable, script], **pipes) for _ in range(count)]

    def ask(self, tasks):
        """Give each worker a task, let all of them begin together; what they say."""
        busy = self.processes[: len(tasks)]
        for process, task in zip(busy, tasks, strict=True):
            self.tell(process, task)
        for _ in tasks[0]["models"]:
            for process in busy:
                assert "ready" in json.loads(process.stdout.readline())
            for process in busy:
                self.tell(process, "go")
        answers = [json.loads(process.stdout.readline()) for process in busy]
        for process in busy:
            self.tell(process, "end")
        return answers

    def tell(self, process, message):
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()

    def close(self):
        for process in self.processes:
            self.tell(process, None)
            process.communicate(timeout=20)
        assert [process.returncode for process in self.processes] == [0] * len(self.processes)


@pytest.fixture(scope="module")
def workers():
    workers = Workers(9)
    yield workers
    workers.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two layers with each of the activations, on disk."""
    folder = tmp_path_factory.mktemp("models")
    made = {}
    for name in ON_AGENTS:
        hops = 2 if name.endswith("-ga") else 1
        model = nn.GCNN([2, 4, 3], order=[2, 1], activation=name, hops=hops, out_features=2, gamma=0.8).double()
        graphact.save(model, folder / f"{name}.safetensors")
        made[str(folder / f"{name}.safetensors")] = model
    return made


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["udp", "zenoh"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_activation(transport, shape, workers, models, tmp_path):
    graph = GRAPHS[shape]()
    folders = split(next(iter(models.values())), graph, tmp_path / "nodes", addresses=free_addresses(graph.num_nodes))
    x = np.random.default_rng(0).normal(size=(3, graph.num_nodes, 2))
    np.save(tmp_path / "x.npy", x)
    common = {"transport": transport, "signals": str(tmp_path / "x.npy"), "models": list(models)}
    answers = workers.ask([{"folder": str(folder), **common} for folder in folders])
    assert len(models) == len(ON_AGENTS)
    for run, model in enumerate(models.values()):
        with torch.no_grad():
            expected = model(torch.from_numpy(x), graph).numpy()
        outputs = np.stack([answer["outputs"][run] for answer in answers], axis=-2)
        np.testing.assert_allclose(outputs, expected, rtol=TOLERANCE, atol=TOLERANCE)
    assert all(answer["complete"] for answer in answers)
    assert sum(answer["counters"][name] for answer in answers for name in ("foreign", "forged", "malformed")) == 0
