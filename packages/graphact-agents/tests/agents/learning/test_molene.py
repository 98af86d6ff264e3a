"""The Molène denoiser, trained by 32 agents through loss, is as good as the one trained in one place.

``python benchmarks/agents_learning.py molene`` does it at full length.
"""

import copy
import os

import pytest
import torch

from agents.learning.problems import train_centrally
from graphact import nn
from graphact_agents import Faults
from graphact_agents.learning import Learning, simulate_training
from graphact_lab.tasks import denoising, metric_of
from support.on_agents import deploy

STEPS = 40


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("GRAPHACT_DATA"), reason="needs real data: set GRAPHACT_DATA")
def test_molene_by_32_agents():
    task = denoising(dtype=torch.float64, download=False)
    x, targets = task.inputs[task.train].numpy(), task.targets[task.train].numpy()
    model, learning = nn.GCNN([1, 4], order=1, activation="max-ga").double(), Learning(rate=0.05, batch=32)
    trained, central = copy.deepcopy(model), copy.deepcopy(model)
    nodes = deploy(model, task.graph)
    training = simulate_training(nodes, x, targets, learning, steps=STEPS, faults=Faults(loss=0.05))
    parameters = training.model(nodes[0].model).parameters
    trained.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
    train_centrally(central, task.graph, x, targets, learning, STEPS)
    with torch.no_grad():
        before, by_agents, in_one_place = (
            metric_of("rmse", m(task.inputs[task.test], task.graph), task.targets[task.test]).item()
            for m in (model, trained, central)
        )
    assert len(nodes) == 32
    assert by_agents < 0.5 * before
    assert by_agents < 1.02 * in_one_place
