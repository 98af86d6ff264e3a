"""Nodes learn a network between scalings, which stay as they are."""

import numpy as np
import pytest
import torch

from agents.learning.problems import gradient_rounds
from agents.networks import GRAPHS
from graphact import nn
from graphact_agents.learning.learner import gradient
from graphact_agents.learning.vjp import check_learnable
from graphact_agents.model import IncompatibleModelError
from graphact_agents.simulation import Simulation
from support.on_agents import deploy, to_model


def make():
    torch.manual_seed(1)
    model = nn.ScaledNetwork(nn.GCNN([4, 3], order=2, out_features=1), 2, out_features=1, mask=True)
    model.input.set([3.0, -1.0], [2.0, 0.5])
    model.output.set(7.0, 4.0)
    return model.double()


def test_the_gradient_of_the_centralised_model():
    model, graph = make(), GRAPHS["random"]()
    rng = np.random.default_rng(0)
    x, targets = rng.normal(size=(5, graph.num_nodes, 2)), rng.normal(size=(5, graph.num_nodes, 1))
    x[rng.random(x.shape) < 0.2] = np.nan
    loss = graph.num_nodes * torch.nn.functional.mse_loss(model(torch.from_numpy(x), graph), torch.from_numpy(targets))
    loss.backward()
    nodes = deploy(model, graph)

    def program(i, run):
        return gradient(nodes[i].model, nodes[i], x[:, i], targets[:, i], "mse")

    rounds = 2 * nodes[0].model.rounds
    outcome = Simulation([node.links for node in nodes], program, rounds=rounds, program_id=2).simulate()
    results = [outcome.results[0, i] for i in range(len(nodes))]
    assert {len(result.used) for result in results} == {gradient_rounds(nodes[0].model, prepared=False)}
    learned = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {*results[0].output[1]} == {*learned}
    for name, parameter in learned.items():
        total = sum(result.output[1][name] for result in results)
        np.testing.assert_allclose(total, parameter.grad.numpy(), rtol=1e-10, atol=1e-10)


def test_a_scaling_is_not_learned():
    model = make()
    model.input.mean.requires_grad_(True)
    with pytest.raises(IncompatibleModelError, match="input: agents do not learn a scaling: mean and std must be froz"):
        check_learnable(to_model(model))
