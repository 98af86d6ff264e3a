"""Whole networks against the oracle, and the properties that the paper proves."""

import itertools

import pytest
import torch

from graphact import nn
from support.activations import ANY_WIDTH
from support.by_loops import apply_by_loops
from support.graphs import random_case, random_graph
from support.tolerances import assert_near


@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("name", ANY_WIDTH)
def test_two_layers_against_the_oracle(name, per_feature):
    for seed in range(10):
        case = random_case(seed)
        graph = case.graph.to(dtype=torch.float64)
        widths, closed = [case.x.shape[-1], 3, 2], seed % 2 == 1
        options = {"hops": 2, "out_features": 4, "bias": True, "per_feature": per_feature}
        options |= {"closed": closed, "gamma": 0.8}
        model = nn.GCNN(widths, order=[2, 1], activation=name, **options).double()
        expected = apply_by_loops(model, case.x, case.matrix, case.edges)
        assert_near(model(case.signal, graph), expected)


@pytest.mark.parametrize("hops", [1, 3])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_permutation_equivariance_of_activations(name, closed, hops):
    for seed in range(20):
        case = random_case(seed)
        features = None if name in ANY_WIDTH else case.x.shape[-1]
        activation = nn.make_activation(name, hops=hops, features=features, closed=closed, gamma=1.0).double()
        perm = torch.randperm(case.graph.num_nodes)
        moved = activation(case.signal[..., perm, :], case.graph.permute(perm))
        assert_near(moved, activation(case.signal, case.graph)[..., perm, :].detach())


def test_biases_of_filters_and_readout_are_trained_where_asked_for():
    for bias, readout_bias in itertools.product((False, True), repeat=2):
        model = nn.FIR([1, 2, 3], order=1, bias=bias, readout_bias=readout_bias)
        shapes = sorted(tuple(p.shape) for name, p in model.named_parameters() if name.endswith("bias"))
        assert shapes == [(1,)] * readout_bias + [(2,), (3,)] * bias


def test_fir_is_linear_and_equals_the_filters():
    graph = random_graph()
    model = nn.FIR([2, 3, 2], order=2, out_features=1, readout_bias=False).double()
    x, y = torch.randn(2, 4, 12, 2, dtype=torch.float64)
    torch.testing.assert_close(model(x + 2 * y, graph), model(x, graph) + 2 * model(y, graph))
    assert_near(model(x, graph), apply_by_loops(model, x.numpy(), graph.to_dense().numpy(), None))


def test_no_readout():
    model = nn.GCNN([1, 5], out_features=None)
    assert model(torch.randn(12, 1), random_graph(dtype=torch.float32)).shape == (12, 5)
