"""Graphs attached to PyG's data: batched by its loaders, from workers, moved, shown, taken apart."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset
from torch_geometric.datasets import FakeDataset, FakeHeteroDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN
from torch_geometric.utils import erdos_renyi_graph

from graphact import Graph, nn
from graphact.pyg import AttachGraph, GraphData, PassGraph
from support.building import as_python


def samples(count=7, features=3):
    torch.manual_seed(1)
    made = []
    for size in range(1, count + 1):  # the first has no edges
        edge_index = erdos_renyi_graph(size, 0.5, directed=True)
        edge_weight = torch.rand(edge_index.size(1))
        made.append(Data(x=torch.randn(size, features), edge_index=edge_index, edge_weight=edge_weight))
    loops = torch.tensor([[0, 1, 1], [0, 1, 0]])
    made.append(Data(x=torch.randn(3, features), edge_index=loops, edge_weight=torch.tensor([1.0, 2.0, 3.0])))
    return made


class Listed(torch.utils.data.Dataset):
    """A data set that applies a transform when a sample is asked for, as those of PyG do."""

    def __init__(self, data, transform):
        self.data, self.transform = data, transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.transform(self.data[index])


def assert_same(graph, expected):
    assert repr(graph) == repr(expected)
    assert as_python(graph) == as_python(expected)
    assert graph.batch is expected.batch is None or torch.equal(graph.batch, expected.batch)


@pytest.mark.parametrize("normalize", [None, "symmetric", "random_walk"])
def test_the_graph_is_that_of_the_data(normalize):
    data = samples()[4]
    attached = AttachGraph(normalize=normalize)(data)
    expected = Graph.from_pyg(data)
    assert_same(attached.graph, expected if normalize is None else expected.normalize(normalize))
    assert "graph" not in data
    assert type(data) is Data
    assert isinstance(attached, (GraphData, Data))
    assert attached.x is data.x
    assert AttachGraph()(attached).graph is not attached.graph
    assert type(AttachGraph()(attached)) is GraphData


def test_repr_shows_it():
    data = AttachGraph()(samples()[2])
    assert "graph=Graph(num_nodes=3, num_edges=" in repr(data)
    assert repr(data).startswith("GraphData(x=[3, 3], edge_index=")
    assert "graph=Graph(num_nodes=6" in repr(Batch.from_data_list([data, data]))
    assert repr(AttachGraph(None)) == "AttachGraph(normalize=None)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
def test_precision_is_that_of_the_signal(dtype):
    data = samples()[3]
    data.x, data.num_nodes = data.x.to(dtype), 4
    expected = dtype if dtype.is_floating_point and dtype.itemsize > 2 else torch.float32
    assert AttachGraph()(data).graph.dtype == expected
    del data.x
    assert AttachGraph()(data).graph.dtype == torch.float32


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_joins_the_graphs(workers):
    data = samples()
    dataset = Listed(data, AttachGraph())
    options = {"persistent_workers": True} if workers else {}
    loader = DataLoader(dataset, batch_size=3, num_workers=workers, **options)
    for _ in range(2):
        batches = list(loader)
        assert [batch.num_graphs for batch in batches] == [3, 3, 2]
        for batch, first in zip(batches, (0, 3, 6), strict=True):
            expected = Graph.union([item.graph for item in map(AttachGraph(), data[first : first + 3])])
            assert_same(batch.graph, expected)
            assert batch.graph.num_nodes == batch.num_nodes
            if workers:
                assert batch.graph.weight.is_shared()


@pytest.mark.slow
def test_workers_that_are_started_anew():
    """They import what they need, classes of one's own included."""
    loader = DataLoader(Listed(samples(), AttachGraph()), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert [batch.graph.num_nodes for batch in loader] == [10, 5 + 6 + 7 + 3]


def test_pyg_data_sets_and_other_transforms():
    transform = T.Compose([T.ToUndirected(), T.AddSelfLoops(), AttachGraph("random_walk")])
    dataset = FakeDataset(num_graphs=5, avg_num_nodes=12, transform=transform)
    batch = next(iter(DataLoader(dataset, batch_size=5)))
    torch.testing.assert_close(batch.graph.to_dense().sum(1), torch.ones(batch.num_nodes))
    assert batch.graph.num_edges + batch.num_nodes == batch.num_edges  # each node has a loop


def test_a_batch_is_taken_apart_again():
    data = [AttachGraph()(item) for item in samples()]
    batch = Batch.from_data_list(data)
    for index, (given, back) in enumerate(zip(data, batch.to_data_list(), strict=True)):
        assert type(back) is GraphData
        assert_same(back.graph, given.graph)
        assert torch.equal(back.x, given.x)
        assert torch.equal(batch[index].edge_index, given.edge_index)
    assert [item.num_nodes for item in batch[2:4]] == [3, 4]
    assert "graph" in batch
    rebatched = Batch.from_data_list(batch.to_data_list())
    assert_same(rebatched.graph, batch.graph)


def test_every_attribute_that_is_a_graph():
    path = Graph.from_edge_index([[0, 1], [1, 2]])
    data = GraphData(x=torch.ones(3, 1), graph=path, coarse=path.normalize("symmetric"), names=["a", "b"])
    batch = Batch.from_data_list([data, data])
    assert batch.graph.num_nodes == batch.coarse.num_nodes == 6
    assert batch.names == [["a", "b"], ["a", "b"]]
    assert_same(batch[1].coarse, data.coarse)
    without = Batch.from_data_list([data, data], exclude_keys=["coarse"])
    assert "coarse" not in without
    assert without[0].graph.num_nodes == 3


class Pair(Data):
    """A class of one's own: another index that counts nodes."""

    def __inc__(self, key, value, *arguments, **options):
        return self.x.size(0) if key == "partner" else super().__inc__(key, value, *arguments, **options)


def test_classes_of_ones_own_keep_their_rules():
    data = [Pair(**item.to_dict(), partner=torch.tensor([item.num_nodes - 1])) for item in samples()[:3]]
    attached = [AttachGraph()(item) for item in data]
    assert isinstance(attached[0], Pair)
    assert repr(attached[0]).startswith("GraphPair(")
    batch = Batch.from_data_list(attached)
    assert batch.partner.tolist() == [0, 2, 5]
    assert batch.graph.num_nodes == 6
    assert isinstance(batch[2], Pair)
    assert batch[2].partner.tolist() == [2]
    assert batch[2].graph.num_nodes == 3


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
@pytest.mark.parametrize("make", [lambda item: item, lambda item: Pair(**item.to_dict())])
def test_copies(copied, make):
    attached = [AttachGraph()(make(item)) for item in samples()[:4]]
    same = [copied(item) for item in attached]
    assert type(same[0]) is type(attached[0])
    batch = copied(Batch.from_data_list(same))
    assert_same(batch.graph, Graph.union([item.graph for item in attached]))
    assert_same(batch[3].graph, attached[3].graph)


def test_data_and_graph_move_together():
    data = AttachGraph()(samples()[4])
    batch = Batch.from_data_list([data, data])
    for item in (data, batch):
        meta = copy.copy(item).to("meta", non_blocking=True)
        assert meta.x.device.type == meta.graph.device.type == "meta"
        assert copy.copy(item).cpu().graph is item.graph
        assert copy.copy(item).share_memory_().graph.incoming.col.is_shared()
        assert copy.copy(item).contiguous().graph is item.graph
        assert copy.copy(item).to("meta", "x").graph.device.type == "cpu"


def test_a_data_set_keeps_graphs_that_were_attached_before(tmp_path):
    class Stored(InMemoryDataset):
        def __init__(self):
            super().__init__(None)
            self.data, self.slices = self.collate([AttachGraph()(item) for item in samples()])

    dataset = Stored()
    expected = [AttachGraph()(item).graph for item in samples()]
    for index, graph in enumerate(expected):
        assert_same(dataset[index].graph, graph)
    (batch,) = DataLoader(dataset, batch_size=8)
    assert_same(batch.graph, Graph.union(expected))


def test_a_batch_may_be_given_a_graph_itself():
    batch = Batch.from_data_list(samples())
    attached = AttachGraph(None)(batch)
    assert_same(attached.graph, Graph.from_pyg(batch))
    assert attached[3].num_nodes == 4


def test_the_model_of_a_batch_is_that_of_each_sample():
    data = samples()
    model = PassGraph(GCN(3, 8, num_layers=3, act=nn.GraphAdaptiveMedian(features=8, hops=2)))
    (batch,) = DataLoader(Listed(data, AttachGraph()), batch_size=8)
    together = model(batch.x, batch.edge_index, batch.edge_weight, graph=batch.graph)
    alone = [model(item.x, item.edge_index, item.edge_weight) for item in data]
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (FakeHeteroDataset(num_graphs=1)[0], "data must be a homogeneous Data, got HeteroData: several kinds of nodes"),
        (HeteroData(), "data must be a homogeneous Data, got HeteroData"),
        (Data(x=torch.ones(3, 1)), "data must be a PyG Data object with an edge_index, got Data"),
    ],
)
def test_other_data_is_refused_in_one_line(data, message):
    with pytest.raises(TypeError, match=message) as caught:
        AttachGraph()(data)
    assert "\n" not in str(caught.value)


def test_pyg_is_imported_where_it_is_used():
    code = """
import sys, graphact.nn, graphact.graph, graphact_lab.data.planetoid
from graphact.pyg import PassGraph
assert PassGraph and graphact_lab.data.planetoid.read_planetoid and graphact.Graph
assert "torch_geometric" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
