"""Graphs built on the device equal those of the CPU, wait for it once, and are joined without waiting."""

import pytest
import torch
from support.waiting import waits, when_waiting

from graphact import Graph, functional, nn


def edges(nodes, count, seed=0, repeated=False):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(nodes, (2, count), generator=generator)
    if not repeated:
        edge_index = edge_index.unique(dim=1)
        edge_index = edge_index[:, torch.randperm(edge_index.size(1), generator=generator)]
    return edge_index, torch.rand(edge_index.size(1), generator=generator, dtype=torch.float64)


def leaves(graph):
    return torch.utils._pytree.tree_leaves(graph)


def assert_same(found, expected):
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        if torch.is_tensor(one):
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=1e-14, atol=0)
        else:
            assert one == other


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("nodes", "count"), [(1, 3), (34, 150), (2708, 10_556), (70_000, 300_000)])
def test_as_on_the_cpu(nodes, count, symmetric, repeated):
    edge_index, weight = edges(nodes, count, repeated=repeated)
    if symmetric:
        edge_index, weight = torch.cat([edge_index, edge_index.flip(0)], dim=1), weight.repeat(2)
    expected = Graph.from_edge_index(edge_index, weight, nodes)
    assert_same(Graph.from_edge_index(edge_index.cuda(), weight.cuda(), nodes), expected)
    unknown = Graph.from_edge_index(edge_index.int().cuda(), weight.cuda())
    assert_same(unknown.degree, expected.degree[: unknown.num_nodes])


def test_bad_values_leave_the_device_usable():
    index = torch.tensor([[0, 9], [1, 0]]).cuda()
    with pytest.raises(ValueError, match="node indices from 0 to 2, got 9"):
        Graph.from_edge_index(index, num_nodes=3)
    with pytest.raises(ValueError, match="node indices from 0 to 2, got -5"):
        Graph.from_edge_index(index.clamp(max=1) * -5, num_nodes=3)
    with pytest.raises(ValueError, match="edge_weight must be finite, got nan"):
        Graph.from_edge_index(index, torch.tensor([1.0, torch.nan]).cuda(), num_nodes=10)
    assert Graph.from_edge_index(index, num_nodes=10).num_edges == 2


def test_building_waits_once():
    edge_index, weight = (tensor.cuda() for tensor in edges(2708, 10_556))
    ordered = edge_index.unique(dim=1)
    assert waits(lambda: Graph.from_edge_index(edge_index, weight, 2708)) == 1
    assert waits(lambda: Graph.from_edge_index(ordered, weight, 2708, is_coalesced=True)) == 1
    both = torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)
    assert waits(lambda: Graph.from_edge_index(both, None, 2708)) == 1


def test_joining_and_training_do_not_wait():
    graphs = []
    for seed in range(32):
        edge_index, _ = edges(40, 150, seed)
        both = torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)
        graphs.append(Graph.from_edge_index(both.cuda(), None, 40))
    model = nn.GraphAdaptiveMax(hops=2).cuda()
    x = torch.randn(32 * 40, 16, device="cuda", requires_grad=True)

    def step():
        graph = Graph.union(graphs).normalize("symmetric")
        model(functional.shift(x, graph), graph).sum().backward()

    step()
    with when_waiting("error"):
        step()
    assert_same(Graph.union(graphs), Graph.union([graph.to("cpu") for graph in graphs]))


def test_layers_share_a_graph_on_the_device():
    edge_index, _ = edges(34, 150)
    edge_index, x, model = edge_index.cuda(), torch.randn(34, 4, device="cuda"), nn.GraphAdaptiveMax().cuda()
    model(x, edge_index)
    assert waits(lambda: model(x, edge_index)) == 0
