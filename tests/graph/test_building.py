"""Sorted, merged and transposed lists, on the CPU and in the form for devices, against plain Python."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import EdgeIndex

from graphact import Graph
from graphact.graph import build

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@st.composite
def edge_lists(draw, max_nodes=9, max_edges=40):
    """Any edges: repeated, loops, isolated nodes, in one or both directions, in any order or sorted."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=max_edges))
    if draw(st.booleans()):
        pairs += [(target, source) for source, target in pairs]
    order = draw(st.sampled_from(["any", "source", "target", "coalesced"]))
    if order == "coalesced":
        pairs = sorted(set(pairs))
    elif order != "any":
        pairs.sort(key=lambda pair: pair if order == "source" else pair[::-1])
    exact = st.integers(-8, 8).map(lambda number: number / 4)
    # symmetric weights half of the time
    table = {pair: draw(exact) for pair in sorted({tuple(sorted(pair)) for pair in pairs})}
    symmetric = draw(st.booleans())
    weights = [table[tuple(sorted(pair))] if symmetric else draw(exact) for pair in pairs]
    return num_nodes, pairs, weights


def by_hand(num_nodes, pairs, weights):
    """Every attribute of a graph, by dictionaries and sorting."""
    entries, diagonal = {}, {}
    for (source, target), weight in zip(pairs, weights, strict=True):
        kind, key = (diagonal, source) if source == target else (entries, (target, source))
        kind[key] = kind.get(key, 0.0) + weight
    edges, edges_t = sorted(entries), sorted((source, target) for target, source in entries)
    lists = {i: [j for target, j in edges if target == i] for i in range(num_nodes)}
    lists_t = {j: [i for source, i in edges_t if source == j] for j in range(num_nodes)}
    return {
        "incoming": tables(lists),
        "outgoing": tables(lists_t),
        "weight": [entries[edge] for edge in edges],
        "outgoing_weight": [entries[target, source] for source, target in edges_t],
        "diagonal": [diagonal.get(node, 0.0) for node in range(num_nodes)] if diagonal else None,
        "is_directed": any(entries.get((s, t)) != weight for (t, s), weight in entries.items()),
        "incoming_slot": [lists[target].index(source) for source, target in edges_t],
        "shares": edges == edges_t,
    }


def tables(lists):
    degrees = [len(members) for members in lists.values()]
    return {
        "rowptr": [0, *np.cumsum(degrees).tolist()],
        "col": [member for members in lists.values() for member in members],
        "order": sorted(lists, key=lambda node: (degrees[node], node)),
        "groups": tuple((degree, degrees.count(degree)) for degree in sorted(set(degrees))),
    }


def as_python(graph):
    def lists(part):
        assert part.rowptr.dtype == part.col.dtype == part.order.dtype == torch.int64
        assert part.groups == tuple(map(tuple, part.sizes.tolist()))
        assert part.order[part.rank].tolist() == list(range(part.num_nodes))
        return {name: getattr(part, name).tolist() for name in ("rowptr", "col", "order")} | {"groups": part.groups}

    assert graph.incoming_slot.dtype == torch.int32
    return {
        "incoming": lists(graph.incoming),
        "outgoing": lists(graph.outgoing),
        "weight": graph.weight.tolist(),
        "outgoing_weight": graph.outgoing_weight.tolist(),
        "diagonal": None if graph.diagonal is None else graph.diagonal.tolist(),
        "is_directed": graph.is_directed,
        "incoming_slot": graph.incoming_slot.tolist(),
        "shares": graph.outgoing is graph.incoming,
    }


def edge_index_of(pairs, dtype=torch.int64):
    return torch.tensor(pairs, dtype=dtype).reshape(-1, 2).T


@pytest.fixture(params=["host", "device"])
def where(request, monkeypatch):
    """The CPU's own way, or the one that other devices take."""
    if request.param == "device":
        monkeypatch.setattr(build, "is_on_host", lambda _: False)
    return request.param


@settings(max_examples=300)
@given(edge_lists(), st.sampled_from(DTYPES), st.sampled_from([torch.int64, torch.int32]), st.booleans())
def check_everything(edges, dtype, index_dtype, contiguous):
    num_nodes, pairs, weights = edges
    edge_index = edge_index_of(pairs, index_dtype)  # a transposed view
    edge_index = edge_index.contiguous() if contiguous else edge_index
    weight = torch.tensor(weights, dtype=dtype)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes)
    assert graph.dtype == dtype
    assert as_python(graph) == by_hand(num_nodes, pairs, weights)
    for kept, given_ in ((graph.weight, weight), (graph.incoming.col, edge_index)):
        assert kept.numel() == 0 or kept.data_ptr() != given_.data_ptr()  # a change in place leaves the graph alone


