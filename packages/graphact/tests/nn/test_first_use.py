"""Easy mistakes are refused with a remedy, and reprs show the settings briefly."""

import pytest
import torch

from graphact import Graph, nn
from graphact.pyg import PassGraph, PerLayer
from support.graphs import random_graph


class Reduces(torch.nn.Module):
    def forward(self, x):
        return x.amax(-2)


class Halves(torch.nn.Module):
    def forward(self, x):
        return x[..., ::2]


class Pair(torch.nn.Module):
    def forward(self, x):
        return x, x


@pytest.mark.parametrize("out_features", [1, None])
@pytest.mark.parametrize(
    ("module", "got"),
    [(Reduces(), r"the shape \(8,\)"), (Halves(), r"the shape \(12, 4\)"), (Pair(), "tuple")],
)
def test_an_activation_keeps_the_shape_of_the_signal(module, got, out_features):
    graph, x = random_graph(dtype=torch.float32), torch.randn(12, 3)
    network = nn.GCNN([3, 8], activation=module, out_features=out_features)
    name = type(module).__name__
    with pytest.raises(
        ValueError, match=rf"activation {name}\(\) must keep the shape \(12, 8\) .*, got {got}; .*Adaptive"
    ):
        network(x, graph)


@pytest.mark.parametrize("function", [torch.relu, lambda neighbors: neighbors.amax(-2), lambda x: x[0]])
def test_a_function_of_the_signal_is_no_function_of_the_number_of_features(function):
    with pytest.raises(TypeError, match=r"activation must be .* fails for 8 features: .*graphact.nn.GraphAdaptive"):
        nn.GCNN([3, 8], activation=function)


def test_attributes_of_edges_are_no_weights():
    edge_index, x = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(3, 2)
    for call in (lambda weight: Graph.from_edge_index(edge_index, weight),
                 lambda weight: nn.GraphAdaptiveMax()(x, edge_index, weight)):  # fmt: skip
        with pytest.raises(ValueError, match=r"must have the shape \(4,\), got \(4, 3\); a weight is one number"):
            call(torch.rand(4, 3))
        with pytest.raises(ValueError, match=r"got \(4, 1\); edge_attr.flatten\(\) makes weights"):
            call(torch.rand(4, 1))
        with pytest.raises(ValueError, match=r"edge_weight must have the shape \(4,\), got \(3,\)$"):
            call(torch.rand(3))


def span(neighbors):
    return neighbors.amax(-2) - neighbors.amin(-2)


def test_reprs_are_short():
    assert repr(nn.GraphAdaptive(span, hops=2)) == "GraphAdaptive(op=span, hops=2, features=None, closed=False)"
    first = [repr(network).splitlines()[1].strip() for network in (
        nn.GCNN([1, 8], hops=2, activation="max-ga"),
        nn.GCNN([1, 8], closed=True, activation=["relu"]),
        nn.GCNN([1, 8], activation=Reduces(), normalize=None),
        nn.GraphNetwork([1, 8]),
        nn.FIR([1, 8], bias=True),
    )]  # fmt: skip
    assert first == [
        "features=[1, 8], order=[2], out_features=1, activation='max-ga', hops=2",
        "features=[1, 8], order=[2], out_features=1, hops=1, closed=True",
        "features=[1, 8], order=[2], out_features=1, hops=1, normalize=None",
        "features=[1, 8], out_features=1",
        "features=[1, 8], order=[2], bias=True, out_features=1",
    ]


def test_a_repr_tells_the_activation_that_a_model_of_pyg_hides():
    models = pytest.importorskip("torch_geometric.nn")
    model = PassGraph(models.GCN(2, 4, num_layers=3, act=PerLayer(nn.GraphAdaptiveMax(features=4), 2)))
    assert repr(model).splitlines()[1].strip() == (
        "normalize='symmetric', activation=GraphAdaptiveMax(hops=1, features=4, closed=False)"
    )
    plain = PassGraph(models.Sequential("x, edge_index", [(nn.GraphAdaptiveMax(), "x -> x")]))
    assert repr(plain).splitlines()[1].strip() == "normalize='symmetric'"


def test_the_network_inside_gin_stays_pointwise():
    models = pytest.importorskip("torch_geometric.nn")
    edge_index, x = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.randn(3, 2)
    gin = models.GIN(2, 4, num_layers=3, act=PerLayer(nn.GraphAdaptiveMax(features=4), layers=2))
    with pytest.raises(ValueError, match=r"layers must be at least .* got 2: .* GIN .*conv.nn.act = torch"):
        PassGraph(gin)(x, edge_index)
    for conv in gin.convs:
        conv.nn.act = torch.nn.ReLU()
    assert PassGraph(gin)(x, edge_index).shape == (3, 4)
