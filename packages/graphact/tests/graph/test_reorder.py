"""Renumbering for the cache: the same graph, with neighbours nearer to each other."""

import pytest
import torch

import graphact
from graphact import Graph
from support.graphs import random_graph


def span(graph):
    """The mean distance between the numbers of neighbours."""
    return (graph.incoming.rows - graph.incoming.col).abs().double().mean()


@pytest.mark.parametrize(
    "graph",
    [
        random_graph(),
        Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=3).to(torch.float64),
        Graph.union([random_graph(), random_graph(seed=1)]),
    ],
    ids=["one", "without edges", "union"],
)
def test_the_order_says_who_is_who(graph):
    reordered, order = graph.reorder()
    assert torch.equal(order.sort().values, torch.arange(graph.num_nodes))
    assert torch.equal(reordered.to_dense(), graph.to_dense()[order][:, order])
    x = torch.randn(3, graph.num_nodes, 2, dtype=torch.float64)
    there = graphact.functional.shift(x[:, order], reordered)
    torch.testing.assert_close(there, graphact.functional.shift(x, graph)[:, order])


def test_neighbours_of_a_grid_come_near():
    side = 30
    number = torch.randperm(side * side, generator=torch.Generator().manual_seed(0)).view(side, side)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    edges = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
    graph = Graph.from_edge_index(torch.cat([edges, edges.flip(0)], dim=1))
    reordered, _ = graph.reorder()
    assert span(reordered) < 1.5 * side
    assert span(graph) > 5 * span(reordered)