def test_everything(where):
    check_everything()


@settings(max_examples=50)
@given(edge_lists(max_nodes=5, max_edges=12))
def check_gradients(edges):
    num_nodes, pairs, weights = edges
    weight = torch.tensor(weights, dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edge_index(edge_index_of(pairs), weight, num_nodes)
    out = torch.arange(1.0, 1 + graph.num_edges, dtype=torch.float64)
    total = (graph.weight * out).sum() + (graph.outgoing_weight * out.square()).sum()
    if graph.diagonal is not None:
        total = total + (graph.diagonal * torch.arange(1.0, num_nodes + 1, dtype=torch.float64)).sum()
    if not pairs:
        return
    (found,) = torch.autograd.grad(total, weight)
    entry = {pair: at for at, pair in enumerate(sorted({(t, s) for s, t in pairs if s != t}))}
    entry_t = {pair: at for at, pair in enumerate(sorted({pair for pair in pairs if pair[0] != pair[1]}))}
    expected = [
        source + 1 if source == target else (entry[target, source] + 1) + (entry_t[source, target] + 1) ** 2
        for source, target in pairs
    ]
    assert found.tolist() == expected


def test_gradients(where):
    check_gradients()


@settings(max_examples=100)
@given(edge_lists(), st.booleans())
def check_coalesced(edges, from_pyg):
    num_nodes, pairs, weights = edges
    table = dict(zip(pairs, weights, strict=True))
    pairs = sorted(table)
    weights = [table[pair] for pair in pairs]
    edge_index, weight = edge_index_of(pairs), torch.tensor(weights)
    if from_pyg:
        edge_index = EdgeIndex(edge_index.contiguous(), sparse_size=(num_nodes, num_nodes), sort_order="row")
    graph = Graph.from_edge_index(edge_index, weight, None if from_pyg else num_nodes, is_coalesced=True)
    assert as_python(graph) == by_hand(num_nodes, pairs, weights)


def test_edges_known_to_be_coalesced(where):
    check_coalesced()


def test_coalesced_edges_need_a_number_of_nodes():
    with pytest.raises(ValueError, match="num_nodes must be given with is_coalesced=True, got None"):
        Graph.from_edge_index([[0], [1]], is_coalesced=True)


def test_an_edge_index_of_pyg_knows_its_nodes():
    plain = torch.tensor([[0, 1], [1, 2]])
    assert Graph.from_edge_index(EdgeIndex(plain, sparse_size=(7, 7))).num_nodes == 7
    assert Graph.from_edge_index(EdgeIndex(plain, sparse_size=(7, 7)), num_nodes=8).num_nodes == 8
    assert Graph.from_edge_index(EdgeIndex(plain)).num_nodes == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(edge_index=[[0, 5], [1, 1]], num_nodes=3), "node indices from 0 to 2, got 5"),
        (dict(edge_index=[[0, -1], [1, 1]]), "node indices from 0 to 1, got -1"),
        (dict(edge_index=[[0, -3], [1, 7]], num_nodes=3), "node indices from 0 to 2, got -3"),
        (dict(edge_index=[[0, 1], [1, 0]], edge_weight=[1.0, math.nan]), r"edge_weight must be finite, got nan \(1 su"),
        (dict(edge_index=[[1], [1]], edge_weight=[-math.inf], num_nodes=2), "edge_weight must be finite, got -inf"),
        (dict(edge_index=[[0, 0], [1, 1]], edge_weight=[3e38, 3e38]), "summed over repeated edges must be finite"),
    ],
)
def test_bad_values(where, arguments, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_edge_index(**arguments)


def test_large_weights_are_finite_though_their_sum_is_not(where):
    graph = Graph.from_edge_index([[0, 1], [1, 0]], torch.full((2,), 3e38))
    assert graph.weight.isfinite().all()


def test_repeated_edges_are_summed_in_their_order(where):
    """Rounding tells the order: 1 is lost beside 1e8, unless it is added last."""
    weight = torch.tensor([1.0, 1e8, -1e8, 1.0])
    graph = Graph.from_edge_index([[0] * 4, [1] * 4], weight)
    assert graph.weight.item() == 1.0
    assert Graph.from_edge_index([[0] * 4, [1] * 4], weight[[1, 0, 2, 3]]).weight.item() == 1.0
    assert Graph.from_edge_index([[0] * 4, [1] * 4], weight[[1, 2, 0, 3]]).weight.item() == 2.0


def test_many_edges_on_both_ways(monkeypatch):
    """Large enough that repetitions, row boundaries and wide degrees all occur."""
    rng = np.random.default_rng(0)
    edge_index = torch.from_numpy(np.minimum(rng.integers(0, 500, (2, 20_000)), rng.integers(0, 500, (2, 20_000))))
    weight = torch.rand(20_000, dtype=torch.float64)
    graph = Graph.from_edge_index(edge_index, weight, 501)
    dense = torch.zeros(501, 501, dtype=torch.float64).index_put(
        (edge_index[1], edge_index[0]), weight, accumulate=True
    )
    torch.testing.assert_close(graph.to_dense(), dense, rtol=1e-12, atol=0)
    monkeypatch.setattr(build, "is_on_host", lambda _: False)
    assert as_python(Graph.from_edge_index(edge_index, weight, 501)) == as_python(graph)


def test_lists_longer_than_16_bits():
    """Degrees beyond what NumPy sorts by digits."""
    leaves = 70_000
    edge_index = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.int64)])
    star = Graph.from_edge_index(edge_index)
    assert star.incoming.groups == ((0, leaves), (leaves, 1))
    assert star.incoming.order[-1] == 0


