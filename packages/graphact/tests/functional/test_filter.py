"""Shifts and filters against dense matrix products."""

import numpy as np
import pytest
import torch

from graphact import Graph, functional
from support import oracle
from support.graphs import random_case, random_graph
from support.tolerances import assert_near


@pytest.mark.parametrize("seed", range(40))
def test_shift_is_the_matrix_product(seed):
    case = random_case(seed)
    assert_near(functional.shift(case.signal, case.graph), case.matrix @ case.x)
    x = case.signal.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: functional.shift(x, case.graph), x)


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize("order", [0, 1, 4])
def test_bank_against_dense_polynomial(order, outputs):
    for seed in range(15):
        case, rng = random_case(seed), np.random.default_rng(seed)
        taps = rng.normal(size=(order + 1, case.x.shape[-1], outputs))
        actual = functional.graph_filter(case.signal, case.graph, torch.from_numpy(taps))
        expected = oracle.graph_filter(case.matrix, case.x, taps)
        scale = max(1.0, float(np.abs(expected).max()))
        assert_near(actual / scale, expected / scale)


def test_one_filter_for_all_features_is_a_diagonal_bank():
    graph, x = random_graph(), torch.randn(4, 12, 3, dtype=torch.float64)
    taps = torch.randn(4, dtype=torch.float64)
    bank = taps[:, None, None] * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(functional.graph_filter(x, graph, taps), functional.graph_filter(x, graph, bank))


@pytest.mark.parametrize("outputs", [1, 4])
def test_filter_gradients(outputs):
    graph = random_graph(5)
    x = torch.randn(2, 5, 2, dtype=torch.float64, requires_grad=True)
    taps = torch.randn(3, 2, outputs, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, taps: functional.graph_filter(x, graph, taps), (x, taps))


@pytest.mark.parametrize("directed", [False, True])
def test_gradient_reaches_edge_weights(directed):
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 3, 1], [1, 0, 2, 1, 0, 2, 3, 2]])
    if directed:
        edge_index = edge_index[:, ::2]
    weight = torch.rand(edge_index.size(1), dtype=torch.float64, requires_grad=True)
    x = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    coefficients = torch.ones(2, dtype=torch.float64)

    def run(weight, x):
        graph = Graph.from_edge_index(edge_index, weight, num_nodes=4).normalize("symmetric")
        return functional.graph_adaptive(x, graph, 0.5, coefficients, "max")

    assert torch.autograd.gradcheck(run, (weight, x))
