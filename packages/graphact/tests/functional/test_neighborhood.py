"""Literal truth tables of the neighbourhood functions, corner cases, and users' own functions."""

import functools
import math

import pytest
import torch

from graphact import Graph, functional, nn
from support.graphs import random_graph

NAN, INF = math.nan, math.inf

# 0 hears 1, 2, 3, 4; 1 hears 0 and 2; 2 hears 1; 3 and 4 hear nobody
HEARS = Graph.from_edge_index([[1, 2, 3, 4, 0, 2, 1], [0, 0, 0, 0, 1, 1, 2]], num_nodes=5)

TABLE = [
    # op, closed, x, expected
    ("max", False, [5, 1, 4, 2, 3], [4, 5, 1, 0, 0]),
    ("max", True, [5, 1, 4, 2, 3], [5, 5, 4, 2, 3]),
    ("max", False, [-5, -1, -4, -2, -3], [-1, -4, -1, 0, 0]),
    ("min", False, [5, 1, 4, 2, 3], [1, 4, 1, 0, 0]),
    ("min", True, [5, 1, 4, 2, 3], [1, 1, 1, 2, 3]),
    ("median", False, [5, 1, 4, 2, 3], [2, 4, 1, 0, 0]),
    ("median", True, [5, 1, 4, 2, 3], [3, 4, 1, 2, 3]),
    ("median", False, [0, 7, 7, 7, 7], [7, 0, 7, 0, 0]),
    ("max", False, [0, -INF, -INF, -INF, -INF], [-INF, 0, -INF, 0, 0]),
    ("median", False, [0, INF, -INF, INF, 1], [1, -INF, INF, 0, 0]),
    ("max", False, [0, 1, NAN, 2, 3], [NAN, NAN, 1, 0, 0]),
    ("min", False, [0, 1, NAN, 2, 3], [NAN, NAN, 1, 0, 0]),
    ("median", False, [0, 1, NAN, 2, 3], [NAN, NAN, 1, 0, 0]),
]
FUNCTIONS = {
    "max": functional.neighborhood_max,
    "min": functional.neighborhood_min,
    "median": functional.neighborhood_median,
}


@pytest.mark.parametrize(("op", "closed", "x", "expected"), TABLE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_truth_table(op, closed, x, expected, dtype):
    x = torch.tensor(x, dtype=dtype).unsqueeze(-1)
    out = FUNCTIONS[op](x, HEARS.to(dtype=dtype), closed=closed)
    torch.testing.assert_close(out.squeeze(-1), torch.tensor(expected, dtype=dtype), equal_nan=True, rtol=0, atol=0)


def test_kernel_ignores_closed_and_propagates_nan():
    x = torch.tensor([[1.0], [NAN], [4.0], [0.0], [0.0]])
    out = functional.neighborhood_kernel(x, HEARS, closed=True)
    assert out.isnan().squeeze().tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("op", ["max", "min", "median"])
@pytest.mark.parametrize("closed", [False, True])
def test_users_function_equals_the_named_one(op, closed):
    graph, x = random_graph(), torch.randn(2, 12, 3, dtype=torch.float64)
    theirs = {
        "max": lambda neighbors: neighbors.amax(-2),
        "min": lambda neighbors: neighbors.amin(-2),
        "median": lambda neighbors: neighbors.median(-2).values,
    }[op]
    ours = FUNCTIONS[op](x, graph, closed=closed)
    torch.testing.assert_close(functional.neighborhood_apply(x, graph, theirs, closed=closed), ours)


def test_users_function_own_value_and_neighbors():
    graph, x = random_graph(), torch.randn(2, 12, 3, dtype=torch.float64)

    def kernel(own, neighbors):
        return torch.exp(-(own - neighbors).square().sum(-2) / (2 * 0.5**2))

    expected = functional.neighborhood_kernel(x, graph, 0.5)
    torch.testing.assert_close(functional.neighborhood_apply(x, graph, kernel), expected)
    weights = torch.ones(2, dtype=torch.float64)
    torch.testing.assert_close(
        functional.graph_adaptive(x, graph, 1.0, weights, kernel),
        functional.graph_adaptive(x, graph, 1.0, weights, "kernel", gamma=0.5),
    )


def test_users_function_over_several_hops_and_its_gradient():
    graph = random_graph(6, 0.3)
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, dtype=torch.float64)

    def mean(neighbors):
        return neighbors.mean(-2)

    for activation in (functional.localized, functional.graph_adaptive):
        assert torch.autograd.gradcheck(lambda x, run=activation: run(x, graph, 1.0, weights, mean), x)


