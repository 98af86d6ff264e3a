"""Mistakes are refused in one line with a remedy; names that are misspelt, with the one that was meant."""

import pytest
import torch

import graphact
from graphact import Graph, functional, nn
from graphact.nn import make_activation
from graphact.pyg import PassGraph, PerLayer
from support.graphs import random_graph

RING = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]])
EDGES, X = torch.tensor([[0, 1], [1, 2]]), torch.ones(3, 1)
NAMES = [name for name in nn.__all__ if name.startswith(("GraphAdaptive", "Localized"))]
ACTIVATIONS = [getattr(nn, name) for name in NAMES if name != "GraphAdaptive"]
POSITIONAL = "positional arguments? but"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.GraphAdaptiveMax(hops=0), ValueError, "hops must be at least 1, or 0 with unshifted=True, got 0"),
        (lambda: nn.GraphAdaptiveMax(hops=1.5), TypeError, "hops must be an integer, got 1.5"),
        (lambda: nn.LocalizedMedian(features=0), ValueError, "features must be at least 1, got 0"),
        (lambda: nn.GraphAdaptiveKernel(gamma=-1.0), ValueError, "gamma must be a finite number above 0, got -1.0"),
        (lambda: nn.GraphAdaptiveMax(start="one"), ValueError, "start must be one of .* got 'one'"),
        (lambda: nn.GCNN([1, 2], start="one"), ValueError, "start must be one of .* got 'one'"),
        (lambda: nn.GraphAdaptiveMax(4)(torch.ones(9, 5), None), ValueError, r"F = 4, the features .* \(9, 5\)"),
        (lambda: nn.GraphAdaptive("sum"), ValueError, "op must be one of 'max', 'min', .*, or a function, got 'sum'"),
        (lambda: nn.GraphAdaptive(None), ValueError, "op must be one of .* got None"),
        (lambda: nn.GraphFilter(1, 1, order=-1), ValueError, "order must be at least 0, got -1"),
        (lambda: make_activation("softsign"), ValueError, "activation must be one of 'relu', .* got 'softsign'"),
        (lambda: make_activation({"hops": 2}), ValueError, "activation must be one of .* got None$"),
        (lambda: make_activation(3), TypeError, "activation must be a name, a module, or a function .* got 3$"),
        (lambda: make_activation(str), TypeError, "got <class 'str'>, which returned str"),
        (lambda: nn.GraphAdaptiveMax(gamma=1.0), TypeError, "gamma is not a parameter of .*'max', which has none"),
        # of each activation
        (lambda: functional.pointwise(X, "sinc"), ValueError, "function must be one of relu, .* got 'sinc'"),
        (lambda: functional.pointwise(X, "maxout", X), TypeError, "'maxout' takes slope and offset, got slope"),
        (lambda: functional.pointwise(X, "relu", X), TypeError, "function 'relu' takes no array, got slope"),
        (lambda: nn.Maxout(pieces=1), ValueError, "pieces must be at least 2, got 1"),
        (lambda: nn.PReLU(features=0), ValueError, "features must be at least 1, got 0"),
        (lambda: nn.PReLU(features=2)(torch.ones(4, 3)), ValueError, r"F = 2, the features of this .*, got \(4, 3\)"),
        (lambda: nn.Maxout(features=2)(torch.ones(4, 3)), ValueError, r"F = 2, the features of this .*, got \(4, 3\)"),
        (lambda: nn.MaxK(0), ValueError, "k must be at least 1, got 0"),
        (lambda: nn.GraphAdaptiveMixture(ops=[]), ValueError, r"ops must list at least one name .* got \[\]"),
        (lambda: nn.GraphAdaptiveMixture(ops="max"), ValueError, "ops must list at least one name .* got 'max'"),
        (lambda: nn.GraphAdaptiveMixture(ops={"max", "min"}), ValueError, "ops must list at least one name"),
        (lambda: nn.GraphAdaptiveMax()(X, EDGES, [1.0, 1.0]), TypeError, "edge_weight must be .*, got list"),
        (lambda: nn.GraphAdaptiveMixture(ops=["sum"]), ValueError, "op must be one of .* got 'sum'"),
        (lambda: nn.GReLU(2, pieces=1), ValueError, "pieces must be at least 2, got 1"),
        (lambda: nn.DiGRAF(), TypeError, "features must be the number of features .* 'digraf', got None"),
        (lambda: nn.DiGRAF(2, cells=1), ValueError, "cells must be at least 2, got 1"),
        (lambda: nn.DiGRAF(2, radius=-1), ValueError, "radius must be a finite number above 0"),
        (lambda: nn.ShiftlessMax(None), TypeError, "features must be the number of features .* 'shiftless-max'"),
        (lambda: nn.GReLU(3)(torch.zeros(2, 2), None), ValueError, "F = 3, the features of this module"),
        # of networks and convolutions
        (lambda: nn.GCNN([1]), ValueError, r"features must list the input and at least one layer, .* got \[1\]"),
        (lambda: nn.GCNN(8), ValueError, "features must list .* got 8"),
        (lambda: nn.GCNN([1, 0]), ValueError, "out_features must be at least 1, got 0"),
        (lambda: nn.GCNN([1, 2.5]), TypeError, "out_features must be an integer, got 2.5"),
        (lambda: nn.GCNN([1, 2], order=-1), ValueError, "order must be at least 0, got -1"),
        (lambda: nn.GCNN([1, 2], order=[1, 2]), ValueError, r"one for each of the 1 layers, got 2: \[1, 2\]"),
        (lambda: nn.GCNN([1, 2], out_features=0), ValueError, "out_features must be at least 1, got 0"),
        (lambda: nn.GCNN([1, 2], activation="kernel-ga", gamma=0), ValueError, "gamma must be a finite number above 0"),
        (lambda: nn.GraphNetwork([1]), ValueError, r"features must list the input .* got \[1\]"),
        (lambda: nn.GraphNetwork([1, 2], convolution="GCN"), ValueError, "convolution must be one of .* got 'GCN'"),
        (lambda: nn.GraphNetwork([1, 2], convolution=3), TypeError, "convolution must be a name, .* got 3"),
        (lambda: nn.GraphNetwork([1, 2], convolution=["GraphFilter"] * 2), ValueError, "the 1 layers, got 2"),
        (lambda: nn.EdgeNet(2, 4, RING)(X, RING), ValueError, "F = 2, the in_features of this module"),
        (lambda: nn.GCNN([1, 2])(X, None), TypeError, "graph must be a graphact.Graph or an edge_index .* NoneType"),
        (lambda: nn.GCNN([1, 2])(X, RING, torch.ones(2)), TypeError, "a Graph holds its own weights"),
        (lambda: nn.GCNN([1, 2])(X[:2], EDGES), ValueError, "node indices from 0 to 1, got 2"),
        (lambda: nn.GCNN([1, 2])(torch.ones(3, 2), EDGES), ValueError, r"F = 1, the in_features .*, got \(3, 2\)"),
        (lambda: nn.GCNN([1, 2])(torch.ones(3), EDGES), ValueError, r"x must have the shape \(..., N, F\), got \(3,\)"),
        # sizes are positional, and nothing else is
        (lambda: nn.GraphFilter(2, 3, 1), TypeError, POSITIONAL),
        (lambda: nn.GCNN([1, 2], 1), TypeError, POSITIONAL),
        (lambda: nn.FIR([1, 2], 1), TypeError, POSITIONAL),
        (lambda: nn.GraphAdaptive("min", 2, 3), TypeError, POSITIONAL),
        *((lambda kind=kind: kind(2, 3), TypeError, POSITIONAL) for kind in ACTIVATIONS),
        # misspelt options
        (lambda: make_activation("max-ga", hop=2), TypeError, "the activation 'max-ga' .*'hop'; did you mean 'hops'"),
        (lambda: make_activation("kernel-ga", gama=2.0), TypeError, "among .* got 'gama'; did you mean 'gamma'"),
        (lambda: make_activation("max-ga", gama=2.0), TypeError, "among closed, .* got 'gama'; did you mean 'gamma'"),
        (lambda: make_activation({"name": "kernel-ga", "gama": 2.0}), TypeError, "gama is not .* did you mean 'gamma'"),
        (lambda: make_activation({"name": "max-ga", "hop": 2}), TypeError, "hop is not a .*; did you mean 'hops'"),
        (lambda: make_activation(torch.nn.Tanh(), hop=2), TypeError, "of an activation .* 'hop'; did you mean 'hops'"),
        (lambda: make_activation(lambda features: torch.nn.Tanh(), hop=2), TypeError, "'hop'; did you mean 'hops'"),
        (lambda: nn.GraphAdaptiveMax(hop=2), TypeError, "hop is not a parameter of .*'max', .*; did you mean 'hops'"),
    ],
)  # fmt: skip
def test_mistakes(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("kind", [kind for kind in ACTIVATIONS if kind is not nn.Localized])
def test_the_first_argument_of_an_activation_is_features(kind):
    module = kind(64)
    assert (module.features, module.hops, module.weights.shape[-1]) == (64, 1, 64)
    assert module.config() == kind(features=64).config()


def test_options_of_the_operation_go_with_its_name():
    module = nn.GraphAdaptive("kernel", 3, gamma=0.5, learn_gamma=True)
    options = {"hops": 1, "features": 3, "closed": False, "normalize": "symmetric", "start": "zero"}
    assert module.config() == {"op": "kernel", **options, "gamma": 0.5, "learn_gamma": True}
    assert module.log_gamma.exp().item() == pytest.approx(0.5)


def test_an_option_of_another_activation_is_left_out():
    options = {"gamma": 0.3, "learn_gamma": True, "cells": 4}
    for name, expected in (("max-ga", nn.GraphAdaptiveMax), ("relu", nn.ReLU)):
        made = nn.make_activation(name, **options)
        assert type(made) is expected
        assert made.config() == expected().config()
    tanh = nn.make_activation(torch.nn.Tanh(), **options)
    assert torch.equal(tanh(X), X.tanh())


def test_options_of_registered_activations():
    @nn.register("own-slope")
    class Own(nn.GraphModule):
        def __init__(self, *, slope=1.0):
            super().__init__()
            self.slope = slope

    @nn.register("own-anything")
    class Anything(nn.GraphModule):
        def __init__(self, **settings):
            super().__init__()
            self.settings = settings

    try:
        assert nn.make_activation("own-slope", slope=2.0).config() == {"slope": 2}
        nn.make_activation("max-ga", slope=2.0)
        anything = nn.make_activation({"name": "own-anything", "depth": 3})
        assert anything.settings == {"depth": 3}
        with pytest.raises(TypeError, match="Anything has no configuration"):
            anything.config()
        with pytest.raises(TypeError, match=r"of the activation 'own-slope' must be among slope, got 'slop'; did you"):
            nn.make_activation({"name": "own-slope", "slop": 2.0})
    finally:
        nn.unregister("own-slope")
        nn.unregister("own-anything")
    with pytest.raises(TypeError, match="got 'slope'"):
        nn.make_activation("max-ga", slope=2.0)


@pytest.mark.parametrize(
    ("name", "meant"), [("maxga", "max-ga"), ("median_ga", "median-ga"), ("leakyrelu", "leaky-relu")]
)
def test_names_of_activations(name, meant):
    for build in (nn.make_activation, lambda name: nn.GCNN([1, 2], activation=name)):
        with pytest.raises(ValueError, match=f"got '{name}'; did you mean '{meant}'"):
            build(name)


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        (nn, "GraphAdaptveMax", "GraphAdaptiveMax"),
        (nn, "max_ga", "GraphAdaptiveMax"),
        (nn, "MaxGA", "GraphAdaptiveMax"),
        (nn, "Gcnn", "GCNN"),
        (graphact, "Grap", "Graph"),
        (graphact, "export_onx", "export_onnx"),
        (graphact.pyg, "AttachGraf", "AttachGraph"),
    ],
)
def test_attributes(module, name, meant):
    with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute '{name}'; did you mean '{meant}'"):
        getattr(module, name)
    assert not hasattr(module, "nothing_of_the_kind")
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_the_kind'$"):
        _ = module.nothing_of_the_kind


