"""Sorted, merged and transposed lists, on the CPU and in the form for devices, against plain Python."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import EdgeIndex

from graphact import Graph
from graphact.graph import build
from support.building import DTYPES, as_python, by_hand, edge_index_of, edge_lists


@pytest.fixture(params=["host", "device"])
def where(request, monkeypatch):
    """The CPU's own way, or the one that other devices take."""
    if request.param == "device":
        monkeypatch.setattr(build, "is_on_host", lambda _: False)
    return request.param


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=edge_lists(),
    dtype=st.sampled_from(DTYPES),
    index_dtype=st.sampled_from([torch.int64, torch.int32]),
    contiguous=st.booleans(),
)
def test_everything(where, edges, dtype, index_dtype, contiguous):
    num_nodes, pairs, weights = edges
    edge_index = edge_index_of(pairs, index_dtype)  # a transposed view
    edge_index = edge_index.contiguous() if contiguous else edge_index
    weight = torch.tensor(weights, dtype=dtype)
    graph = Graph.from_edge_index(edge_index, weight, num_nodes)
    assert graph.dtype == dtype
    assert as_python(graph) == by_hand(num_nodes, pairs, weights)
    for kept, given_ in ((graph.weight, weight), (graph.incoming.col, edge_index)):
        assert kept.numel() == 0 or kept.data_ptr() != given_.data_ptr()  # a change in place leaves the graph alone


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists(max_nodes=5, max_edges=12))
def test_gradients(where, edges):
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


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edges=edge_lists(), from_pyg=st.booleans())
def test_edges_known_to_be_coalesced(where, edges, from_pyg):
    num_nodes, pairs, weights = edges
    table = dict(zip(pairs, weights, strict=True))
    pairs = sorted(table)
    weights = [table[pair] for pair in pairs]
    edge_index, weight = edge_index_of(pairs), torch.tensor(weights)
    if from_pyg:
        edge_index = EdgeIndex(edge_index.contiguous(), sparse_size=(num_nodes, num_nodes), sort_order="row")
    graph = Graph.from_edge_index(edge_index, weight, None if from_pyg else num_nodes, is_coalesced=True)
    assert as_python(graph) == by_hand(num_nodes, pairs, weights)


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
        (dict(edge_index=[[0, 2**62], [1, 1]], num_nodes=3), f"node indices from 0 to 2, got {2**62}"),
        (dict(edge_index=[[-(2**63), 2**62], [1, 1]], num_nodes=3), f"node indices from 0 to 2, got {-(2**63)}"),
        (dict(edge_index=[[0, 1], [1, 0]], edge_weight=[1.0, math.nan]), r"finite, got nan at index \[1\] \(1 "),
        (dict(edge_index=[[1], [1]], edge_weight=[-math.inf], num_nodes=2), "edge_weight must be finite, got -inf"),
        (dict(edge_index=[[0, 0], [1, 1]], edge_weight=[3e38, 3e38]), "summed over repeated edges must be finite"),
    ],
)
def test_bad_values(where, arguments, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_edge_index(**arguments)


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float64, 1e308), (torch.float32, 3e38), (torch.bfloat16, 3e38), (torch.float16, 6e4)]
)
def test_loops_that_sum_to_infinity(where, dtype, size):
    Graph.from_edge_index([[0, 0, 0], [0, 0, 1]], torch.tensor([size / 3, size / 3, 1], dtype=dtype), 2)
    with pytest.raises(ValueError, match="summed over repeated edges must be finite"):
        Graph.from_edge_index([[0, 0, 0], [0, 0, 1]], torch.tensor([size, size, 1], dtype=dtype), 2)


def test_weights_that_float32_does_not_tell_apart(where):
    weight = torch.tensor([1, 1 + 1e-12], dtype=torch.float64)
    assert Graph.from_edge_index([[0, 1], [1, 0]], weight, 2).is_directed


def test_weights_with_gaps(where):
    weight = torch.arange(6.0)[::2]
    assert Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], weight, 3).weight.tolist() == [4, 0, 2]


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
