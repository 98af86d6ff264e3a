"""Models that PyG's and torch's users have and that mathematics has an answer for: read as what they compute."""

import numpy
import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GIN, MLP, BatchNorm, ChebConv, GCNConv, GINConv, MeanAggregation, SAGEConv
from torch_geometric.nn import LayerNorm as PyGLayerNorm
from torch_geometric.nn import Sequential as PyGSequential

from graphact import Graph
from graphact.guarantees import LostLinks, attack, certify, empirical_lipschitz, lipschitz_bound, topology_bound
from graphact.guarantees.reading import evaluate, read_model
from graphact.nn import GraphAdaptiveMax, GraphFilter, Residual, Sequential
from graphact.nn.description import call_on_graph
from graphact.pyg import PassGraph, PerLayer
from graphact.spec import UnsupportedModelError
from support.graphs import random_graph

NODES = 10
MATRIX = random_graph(NODES, dtype=torch.float64).to_dense().abs().triu(1)
GRAPH = Graph.from_dense(MATRIX + MATRIX.T)
NEGATIVE = Graph.from_dense(-MATRIX - MATRIX.T)


def per_layer(layers):
    return PerLayer(GraphAdaptiveMax(features=4, start="uniform"), layers=layers)


def inside_of_gin(act):
    parts = [(GINConv(nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 2))), "x, edge_index -> x")]
    return PassGraph(PyGSequential("x, edge_index", parts))


def without_weights():
    act = GraphAdaptiveMax(features=4, start="uniform")
    return PassGraph(PyGSequential("x, edge_index", [(GCNConv(3, 4), "x, edge_index -> x"), act]))


SAGEConv(3, 4)  # the first one of a process decides in PyG 2.8 whether later ones take sparse matrices

MODELS = {
    "batch norm of torch": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)),
    "batch norm without weights": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.Tanh()),
    "batch norm of PyG": lambda: GCN(3, 4, 2, 2, norm="batch_norm"),
    "batch norm in front": lambda: Sequential(BatchNorm(3), GCNConv(3, 4), nn.ReLU()),
    "batch norm behind": lambda: Sequential(GraphFilter(3, 4, order=1), nn.BatchNorm1d(4)),
    "batch norm in GIN": lambda: GINConv(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))),
    "batch norm first in GIN": lambda: GINConv(nn.Sequential(nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))),
    "MLP": lambda: MLP([3, 4, 2]),
    "MLP in GIN": lambda: GINConv(MLP([3, 4, 2])),
    "layer norm of PyG": lambda: GCN(3, 4, 2, 2, norm=PyGLayerNorm(4, eps=0.3, mode="node")),
    "swish": lambda: GCN(3, 4, 2, 2, act="swish"),
    "prelu": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(init=-0.7)),
    "prelu of features": lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(4)),
    "slope of numpy": lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(numpy.float64(0.1))),
    "slope of torch": lambda: nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(torch.tensor(0.1))),
    "alpha of numpy": lambda: nn.Sequential(nn.Linear(3, 4), nn.ELU(numpy.float32(2.0))),
    "dropout": lambda: nn.Sequential(nn.Linear(3, 4), nn.Dropout1d(), nn.AlphaDropout()),
    "mean": lambda: SAGEConv(3, 4, aggr=MeanAggregation()),
    "PerLayer inside of GIN": lambda: inside_of_gin(per_layer(1)),
    "PerLayer inside and outside": lambda: PassGraph(GIN(3, 4, 2, act=per_layer(3))),
    "edges without weights": without_weights,
    "part of GIN": lambda: GINConv(nn.Linear(3, 4), eps=0.3, train_eps=True),
}


def made(name, dtype=torch.float64):
    torch.manual_seed(0)
    model = MODELS[name]().to(dtype).eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.1, 3)
            for parameter in part.parameters():
                nn.init.normal_(parameter)
    if isinstance(model[-1] if isinstance(model, nn.Sequential) else None, nn.PReLU):
        nn.init.normal_(model[-1].weight)
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", MODELS)
def test_they_are_read_as_what_they_compute_and_bounded(name, dtype):
    model, graph = made(name, dtype), GRAPH.to(dtype)
    layers, features = read_model(model, graph)
    x = torch.randn(2, NODES, features, dtype=dtype, generator=torch.Generator().manual_seed(1))
    close = {} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    with torch.no_grad():
        expected = torch.stack([call_on_graph(model, part, graph) for part in x])
    torch.testing.assert_close(evaluate(layers, x.double(), GRAPH), expected.double(), **close)
    if dtype == torch.float64:
        found = empirical_lipschitz(model, graph, x, starts=1, steps=5)
        assert found.value <= lipschitz_bound(model, graph).value * (1 + 1e-9)
        certificate, tried = certify(model, graph, x, 0.1), attack(model, graph, x, 0.1, steps=3)
        assert bool((tried.lower >= certificate.lower - 1e-9).all() and (tried.upper <= certificate.upper + 1e-9).all())


