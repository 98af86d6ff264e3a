"""Sizes are positional, everything else is given by keyword."""

import pytest

from graphact import nn

NAMES = [name for name in nn.__all__ if name.startswith(("GraphAdaptive", "Localized"))]
ACTIVATIONS = [getattr(nn, name) for name in NAMES if name != "GraphAdaptive"]


@pytest.mark.parametrize("kind", [kind for kind in ACTIVATIONS if kind is not nn.Localized])
def test_the_first_argument_of_an_activation_is_features(kind):
    module = kind(64)
    assert (module.features, module.hops, module.weights.shape[-1]) == (64, 1, 64)
    assert module.config() == kind(features=64).config()


def test_sizes_are_positional():
    assert nn.GraphFilter(2, 3, order=1).config()["out_features"] == 3
    assert nn.GCNN([1, 2], order=1).config()["features"] == nn.FIR([1, 2], order=1).config()["features"] == [1, 2]
    assert nn.GraphAdaptive("min", 3).config()["features"] == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.GraphFilter(2, 3, 1),
        lambda: nn.GCNN([1, 2], 1),
        lambda: nn.FIR([1, 2], 1),
        lambda: nn.GraphAdaptive("min", 2, 3),
        *(lambda kind=kind: kind(2, 3) for kind in ACTIVATIONS),
    ],
)
def test_nothing_else_is(call):
    with pytest.raises(TypeError, match="positional arguments? but"):
        call()


def test_options_of_the_operation_go_with_its_name():
    module = nn.GraphAdaptive("kernel", gamma=0.5, learn_gamma=True)
    assert module.config() == {
        "op": "kernel",
        "hops": 1,
        "features": None,
        "closed": False,
        "normalize": "symmetric",
        "start": "zero",
        "gamma": 0.5,
        "learn_gamma": True,
    }
    assert module.log_gamma.exp().item() == pytest.approx(0.5)
