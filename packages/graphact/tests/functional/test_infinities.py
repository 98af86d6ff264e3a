"""An infinity stays where it is: a self-loop elsewhere does not turn it into NaN."""

import math

import pytest
import torch

import graphact
from graphact import Graph, functional
from graphact.distributed import PartitionedGraph

INF = float("inf")
BACKENDS = ["reference", "numba"]


def graph(dtype, *, trained=False):
    """The path 0 - 1 - 2 and the node 3 alone; only 2 has a self-loop."""
    weight = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.5], dtype=dtype, requires_grad=trained)
    return Graph.from_edge_index([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]], weight, 4)


def signal(dtype, columns=1):
    return torch.tensor([INF, 1.0, 2.0, -INF], dtype=dtype).unsqueeze(-1).repeat(1, columns)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("columns", [1, 300])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_a_shift(dtype, columns, backend, trained):
    with graphact.backend(backend):
        found = functional.shift(signal(dtype, columns), graph(dtype, trained=trained))
    assert found[:, -1].tolist() == [1.0, INF, 2.0, 0.0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("columns", [1, 300])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_an_activation(dtype, hops, columns, backend, trained):
    """Its signals are [1, inf, 2, 0] after one shift and [inf, 3, inf, 0] after two."""
    ones = torch.ones(hops, dtype=dtype)
    with graphact.backend(backend):
        found = functional.graph_adaptive(
            signal(dtype, columns), graph(dtype, trained=trained), torch.zeros((), dtype=dtype), ones
        )
    expected = {1: [INF, 2.0, INF, 0.0], 2: [INF, INF, INF, 0.0]}[hops]
    # beta = 0 times an infinity is NaN, as it is without a graph
    assert found[1:3, -1].tolist() == expected[1:3]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("closed", [False, True])
def test_an_infinite_node_does_not_differ_from_itself(closed, backend):
    with graphact.backend(backend):
        x, place, ones = signal(torch.float64), graph(torch.float64), torch.ones(1, dtype=torch.float64)
        found = functional.localized(x, place, 1.0, ones, "kernel", gamma=1.0, closed=closed)
    assert found.squeeze().tolist() == [INF, 1.0, pytest.approx(2 + math.exp(-0.5)), 1.0]


def test_the_node_that_has_the_self_loop_keeps_its_infinity():
    x = torch.tensor([0.0, 0.0, INF, 0.0]).unsqueeze(-1)
    assert functional.shift(x, graph(torch.float32)).squeeze().tolist() == [0.0, INF, INF, 0.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).unsqueeze(-1).requires_grad_()
    with graphact.backend(backend):
        functional.shift(x, graph(torch.float32)).backward(signal(torch.float32))
    assert x.grad.squeeze().tolist() == [1.0, INF, 2.0, 0.0]


def test_the_gradient_of_a_trained_self_loop_that_is_zero():
    weight = torch.tensor([1.0, 1.0, 0.0], requires_grad=True)
    loop = Graph.from_edge_index([[0, 1, 0], [1, 0, 0]], weight, 2)
    functional.shift(torch.tensor([[3.0], [5.0]]), loop).sum().backward()
    assert weight.grad.tolist() == [3.0, 5.0, 3.0]


def test_parts_of_a_graph():
    whole = graph(torch.float64)
    part = PartitionedGraph.from_graph(whole)
    assert functional.shift(signal(torch.float64), part).squeeze().tolist() == [1.0, INF, 2.0, 0.0]


def test_a_fleet():
    from graphact.training.stacked import StackedGraphs

    graphs = StackedGraphs([graph(torch.float64), graph(torch.float64)])
    graphs.dense = None
    found = graphs.shift(signal(torch.float64).view(1, 4, 1, 1).repeat(2, 1, 1, 1))
    assert found.view(2, 4).tolist() == [[1.0, INF, 2.0, 0.0]] * 2
