"""Graphs in PyG's data on a CUDA device: pinned by the loader, copied without waiting, joined there."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, PrefetchLoader
from torch_geometric.nn import GCN
from torch_geometric.utils import erdos_renyi_graph

import graphact
from graphact import Graph, nn
from graphact.graph.neighborhoods import map_tensors
from graphact.pyg import AttachGraph, PassGraph, PerLayer
from support.waiting import when_waiting


def samples(count=8):
    torch.manual_seed(1)
    return [Data(x=torch.randn(size, 4), edge_index=erdos_renyi_graph(size, 0.4)) for size in range(3, 3 + count)]


def tensors_of(graph):
    found = []
    map_tensors(graph, lambda part: found.append(part) or part)
    return found


def test_a_graph_moves_as_tensors_do():
    graph = Graph.from_pyg(samples()[5]).normalize("symmetric")
    pinned = graph.pin_memory()
    assert all(part.is_pinned() for part in tensors_of(pinned))
    for there in (graph.cuda(), graph.cuda(0), pinned.to("cuda", non_blocking=True), pinned.cuda(non_blocking=True)):
        assert {part.device.type for part in tensors_of(there)} == {"cuda"}
        assert there.incoming.sizes.device.type == "cpu"
        assert torch.equal(there.cpu().to_dense(), graph.to_dense())
    graph.cuda().record_stream(torch.cuda.Stream())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_the_joined_graph(workers):
    data = [AttachGraph()(item) for item in samples()]
    loader = DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True)
    for batch, first in zip(loader, (0, 4), strict=True):
        assert batch.graph.weight.is_pinned()
        assert batch.graph.incoming.col.is_pinned()
        batch = batch.to("cuda", non_blocking=True)
        assert batch.graph.device.type == "cuda"
        expected = Graph.union([item.graph for item in data[first : first + 4]])
        assert torch.equal(batch.graph.to_dense().cpu(), expected.to_dense())


def test_prefetched_batches():
    data = [AttachGraph()(item) for item in samples()]
    model = PassGraph(GCN(4, 8, 2, act=nn.GraphAdaptiveMax(features=8))).cuda()
    for batch in PrefetchLoader(DataLoader(data, batch_size=4), device=torch.device("cuda")):
        out = model(batch.x, batch.edge_index, graph=batch.graph)
        assert out.shape == (batch.num_nodes, 8)


def test_a_move_from_pinned_memory_and_a_step_do_not_synchronise():
    data = [AttachGraph()(item) for item in samples()]
    batch = Batch.from_data_list(data).pin_memory()
    model = PassGraph(GCN(4, 8, 2, act=nn.GraphAdaptiveMax(features=8), normalize=False)).cuda()
    x = batch.to("cuda", non_blocking=True)
    model(x.x, x.edge_index, graph=x.graph).sum().backward()  # kernels are compiled here
    batch = Batch.from_data_list(data).pin_memory()
    with when_waiting("error"):
        there = batch.to("cuda", non_blocking=True)
        model(there.x, there.edge_index, graph=there.graph).sum().backward()


def test_the_same_values_as_on_the_cpu():
    batch = Batch.from_data_list([AttachGraph()(item) for item in samples()])
    model = PassGraph(GCN(4, 8, 3, act=PerLayer(nn.GraphAdaptiveMedian(features=8, hops=2), layers=2)))
    expected = model(batch.x, batch.edge_index, graph=batch.graph)
    there = batch.to("cuda")
    actual = model.cuda()(there.x, there.edge_index, graph=there.graph)
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


NAMES = ["max", "min", "mean", "median", "std"]


def many_messages():
    """Edges with self-loops and repetitions, a message to every target but the last ones."""
    torch.manual_seed(2)
    target = torch.cat([torch.arange(300), torch.randint(0, 300, (2700,))])
    source = torch.randint(0, 320, (3000,))
    source[:50] = target[:50]
    source[100:110], target[100:110] = source[200:210], target[200:210]
    return torch.stack([source, target])


def outcome(module, x, *inputs, **options):
    x = x.clone().requires_grad_()
    value = module(x, *inputs, **options)
    cotangent = torch.linspace(-1, 1, value.numel(), dtype=value.dtype, device=value.device).view(value.shape)
    return [part.cpu() for part in (value.detach(), *torch.autograd.grad(value, [x, *module.parameters()], cotangent))]


@pytest.fixture
def nothing_is_left_to_pyg(monkeypatch):
    monkeypatch.setitem(graphact.pyg.aggregations.FEW_NUMBERS, "cuda", (0, 0))


@pytest.mark.usefixtures("nothing_is_left_to_pyg")
@pytest.mark.parametrize("name", NAMES)
def test_aggregations_are_those_of_pyg(name):
    ours, theirs = (getattr(package, f"{name.capitalize()}Aggregation")() for package in (graphact.pyg, pyg))
    x, target = torch.randn(3000, 12, dtype=torch.float64), many_messages()[1]
    found = outcome(ours, x.cuda(), target.cuda(), dim_size=320)
    torch.testing.assert_close(found, outcome(theirs, x, target, dim_size=320), rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("nothing_is_left_to_pyg")
@pytest.mark.parametrize("name", [*NAMES, "pna", "towers"])
def test_fused_convolutions_are_those_of_pyg(name):
    edge_index = many_messages()
    histogram = torch.bincount(torch.bincount(edge_index[1], minlength=320))
    if name in NAMES:
        conv = pyg.SAGEConv(12, 8, aggr=name)
    else:
        scalers = ["identity", "amplification", "attenuation"]
        conv = pyg.PNAConv(12, 8, NAMES, scalers, histogram, towers=2 if name == "towers" else 1)
    conv, x = conv.double(), torch.randn(320, 12, dtype=torch.float64)
    expected = outcome(conv, x, edge_index)
    fused = graphact.pyg.accelerate(copy.deepcopy(conv).cuda())
    found = outcome(fused, x.cuda(), edge_index.cuda())
    assert graphact.pyg.report(fused) == [graphact.pyg.ConvReport("", type(conv).__name__, True, "")]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