class Returning(torch.nn.Module):
    """A function of the signal alone."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("out_features", [1, None])
@pytest.mark.parametrize(
    ("function", "got"),
    [
        (lambda x: x.amax(-2), r"the shape \(8,\)"),
        (lambda x: x[..., ::2], r"the shape \(12, 4\)"),
        (lambda x: (x, x), "tuple"),
    ],
)
def test_an_activation_keeps_the_shape_of_the_signal(function, got, out_features):
    network = nn.GCNN([3, 8], activation=Returning(function), out_features=out_features)
    message = rf"activation Returning\(\) must keep the shape \(12, 8\) .*, got {got}; .*Adaptive"
    with pytest.raises(ValueError, match=message):
        network(torch.randn(12, 3), random_graph(dtype=torch.float32))


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
    assert repr(nn.GraphFilter(1, 2, order=3)) == "GraphFilter(in_features=1, out_features=2, order=3, bias=False)"
    kernel = "GraphAdaptiveKernel(hops=2, features=None, closed=False, gamma=0.1, learn_gamma=False)"
    assert repr(nn.GraphAdaptiveKernel(hops=2)) == kernel
    assert repr(nn.GraphAdaptive(span, hops=2)) == "GraphAdaptive(op=span, hops=2, features=None, closed=False)"
    assert repr(type("Own", (nn.GraphModule,), {})()) == "Own()"
    first = [repr(network).splitlines()[1].strip() for network in (
        nn.GCNN([1, 8], hops=2, activation="max-ga"),
        nn.GCNN([1, 8], closed=True, activation=["relu"]),
        nn.GCNN([1, 8], activation=Returning(torch.relu), normalize=None),
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
