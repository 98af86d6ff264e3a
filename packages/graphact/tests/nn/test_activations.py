"""Activations as modules: parameters, names, descriptions."""

import copy
import math
import pickle

import pytest
import torch

from graphact import nn
from graphact.registry import FURTHER
from support.activations import FAMILY
from support.graphs import random_graph


def test_names():
    pointwise = ["identity", "leaky-relu", "prelu", "elu", "gelu", "silu", "tanh", "abs", "maxout"]
    paper = ["relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga"]
    assert list(nn.ACTIVATIONS) == [*paper, *pointwise, *FURTHER]
    for name, kind in nn.ACTIVATIONS.items():
        assert type(nn.make_activation(name, features=4)) is kind


@pytest.mark.parametrize("name", FAMILY)
def test_a_new_activation_is_the_relu_that_it_replaces(name, real_start):
    graph, x = random_graph(), torch.randn(2, 12, 8, dtype=torch.float64)
    state = torch.get_rng_state()
    activation = nn.make_activation(name, hops=2, features=8).double()
    assert torch.equal(activation(x, graph), torch.relu(x))
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn
    if name != "relu":  # and training moves it away
        activation(x, graph).square().sum().backward()
        assert activation.weights.grad.abs().min() > 0
        assert nn.GCNN([1, 2], activation=name).activations[0].weights.tolist() == [[0, 0]]


@pytest.mark.parametrize(("start", "bound"), [("uniform", 0.5), ("small", 0.05)])
def test_a_random_start(start, bound):
    torch.manual_seed(5)
    activation = nn.GraphAdaptiveMax(hops=4, features=8, start=start)
    assert activation.beta == 1
    torch.manual_seed(5)
    expected = torch.empty(4, 8).uniform_(-bound, bound)
    assert torch.equal(activation.weights, expected)
    assert activation.config()["start"] == start
    assert f"start='{start}'" in repr(activation)
    torch.manual_seed(5)
    activation.reset_parameters()
    assert torch.equal(activation.weights, expected)


def test_a_uniform_start_draws_parameters_in_their_order():
    torch.manual_seed(5)
    model = nn.GCNN([1, 3, 2], order=1, activation="kernel-ga", hops=2, bias=True, start="uniform")
    torch.manual_seed(5)
    for bank, bound in zip(model.filters, (1 / math.sqrt(2), 1 / math.sqrt(6)), strict=True):
        for parameter in (bank.taps, bank.bias):
            assert torch.equal(parameter, torch.empty_like(parameter).uniform_(-bound, bound))
    for activation in model.activations:
        bound = 1 / math.sqrt(2)
        assert torch.equal(activation.weights, torch.empty_like(activation.weights).uniform_(-bound, bound))


def test_learned_gamma():
    graph, x = random_graph(dtype=torch.float32), torch.randn(12, 2)
    activation = nn.GraphAdaptiveKernel(gamma=0.5, learn_gamma=True)
    assert activation.gamma.item() == pytest.approx(0.5)
    activation(x, graph).sum().backward()
    assert activation.log_gamma.grad is not None
    with torch.no_grad():
        activation.log_gamma += 1
    activation.reset_parameters()
    assert activation.gamma.item() == pytest.approx(0.5)
    fixed = nn.GraphAdaptiveKernel()
    assert fixed.gamma == 0.1
    assert sorted(dict(fixed.named_parameters())) == ["beta", "weights"]


def span(neighbors):
    return neighbors.amax(-2) - neighbors.amin(-2)


def test_copies_keep_their_operation():
    module, graph, x = nn.GraphAdaptive(span, hops=2), random_graph(dtype=torch.float32), torch.randn(2, 12, 3)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x, graph), module(x, graph))
        assert other.config() == module.config()
    assert copy.deepcopy(module).operation is module.operation


class Scaled(torch.nn.Module):
    """A trained function of a neighbourhood."""

    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))

    def forward(self, neighbors):
        return self.scale * neighbors.sum(-2)


def test_the_function_of_a_replica_is_its_own():
    """As DataParallel makes replicas: shallow copies whose parts are exchanged for those of their device."""
    graph, x = random_graph(dtype=torch.float32), torch.randn(12, 3)
    module = nn.GraphAdaptive(Scaled(2.0))
    replica = module._replicate_for_data_parallel()
    replica._parameters = dict(module._parameters)
    replica.op = Scaled(5.0)
    expected = nn.GraphAdaptive(Scaled(5.0))
    expected.beta, expected.weights = module.beta, module.weights
    torch.testing.assert_close(replica(x, graph), expected(x, graph))
    replica(x, graph).sum().backward()
    assert module.op.scale.grad is None
    assert replica.op.scale.grad.abs() > 0
    assert replica.layers()[0].operation.function is replica.op


def test_trained_arrays_of_each_feature():
    x = torch.tensor([[-2.0, -2.0], [3.0, 3.0]])
    prelu, maxout = nn.PReLU(features=2), nn.Maxout(features=2, pieces=3)
    assert maxout.slope.tolist() == [[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]]
    with torch.no_grad():
        prelu.slope.copy_(torch.tensor([0.5, -1.0]))
        maxout.slope.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.5], [-2.0, 0.0]]))
        maxout.offset.copy_(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 4.0]]))
    assert prelu(x).tolist() == [[-1.0, 2.0], [3.0, 3.0]]
    assert maxout(x).tolist() == [[4.0, 4.0], [3.0, 4.0]]
    maxout(x).sum().backward()
    assert maxout.slope.grad.tolist() == [[3.0, 0.0], [0.0, 0.0], [-2.0, 1.0]]
    assert maxout.offset.grad.tolist() == [[1.0, 0.0], [0.0, 0.0], [1.0, 2.0]]
    maxout.reset_parameters()
    assert maxout.slope[:, 0].tolist() == [1.0, 0.5, 0.0]
    assert maxout.offset.abs().max() == 0