@pytest.mark.parametrize("name", ["batch norm behind", "mean", "part of GIN"])
def test_linear_ones_have_exact_constants(name):
    model = made(name)
    zero = torch.zeros(NODES, 3, dtype=torch.float64)
    rows = torch.autograd.functional.jacobian(lambda x: call_on_graph(model, x, GRAPH), zero).abs().sum((-2, -1))
    torch.testing.assert_close(lipschitz_bound(model, GRAPH).per_node, rows.amax(-1), rtol=1e-9, atol=1e-12)


def test_lost_links_in_front_of_a_batch_norm():
    model, x = made("batch norm behind"), torch.randn(NODES, 3, dtype=torch.float64)
    edge_index, weight = GRAPH.to_edge_index()
    largest = 0.0
    for source, target in {tuple(sorted(edge)) for edge in edge_index.T.tolist()}:
        keep = ~torch.tensor([{source, target} == {*edge} for edge in edge_index.T.tolist()])
        thinned = Graph.from_edge_index(edge_index[:, keep], weight[keep], NODES)
        largest = max(largest, (model(x, thinned) - model(x, GRAPH)).abs().max().item())
    assert topology_bound(model, GRAPH, LostLinks(1), x).value == pytest.approx(largest, rel=1e-9)


REFUSED = {
    "training": (lambda: GCN(3, 4, 2, 2, norm="batch_norm").train(), GRAPH, "norms.0.module", r"call eval\(\)"),
    "statistics": (
        lambda: nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)).eval(),
        GRAPH,
        "0",
        "those of all nodes",
    ),
    "layer norm": (lambda: GCN(3, 4, 2, 2, norm="layer_norm"), GRAPH, "norms.0", "mode='node' is described"),
    "epsilon": (lambda: GCN(3, 4, 2, norm=PyGLayerNorm(4, 0.0, mode="node")), GRAPH, "norms.0", "eps > 0"),
    "in place": (lambda: Residual(nn.ReLU(inplace=True), GraphFilter(3, 3, order=1)), GRAPH, "", "inplace=True"),
    "lazy": (lambda: nn.Sequential(nn.Tanh(), nn.LazyLinear(2)), GRAPH, "1", "for the first time: call it"),
    "roots": (lambda: GCNConv(3, 4), NEGATIVE, "", "normalize=False"),
    "powers": (lambda: ChebConv(3, 4, K=45), GRAPH, "", "beyond the order 20"),
    "own": (lambda: Sequential(nn.Tanh(), nn.Softmax(-1)), GRAPH, "parts.1", "a GraphModule may describe itself"),
    "calls": (lambda: inside_of_gin(nn.Sequential(*[per_layer(1)] * 2)), GRAPH, "model.module_0.nn.1.1", "more often"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_part_and_the_way_out(name):
    make, graph, part, reason = REFUSED[name]
    torch.manual_seed(0)
    with pytest.raises(UnsupportedModelError, match=reason) as caught:
        lipschitz_bound(make(), graph)
    assert caught.value.part == part


def test_a_graph_given_to_pass_graph_is_taken_as_it_is_without_normalization():
    """What is stated is about the edges; activations on a graph of your own take it where nothing is normalised."""
    torch.manual_seed(0)
    inner = GCN(3, 4, 2, 2, act=GraphAdaptiveMax(features=4, start="uniform")).double().eval()
    edge_index, weight = GRAPH.to_edge_index()
    x = torch.randn(NODES, 3, dtype=torch.float64)
    for model, own in ((PassGraph(inner, normalize=None), GRAPH), (PassGraph(inner), GRAPH.normalize("symmetric"))):
        layers, _ = read_model(model, GRAPH)
        with torch.no_grad():
            expected = model(x, edge_index, weight, graph=own)
        torch.testing.assert_close(evaluate(layers, x, GRAPH), expected)