@settings(max_examples=100)
@given(st.lists(edge_lists(max_nodes=5, max_edges=12), min_size=1, max_size=5))
def test_union_equals_building_from_scratch(several):
    parts, pairs, weights, nodes = [], [], [], 0
    for num_nodes, some, values in several:
        parts.append(Graph.from_edge_index(edge_index_of(some), torch.tensor(values), num_nodes))
        pairs += [(source + nodes, target + nodes) for source, target in some]
        weights += values
        nodes += num_nodes
    assert as_python(Graph.union(parts)) == by_hand(nodes, pairs, weights)


def test_gradients_flow_through_a_union():
    weight = torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edge_index([[0, 1], [1, 0]], weight)
    both = Graph.union([graph, graph.normalize("laplacian")])
    (found,) = torch.autograd.grad((both.weight * torch.tensor([1.0, 2.0, 5.0, 9.0])).sum(), weight)
    assert found.tolist() == [2.0 - 9.0, 1.0 - 5.0]


@settings(max_examples=60)
@given(edge_lists(), st.sampled_from(["symmetric", "random_walk", "laplacian"]))
def test_new_weights_leave_the_lists_alone(edges, kind):
    num_nodes, pairs, weights = edges
    graph = Graph.from_edge_index(edge_index_of(pairs), torch.tensor(weights, dtype=torch.float64), num_nodes)
    found = graph.normalize(kind)
    assert found.incoming is graph.incoming
    assert found.incoming_slot is graph.incoming_slot
    scratch = Graph.from_edge_index(graph_edges(found), found.weight, num_nodes)
    expected = as_python(scratch) | {"diagonal": None if found.diagonal is None else found.diagonal.tolist()}
    assert as_python(found) == expected


def graph_edges(graph):
    return torch.stack([graph.incoming.col, graph.incoming.rows])


def test_lists_held_twice_are_still_symmetric():
    """As after torch.utils._pytree.tree_map, which copies leaf by leaf."""
    graph = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], torch.tensor([1.0, 2.0, 2.0, 1.0]))
    copy = torch.utils._pytree.tree_map(lambda leaf: leaf, graph)
    assert copy.outgoing is not copy.incoming
    assert copy.normalize("random_walk").is_directed == graph.normalize("random_walk").is_directed
    regular = torch.utils._pytree.tree_map(lambda leaf: leaf, Graph.from_edge_index([[0, 1], [1, 0]]))
    assert not regular.normalize("random_walk").is_directed


class Called(TorchDispatchMode):
    """The names of all operators that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


# what waits for a GPU: reading a number, or a result whose size the device finds
WAITS = {"_local_scalar_dense", "equal", "nonzero", "unique", "_unique2", "unique_consecutive", "bincount", "item"}


def test_one_read_back_on_devices(monkeypatch):
    edge_index = torch.randint(0, 50, (2, 300)).unique(dim=1)
    reads, right = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: reads.append(self.numel()) or right(self))
    with Called() as called:  # which takes the devices' way
        graph = Graph.from_edge_index(edge_index, torch.rand(edge_index.size(1)), 50)
        built = len(called.names)
        symmetric = Graph.from_edge_index(torch.cat([edge_index, edge_index.flip(0)], 1).unique(dim=1), None, 50)
        union_begins = len(called.names)
        Graph.union([graph, symmetric, graph])
        Graph.union([symmetric, symmetric]).normalize("symmetric")
    assert len(reads) == 2
    assert "sort" in called.names[:built]
    assert not WAITS & {*called.names[:built], *called.names[union_begins:]}
