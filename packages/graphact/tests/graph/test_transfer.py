"""A graph as a whole: copied to devices, pinned, shared between processes, handed to PyG."""

import gc
import weakref

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor

from graphact import Graph
from graphact.graph.neighborhoods import map_tensors

GRAPHS = {
    "undirected": Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=4),
    "directed with loops": Graph.from_edge_index([[0, 1, 1, 2], [1, 1, 2, 0]], [1.0, 2.0, 3.0, 4.0]),
    "union": Graph.union([Graph.from_edge_index([[0, 1], [1, 0]]), Graph.from_edge_index([[0], [1]], num_nodes=3)]),
}
each_graph = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


def tensors_of(graph):
    found = []
    map_tensors(graph, lambda part: found.append(part) or part)
    return found


def assert_same(first, second):
    assert repr(first) == repr(second)
    for mine, other in zip(tensors_of(first), tensors_of(second), strict=True):
        assert mine.dtype == other.dtype
        assert torch.equal(mine, other)


@each_graph
def test_what_is_shared_inside_stays_shared(graph):
    graph = map_tensors(graph, torch.clone)
    graph.hop_pattern(2)
    copied = map_tensors(graph, torch.clone)
    assert_same(graph, copied)
    assert (copied.incoming is copied.outgoing) == (graph.incoming is graph.outgoing)
    assert (copied.weight is copied.outgoing_weight) == (graph.weight is graph.outgoing_weight)
    assert copied.weight is not graph.weight
    assert copied._patterns.keys() == graph._patterns.keys()
    assert copied.incoming.sizes.device.type == "cpu"


@each_graph
def test_moves_as_tensors_do(graph):
    assert graph.cpu() is graph
    assert graph.to(device="cpu", non_blocking=True) is graph
    assert graph.to("cpu", torch.float64, non_blocking=True).dtype == torch.float64
    meta = graph.to("meta")
    assert {part.device.type for part in tensors_of(meta)} == {"meta"}
    assert meta.incoming.sizes.device.type == "cpu"


@each_graph
def test_shared_memory_in_place(graph):
    graph = map_tensors(graph, torch.clone)
    before = graph.weight
    assert graph.share_memory_() is graph
    assert graph.weight is before
    assert all(part.is_shared() for part in tensors_of(graph))


@each_graph
def test_to_pyg_and_back(graph):
    data = graph.to_pyg()
    assert data.validate()
    assert data.num_nodes == graph.num_nodes
    assert_same(graph, Graph.from_pyg(data))


@pytest.mark.filterwarnings("ignore:Sparse (CSR|invariant)")
def test_pyg_data_with_adj_t():
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 0]])
    data = Data(edge_index=edge_index, edge_weight=torch.tensor([1.0, 2.0, 3.0, 4.0]), num_nodes=4)
    expected = Graph.from_pyg(data)
    sparse = ToSparseTensor(attr="edge_weight")(data)
    assert "edge_index" not in sparse
    assert_same(expected, Graph.from_pyg(sparse))


@each_graph
def test_a_moved_graph_is_freed_with_its_last_name(graph):
    """Not when garbage is collected: that may be in a worker of a loader, where pinned memory must not be touched."""
    gc.disable()
    try:
        moved = graph.to(torch.float64)
        parts = [weakref.ref(part) for part in (moved.weight, moved.incoming)]
        del moved
        assert [part() for part in parts] == [None, None]
    finally:
        gc.enable()
