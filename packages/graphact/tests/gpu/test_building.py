"""Graphs built on the device equal those of the CPU, wait for it once, and are joined without waiting."""

import pytest
import torch

from graphact import Graph, functional, nn
from support.waiting import waits, when_waiting


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_coalesced", [False, True])
@pytest.mark.parametrize(
    ("nodes", "count"), [(2, 3), (34, 150), (46_340, 70_000), (46_341, 70_000), (169_343, 2_332_486)]
)
def test_any_size_and_type(nodes, count, is_coalesced, dtype):
    """Pairs of nodes are numbered in 32 bits up to 46,340 nodes."""
    edge_index, weight = edges(nodes, count)
    edge_index, weight = (edge_index.unique(dim=1) if is_coalesced else edge_index), weight.to(dtype)
    found = Graph.from_edge_index(edge_index.cuda(), weight.cuda(), nodes, is_coalesced=is_coalesced)
    assert_same(found, Graph.from_edge_index(edge_index, weight, nodes, is_coalesced=is_coalesced))


def test_one_long_list_and_many_empty_ones():
    """A star among a million nodes without edges."""
    leaves = torch.arange(500_000, 600_000)
    edge_index = torch.stack([leaves, torch.full_like(leaves, 999_999)])
    for index in (edge_index, edge_index.flip(0), torch.cat([edge_index, edge_index.flip(0)], 1)):
        star, expected = (Graph.from_edge_index(each, None, 1_000_000) for each in (index.cuda(), index))
        assert_same(star, expected)
        right = expected.normalize("symmetric").weight
        torch.testing.assert_close(star.normalize("symmetric").weight.cpu(), right)


@pytest.mark.parametrize("index", [-(2**63), -1, 10, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("row", [0, 1])
def test_any_index_out_of_bounds(index, row):
    edge_index = torch.zeros(2, 5000, dtype=torch.int64)
    edge_index[1] = 1
    edge_index[row, 4321] = index
    with pytest.raises(ValueError, match=f"node indices from 0 to 9, got {index}$"):
        Graph.from_edge_index(edge_index.cuda(), None, 10)
    torch.cuda.synchronize()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_any_weight_that_is_not_finite(bad, dtype):
    edge_index, _ = edges(300, 5000)
    weight = torch.ones(edge_index.size(1), dtype=dtype)
    weight[-1] = bad
    with pytest.raises(ValueError, match=rf"edge_weight must be finite, got {bad} at index \[\d+\] \(1 such values\)"):
        Graph.from_edge_index(edge_index.cuda(), weight.cuda(), 300)


def test_gradients_of_weights():
    edge_index, weight = edges(50, 400, repeated=True)
    found = []
    for place in ("cpu", "cuda"):
        given = weight.to(place).requires_grad_()
        graph = Graph.from_edge_index(edge_index.to(place), given, 50)
        both = Graph.union([graph, graph.normalize("symmetric")])
        total = (both.weight * torch.arange(both.num_edges, device=place)).sum() + both.outgoing_weight.square().sum()
        found.append(torch.autograd.grad(total, given)[0].cpu())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_normalize_as_on_the_cpu(symmetric, dtype):
    edge_index, weight = edges(2708, 10_556)
    if symmetric:
        edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1).unique(dim=1)
        weight = (edge_index[0] * edge_index[1] % 7).double() - 3
    expected = Graph.from_edge_index(edge_index, weight.to(dtype), 2708).normalize("symmetric")
    graph = Graph.from_edge_index(edge_index.cuda(), weight.cuda().to(dtype), 2708)
    found = graph.normalize("symmetric")
    assert found.is_directed == expected.is_directed == (not symmetric)
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        if torch.is_tensor(one) and one.is_floating_point():
            torch.testing.assert_close(one.cpu(), other, rtol=4 * torch.finfo(dtype).eps, atol=0)
    assert dtype == torch.float64 or not symmetric or waits(lambda: graph.normalize("symmetric")) == 0


def test_union_as_on_the_cpu():
    graphs = []
    for seed, (nodes, count) in enumerate([(40, 150), (5000, 30_000), (1, 1), (70_000, 300_000)]):
        graphs.append(Graph.from_edge_index(*edges(nodes, count, seed), nodes))
    assert_same(Graph.union([graph.cuda() for graph in graphs]), Graph.union(graphs))


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


@pytest.mark.parametrize("name", ["grelu", "digraf"])
def test_means_over_graphs_side_by_side_do_not_wait(name):
    graphs = [Graph.from_edge_index(edges(n, 5 * n, n)[0].cuda(), None, n).normalize("symmetric") for n in (40, 7, 1)]
    model = nn.GCNN([4, 8], activation=name, start="uniform").cuda()
    x = torch.randn(48, 4, device="cuda")
    alone = torch.cat([model(part, graph) for part, graph in zip(x.split([40, 7, 1]), graphs, strict=True)])
    union = Graph.union([Graph.union(graphs[:2]), graphs[2]])
    torch.testing.assert_close(model(x, union), alone, rtol=1e-4, atol=1e-5)
    with when_waiting("error"):
        model(x, Graph.union([Graph.union(graphs[:2]), graphs[2]])).sum().backward()


def test_layers_share_a_graph_on_the_device():
    edge_index, _ = edges(34, 150)
    edge_index, x, model = edge_index.cuda(), torch.randn(34, 4, device="cuda"), nn.GraphAdaptiveMax().cuda()
    model(x, edge_index)
    assert waits(lambda: model(x, edge_index)) == 0
