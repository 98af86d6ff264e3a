"""Functions, modules and graphs of a user are freed after their last use."""

import gc
import weakref

import pytest
import torch

from graphact import Graph, functional, nn

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 0]])


def is_forgotten(thing, use):
    """Return true if ``thing()`` is freed after its use, forward and backward."""
    made = thing()
    use(made).sum().backward()
    reference = weakref.ref(made)
    del made
    gc.collect()
    return reference() is None


def signal():
    return torch.randn(2, 5, 3, requires_grad=True)


def a_function():
    table = torch.ones(3)  # which it holds
    return lambda neighbors: neighbors.sum(-2) * table


class AModule(torch.nn.Module):
    def forward(self, own, neighbors):
        return (own - neighbors).abs().amax(-2)


@pytest.mark.parametrize("thing", [a_function, AModule])
def test_functions_of_neighbors(thing):
    graph, weights = Graph.from_edge_index(EDGES), torch.ones(2, 3)
    assert is_forgotten(thing, lambda op: functional.neighborhood_apply(signal(), graph, op))
    assert is_forgotten(thing, lambda op: functional.graph_adaptive(signal(), graph, 1.0, weights, op))
    assert is_forgotten(thing, lambda op: functional.localized(signal(), graph, 1.0, weights, op, closed=True))
    both = torch.ones(2, 2, 3)
    assert is_forgotten(thing, lambda op: functional.graph_adaptive_mixture(signal(), graph, 1.0, both, [op, "max"]))
    assert is_forgotten(thing, lambda op: nn.GraphAdaptive(op, features=3)(signal(), EDGES))


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_activations_and_graphs(name):
    graph = Graph.from_edge_index(EDGES)

    def activation():
        return nn.make_activation(name, features=3, hops=2)

    assert is_forgotten(activation, lambda module: module(signal(), graph))
    assert is_forgotten(lambda: Graph.from_edge_index(EDGES), lambda graph: activation()(signal(), graph))
    assert is_forgotten(EDGES.clone, lambda edge_index: activation()(signal(), edge_index))
