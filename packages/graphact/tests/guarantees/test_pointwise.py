"""Rules of pointwise functions, against many values of the functions themselves."""

import math

import pytest
import torch

from graphact import Graph, nn
from graphact.guarantees import lipschitz_bound
from graphact.guarantees.certificate import Zonotope, with_errors
from graphact.guarantees.rules import POINTWISE, find_rule
from graphact.registry import POINTWISE as NAMES
from graphact.spec import Pointwise

TRAINED = {
    "prelu": [torch.tensor([0.25, -0.7, 1.6], dtype=torch.float64), None],
    "maxout": [
        torch.tensor([[1.0, 0.3, -2.0], [0.0, -0.4, 1.0], [0.5, 0.3, 0.2]], dtype=torch.float64),
        torch.tensor([[0.0, 0.1, 1.0], [0.2, -0.4, 0.0], [0.1, 0.2, 2.0]], dtype=torch.float64),
    ],
}
NUMBERED = ("leaky_relu(0.2)", "leaky_relu(-0.5)", "elu(1.0)", "elu(2.5)")
LAYERS = [
    *(Pointwise(name) for name in (*POINTWISE, *NUMBERED)),
    *(Pointwise(name, *arrays) for name, arrays in TRAINED.items()),
]
EXPECTED = {
    "sigmoid": 0.25,  # the steepest slope of each function
    **dict.fromkeys(("relu", "leaky-relu", "elu", "tanh", "abs"), 1.0),
    **{"gelu": 1.1289041, "silu": 1.0998393, "prelu": 1.6, "maxout": 2.0},
    **dict(zip(NUMBERED, (1.0, 1.0, 1.0, 2.5), strict=True)),
}


def nn_function(layer):
    """The function, from torch where torch has it."""
    kind, _, number = layer.function.removesuffix(")").partition("(")
    if number:
        return lambda x: getattr(torch.nn.functional, kind)(x, float(number))
    if layer.function == "maxout":
        return lambda x: torch.stack([a * x + b for a, b in zip(layer.slope, layer.offset, strict=True)]).amax(0)
    known = {
        "relu": torch.nn.ReLU(),
        "leaky-relu": torch.nn.LeakyReLU(),
        "elu": torch.nn.ELU(),
        "gelu": torch.nn.GELU(),
        "silu": torch.nn.SiLU(),
        "tanh": torch.nn.Tanh(),
        "sigmoid": torch.nn.Sigmoid(),
        "abs": torch.abs,
        "prelu": lambda x: torch.where(x > 0, x, layer.slope * x),
    }
    return known[layer.function]


def test_every_function_has_a_rule():
    assert (
        {layer.function for layer in LAYERS} == {"relu", "sigmoid", *NAMES, *NUMBERED} - {"identity"} == EXPECTED.keys()
    )


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.function)
def test_slopes_are_sound_and_tight(layer):
    x = torch.linspace(-12, 12, 480_001, dtype=torch.float64).unsqueeze(1).expand(-1, 3)
    slopes = nn_function(layer)(x).diff(dim=0) / x.diff(dim=0)
    low, high = find_rule(layer).slopes
    assert low - 1e-9 <= slopes.min() <= low + 1e-4
    assert high - 1e-4 <= slopes.max() <= high + 1e-9
    assert find_rule(layer).steepest == pytest.approx(EXPECTED[layer.function], abs=1e-6)


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.function)
@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
def test_bands_hold_the_function(layer, size):
    generator = torch.Generator().manual_seed(3)
    ends = size * torch.randn(2, 200, 3, dtype=torch.float64, generator=generator)
    lower, upper = ends.amin(0), ends.amax(0)
    slope, offset, half = find_rule(layer).band(lower, upper)
    inside = lower + (upper - lower) * torch.linspace(0, 1, 301, dtype=torch.float64).view(-1, 1, 1)
    left = (nn_function(layer)(inside) - slope * inside - offset).abs()
    assert bool((left <= half + 1e-12 * (1 + size)).all())
    if layer.function == "elu(2.5)":
        return  # its slope jumps at 0, so that nothing is known between the samples
    # and waste little: a band along the chord has no smaller height, up to what lies between the samples
    reached = left.amax(0)
    assert bool((half <= 1.35 * reached + 0.05 * torch.minimum(upper - lower, (upper - lower) ** 2) + 1e-9).all())


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.function)
def test_a_band_of_no_width_is_the_value(layer):
    x = torch.tensor([[-0.7, 0.0, 2.5]], dtype=torch.float64)
    slope, offset, half = find_rule(layer).band(x, x)
    torch.testing.assert_close(slope * x + offset, nn_function(layer)(x))
    assert half.max() < 1e-12


@pytest.mark.parametrize("name", ["relu", *NAMES])
def test_networks_move_by_no_more_than_their_constant_and_stay_in_their_enclosure(name):
    torch.manual_seed(4)
    graph = Graph.stochastic_block_model([5, 5], 0.8, 0.3).normalize("spectral").to(dtype=torch.float64)
    model = nn.GCNN([2, 3, 3], order=2, activation=name, out_features=2, bias=True).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    bound = lipschitz_bound(model, graph).value
    x, radius = torch.randn(1, 10, 2, dtype=torch.float64), 0.3
    moved = x + radius * (2 * torch.rand(400, 10, 2, dtype=torch.float64) - 1)
    corners = x + radius * torch.randn(400, 10, 2, dtype=torch.float64).sign()
    with torch.no_grad():
        forms, _ = with_errors(Zonotope.box(x, radius), model.layers(), graph)
        for near in (moved, corners):
            difference = (model(near, graph) - model(x, graph)).abs().flatten(1).amax(1)
            assert bool((difference <= bound * (near - x).abs().flatten(1).amax(1) + 1e-9).all())
            assert bool(((model(near, graph) - forms.centre).abs() <= forms.radius + 1e-9).all())
    assert math.isfinite(bound)
