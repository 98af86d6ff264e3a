"""The nodes' gradients add up to that of the centralised model, by autograd."""

import numpy as np
import pytest
import torch

from agents.learning.problems import gradient_rounds
from agents.networks import GRAPHS, directed
from graphact import nn
from graphact_agents.learning.learner import gradient
from graphact_agents.learning.state import from_vector, to_vector
from graphact_agents.simulation import Simulation
from support.activations import ANY_WIDTH
from support.on_agents import deploy

TOLERANCE = 1e-10
OBJECTIVES = {
    "mse": torch.nn.functional.mse_loss,
    "smooth_l1": torch.nn.functional.smooth_l1_loss,
    "cross_entropy": lambda outputs, targets: torch.nn.functional.cross_entropy(
        outputs.flatten(0, -2), targets.flatten().long()
    ),
}


def gradients_of_agents(model, graph, x, targets, objective="mse"):
    """Loss and gradients, summed over the nodes, and how many rounds it took."""
    nodes = deploy(model, graph)

    def program(i, run):
        return gradient(nodes[i].model, nodes[i], x[:, i], targets[:, i], objective)

    rounds = 2 * nodes[0].model.rounds
    outcome = Simulation([node.links for node in nodes], program, rounds=rounds, program_id=2).simulate()
    results = [outcome.results[0, i] for i in range(len(nodes))]
    assert all(result.complete for result in results)
    assert {len(result.used) for result in results} == {gradient_rounds(nodes[0].model, prepared=False)}
    outputs = [result.output for result in results]
    names = outputs[0][1]
    assert set(names) == set(nodes[0].model.parameters)
    total = {name: sum(gradients[name] for _, gradients in outputs) for name in names}
    return sum(loss for loss, _ in outputs), total


def check(model, graph, features=2, objective="mse", batch=5, x=None):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(batch, graph.num_nodes, features)) if x is None else x
    outputs = model(torch.from_numpy(x), graph)
    if objective == "cross_entropy":
        targets = rng.integers(outputs.size(-1), size=(batch, graph.num_nodes, 1)).astype(float)
    else:
        targets = rng.normal(size=outputs.shape)
    loss = graph.num_nodes * OBJECTIVES[objective](outputs, torch.from_numpy(targets))
    loss.backward()
    total, gradients = gradients_of_agents(model, graph, x, targets, objective)
    assert total == pytest.approx(loss.item(), abs=TOLERANCE)
    for name, parameter in model.named_parameters():
        expected = parameter.grad.numpy()
        assert gradients[name].shape == expected.shape
        np.testing.assert_allclose(gradients[name], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
    assert any(abs(parameter.grad).max() > 1e-3 for parameter in model.parameters())


def gcnn(name, **options):
    hops = 2 if name.endswith("-ga") else 1
    return nn.GCNN([2, 4, 3], order=[2, 1], activation=name, hops=hops, out_features=2, gamma=0.8, **options).double()


@pytest.mark.parametrize("graph", ["directed", "directed with a diagonal", "disconnected", "one node"])
@pytest.mark.parametrize("activation", ANY_WIDTH)
def test_two_layers_on_every_graph(graph, activation):
    check(gcnn(activation), GRAPHS[graph]())


@pytest.mark.parametrize("activation", ANY_WIDTH)
def test_closed_neighborhoods_shared_weights_and_bias(activation):
    graph = GRAPHS["directed with a diagonal"]()
    check(gcnn(activation, closed=True, per_feature=False, bias=True, learn_gamma=True), graph)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective(objective):
    check(gcnn("max-ga"), directed(7, 0.4, 5), objective=objective)


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("activation", ["max-l", "median-l", "max-ga", "median-ga"])
def test_ties_go_to_the_lowest_number(activation, closed):
    """Sums of features that tie though the features differ, so that it matters who is given the gradient."""
    graph = GRAPHS["complete"]()
    model = nn.GCNN([2, 2, 2], order=[0, 1], activation=activation, hops=1, out_features=1, closed=closed).double()
    torch.nn.init.ones_(model.filters[0].taps)
    x = np.random.default_rng(0).choice([0.0, 1.0, 2.0], size=(30, graph.num_nodes, 2))
    check(model, graph, batch=30, x=x)


@pytest.mark.parametrize(
    "model",
    [
        lambda: nn.GraphFilter(2, 3, order=2, bias=True),
        lambda: nn.FIR([2, 3, 2], order=[3, 2], out_features=None, bias=True),
        lambda: nn.GraphAdaptive("min", hops=2, features=2),
        lambda: nn.GraphAdaptiveKernel(hops=3, gamma=0.7, learn_gamma=True),
        lambda: nn.LocalizedMedian(closed=True),
    ],
)
def test_everything_that_load_gives(model):
    check(model().double(), directed(8, 0.4, 2))


def test_targets_that_are_missing_ask_for_nothing():
    graph, model = directed(6, 0.5, 1), gcnn("median-ga")
    rng = np.random.default_rng(0)
    x, targets = rng.normal(size=(4, 6, 2)), rng.normal(size=(4, 6, 2))
    targets[:, 1:] = np.nan  # only the first node is asked
    torch.nn.functional.mse_loss(model(torch.from_numpy(x), graph)[:, 0], torch.from_numpy(targets[:, 0])).backward()
    _, gradients = gradients_of_agents(model, graph, x, targets)
    for name, parameter in model.named_parameters():
        np.testing.assert_allclose(gradients[name], parameter.grad.numpy(), rtol=TOLERANCE, atol=TOLERANCE)


def test_a_model_as_a_vector_and_back():
    model = deploy(gcnn("kernel-ga", learn_gamma=True), GRAPHS["line"]())[0].model
    again = from_vector(to_vector(model.parameters, model), model)
    assert list(again.parameters) == list(model.parameters)
    for name, value in model.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], value)
        assert again.parameters[name].shape == value.shape
