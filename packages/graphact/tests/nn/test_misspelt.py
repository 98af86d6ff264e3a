"""A name that is misspelt is refused, with the one that was meant where it is near."""

import pytest
import torch

import graphact
from graphact import nn


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: nn.make_activation("max-ga", hop=2), "of the activation 'max-ga' .*'hop'; did you mean 'hops'"),
        (lambda: nn.make_activation("kernel-ga", gama=2.0), "among closed, .* got 'gama'; did you mean 'gamma'"),
        (lambda: nn.make_activation("max-ga", gama=2.0), "among closed, .* got 'gama'; did you mean 'gamma'"),
        (lambda: nn.make_activation({"name": "kernel-ga", "gama": 2.0}), "gama is not .*; did you mean 'gamma'"),
        (lambda: nn.make_activation({"name": "max-ga", "hop": 2}), "hop is not a parameter .*; did you mean 'hops'"),
        (lambda: nn.make_activation(torch.nn.Tanh(), hop=2), "of an activation .* got 'hop'; did you mean 'hops'"),
        (lambda: nn.make_activation(lambda features: torch.nn.Tanh(), hop=2), "got 'hop'; did you mean 'hops'"),
        (lambda: nn.GraphAdaptiveMax(hop=2), "hop is not a parameter of .*'max', which has none; did you mean 'hops'"),
    ],
)
def test_options(build, message):
    with pytest.raises(TypeError, match=message):
        build()


def test_an_option_of_another_activation_is_left_out():
    for name in ("max-ga", "relu", torch.nn.Tanh()):
        nn.make_activation(name, gamma=0.3, learn_gamma=True, cells=4)


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
        assert nn.make_activation("own-slope", slope=2.0).slope == 2
        nn.make_activation("max-ga", slope=2.0)
        assert nn.make_activation({"name": "own-anything", "depth": 3}).settings == {"depth": 3}
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
    with pytest.raises(ValueError, match="activation must be one of .* got None$"):
        nn.make_activation({"hops": 2})


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