@pytest.mark.parametrize("x_shape", [(4, 1, 2), (0, 1, 2), (1, 3)])
def test_single_node_and_empty_batch(x_shape):
    graph = Graph.from_edge_index([[], []], num_nodes=1)
    x = torch.randn(x_shape)
    assert torch.equal(functional.neighborhood_median(x, graph), torch.zeros(x_shape))
    assert torch.equal(functional.neighborhood_max(x, graph, closed=True), x)
    assert torch.equal(functional.neighborhood_kernel(x, graph), torch.ones(x_shape))
    assert torch.equal(functional.shift(x, graph), torch.zeros(x_shape))


class Attention(torch.nn.Module):
    """A learnable function of a neighbourhood."""

    def __init__(self):
        super().__init__()
        self.sharpness = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, own, neighbors):
        closeness = torch.softmax(-self.sharpness * (own - neighbors).abs(), dim=-2)
        return (closeness * neighbors).sum(-2)


class Span:
    """A callable that is neither hashable nor a function."""

    __hash__ = None

    def __call__(self, neighbors):
        return neighbors.amax(-2) - neighbors.amin(-2)

    def own_value(self, own, neighbors):
        return neighbors.amax(-2) - own.squeeze(-2)


def test_the_arguments_of_a_function_are_looked_up_once(monkeypatch):
    graph, x = random_graph(), torch.randn(12, 2, dtype=torch.float64)
    activation = nn.GraphAdaptive(lambda own, neighbors: (own - neighbors).abs().amax(-2), hops=2).double()
    expected = activation(x, graph)
    with monkeypatch.context() as patch:
        patch.delattr("graphact.spec.reductions.argument_names")
        assert torch.equal(activation(x, graph), expected)
    span = functional.neighborhood_max(x, graph) - functional.neighborhood_min(x, graph)
    assert torch.equal(functional.neighborhood_apply(x, graph, Span()), span)
    above = torch.where(graph.degree[:, None] > 0, functional.neighborhood_max(x, graph) - x, 0)
    assert torch.equal(functional.neighborhood_apply(x, graph, Span().own_value), above)


def test_modules_partials_and_builtins_as_functions():
    graph, x = random_graph(dtype=torch.float32), torch.randn(2, 12, 3)
    learned = nn.GraphAdaptive(Attention(), hops=2)
    learned(x, graph).sum().backward()
    assert learned.op.sharpness.grad is not None
    assert "op.sharpness" in dict(learned.named_parameters())
    largest = functional.neighborhood_apply(x, graph, functools.partial(torch.amax, dim=-2))
    assert torch.equal(largest, functional.neighborhood_max(x, graph))
    assert torch.equal(functional.neighborhood_apply(x, graph, lambda *args: args[0].amax(-2)), largest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_shift_with_a_diagonal_keeps_its_digits(dtype):
    graph = Graph.stochastic_block_model([50, 50], 0.8, 0.2).normalize("laplacian")
    x = (5 + 0.1 * torch.randn(100, 1)).to(dtype)
    exact = functional.shift(x.double(), graph.to(torch.float64))
    error = (functional.shift(x, graph).double() - exact).abs().max()
    assert error <= torch.finfo(dtype).eps * exact.abs().max()


def test_gradients_of_a_function_on_a_graph_without_edges_are_zero():
    x = torch.ones(3, 2, requires_grad=True)
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=3)
    out = functional.neighborhood_apply(x, graph, lambda neighbors: neighbors.mean(-2))
    out.sum().backward()
    assert torch.equal(out, torch.zeros(3, 2))
    assert torch.equal(x.grad, torch.zeros(3, 2))
