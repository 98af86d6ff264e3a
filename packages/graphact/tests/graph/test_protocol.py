"""Functions and modules ask a graph for passes over neighbours and for nothing else; any graph that answers serves."""

import pytest
import torch

import graphact
from graphact import functional, nn
from graphact.distributed import PartitionedGraph
from graphact.graph.protocol import GraphLike
from graphact.spec import UnsupportedModelError
from support.graphs import random_graph


class CountingGraph:
    """A graph of no class that graphact knows; hands everything on and counts it."""

    def __init__(self, graph):
        self.graph, self.calls = graph, []
        self.num_nodes, self.device, self.dtype, self.whole = graph.num_nodes, graph.device, graph.dtype, None

    def check_signal(self, x):
        self.calls.append("check")
        return self.graph.check_signal(x)

    def one_hop(self, x, pass_, *arguments):
        self.calls.append("one hop")
        return self.graph.one_hop(x, pass_, *arguments)

    def k_hop(self, x, hops, closed, term, walk=None):
        self.calls.append(f"{hops} hops")
        return self.graph.k_hop(x, hops, closed, term, walk)


@pytest.fixture
def graph():
    return random_graph()


@pytest.fixture
def x(graph):
    return torch.randn(2, graph.num_nodes, 3, dtype=graph.dtype)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (functional.shift, ["one hop"]),
        (functional.neighborhood_median, ["one hop"]),
        (functional.neighborhood_kernel, ["one hop"]),
        (lambda x, graph: functional.neighborhood_apply(x, graph, lambda own, others: others.sum(-2)), ["one hop"]),
        (lambda x, graph: functional.graph_filter(x, graph, x.new_ones(4)), ["one hop"] * 3),
        (lambda x, graph: functional.graph_filter(x, graph, x.new_ones(4, 3, 5)), ["one hop"] * 3),
        (lambda x, graph: functional.graph_filter(x, graph, x.new_ones(4, 3, 2)), ["one hop"] * 3),
        (lambda x, graph: functional.graph_adaptive(x, graph, 1.0, x.new_ones(3), "median"), ["one hop"] * 4),
        (lambda x, graph: functional.localized(x, graph, 1.0, x.new_ones(3), "max"), ["3 hops"]),
        (lambda x, graph: functional.localized(x, graph, 1.0, x.new_ones(3), "kernel"), ["3 hops"]),
    ],
)
def test_passes_of_each_function(graph, x, function, expected):
    """K hops take K + 1 passes, and the signal is checked once."""
    counting = CountingGraph(graph)
    assert torch.equal(function(x, counting), function(x, graph))
    assert counting.calls == ["check", *expected]


@pytest.mark.parametrize("name", sorted(nn.ACTIVATIONS))
def test_modules_take_any_graph(graph, x, name):
    model = nn.GCNN([3, 4], order=2, activation=name, hops=2).double()
    if name in ("grelu", "digraf"):  # they read means over all nodes
        with pytest.raises(UnsupportedModelError, match=f"'{name}' reads means over all nodes"):
            model(x, CountingGraph(graph))
        return
    assert torch.equal(model(x, CountingGraph(graph)), model(x, graph))


@pytest.mark.parametrize("op", ["max", "min", "median", "kernel", lambda others: others.mean(-2)])
@pytest.mark.parametrize("closed", [False, True])
def test_walks_give_what_the_lists_give(graph, x, op, closed):
    """A distributed graph has lists of several hops where a local one walks; of one process it has all nodes."""
    part, weights = PartitionedGraph.from_graph(graph), x.new_ones(3)
    on_lists = functional.localized(x, part, 1.0, weights, op, closed=closed)
    torch.testing.assert_close(on_lists, functional.localized(x, graph, 1.0, weights, op, closed=closed))


def test_both_graphs_answer(graph):
    for candidate in (graph, PartitionedGraph.from_graph(graph)):
        assert all(hasattr(candidate, name) for name in vars(GraphLike) if not name.startswith("_"))
    assert isinstance(graph, graphact.Graph)
