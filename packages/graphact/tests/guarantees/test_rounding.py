"""Rounding errors of float64: allowances that hold where numbers cancel, overflow or are too small to divide by."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from graphact import Graph
from graphact.guarantees import attack, certified_radius, certify, lipschitz_bound
from graphact.guarantees.layers import evaluate, evaluate_with_error, read_model
from graphact.guarantees.rules import POINTWISE, layer_norm_box, leaky_relu, relu_band
from graphact.nn import GCNN, GraphFilter, Residual, Sequential
from graphact.spec import LayerNorm
from guarantees.draws import KINDS, draw, exactly, rational
from support.graphs import random_graph

PAIR = Graph.from_edge_index([[0, 1], [1, 0]]).to(torch.float64)
SIZES = (5e-324, 1e-320, 1e-305, 1e-200, 1.0, 1e200, 1e307, 1.7e308)


@pytest.mark.parametrize(("low", "high"), [*itertools.product(SIZES, SIZES)])
def test_bands_of_every_size_contain_relu(low, high):
    """In rational numbers, at both ends and at the kink; off by no more than a unit in the last place of the ends."""
    lower, upper = torch.tensor([-low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64)
    for slope_below, (slope, offset, half) in (
        (Fraction(0), relu_band(lower, upper)),
        (Fraction(0.25), leaky_relu(0.25).band(lower, upper)),
        (Fraction(-1), POINTWISE["abs"].band(lower, upper)),
    ):
        slope, offset, half = (Fraction(part.item()) for part in (slope, offset, half))
        rounding = 4 * Fraction(max(5e-324, math.ulp(max(low, high))))
        for z in (Fraction(-low), Fraction(0), Fraction(high)):
            exact = z if z > 0 else slope_below * z
            assert abs(exact - slope * z - offset) <= half + rounding
        assert half <= (1 - slope_below) * Fraction(min(low, high)) / 2 + rounding, "and not much wider than it must be"


@pytest.mark.parametrize(("first", "last"), [(1e308, 1e-308), (1e-305, 1e305), (1e-320, 1e305), (1e150, 1e-150)])
@pytest.mark.parametrize("name", ["relu", "leaky-relu", "prelu", "abs"])
def test_preactivations_near_the_largest_and_the_smallest_numbers(first, last, name):
    """Bounds that divided by the width of a range were 0 where it overflows, and too small where it nearly is 0."""
    model = GCNN([1, 1], order=0, activation=name, out_features=2, readout_bias=True).double()
    with torch.no_grad():
        model.filters[0].taps.fill_(first)
        model.readout.weight.copy_(torch.tensor([[last], [0.0]], dtype=torch.float64))
        model.readout.bias.copy_(torch.tensor([0.0, 0.5], dtype=torch.float64))
    x = torch.zeros(2, 1, dtype=torch.float64)
    for radius in (0.3, 1.0, 1.7):
        certificate = certify(model, PAIR, x, radius)
        with torch.no_grad():
            outputs = torch.stack([model(x + step, PAIR) for step in (-radius, 0.0, radius)])
        assert not certificate.upper.isnan().any()
        assert (outputs <= certificate.upper).all()
        assert (outputs >= certificate.lower).all()
        assert not (certificate.certified & (outputs.argmax(-1) != certificate.decisions).any(0)).any()
    radius = certified_radius(model, PAIR, x).radius[0].item()
    slope = first * last
    assert radius <= 0.5 / slope
    assert radius >= 0.49 / slope or name == "abs"


def cancelling(size, width=3):
    """Two linear maps with a large bias between them that the second takes away again."""
    model = nn.Sequential(nn.Linear(width, width), nn.Linear(width, 2)).double()
    with torch.no_grad():
        model[0].bias.mul_(size)
        model[1].bias.sub_(model[1].weight @ model[0].bias)
    return model


@pytest.mark.parametrize("size", [1.0, 1e6, 1e10, 1e14, 1e17])
def test_certificates_allow_for_what_cancels_on_the_way(size):
    """The outputs are small, and the numbers that they are differences of large."""
    certified = 0
    for seed in range(8):
        torch.manual_seed(seed)
        model, x, radius = cancelling(size), torch.randn(2, 3, dtype=torch.float64), 1e-3
        certificate, radii = certify(model, PAIR, x, radius), certified_radius(model, PAIR, x)
        layers, rows = read_model(model, PAIR)[0], rational((model[1].weight @ model[0].weight).detach())
        for node in range(2):
            first, second = exact = exactly(layers, rational(x[node : node + 1]), None)[0]
            for output in range(2):
                corner = rational(x[node : node + 1]) + Fraction(radius) * np.sign(rows[output].astype(float)).astype(
                    int
                )
                assert Fraction(certificate.lower[node, output].item()) <= exact[output]
                assert exactly(layers, corner, None)[0, output] <= Fraction(certificate.upper[node, output].item())
            better, sum_of_differences = first > second, abs(rows[0] - rows[1]).sum()
            if certificate.certified[node]:
                certified += 1
                assert certificate.decisions[node] == (0 if better else 1)
                assert abs(first - second) >= sum_of_differences * Fraction(radius) * (1 - Fraction(1e-9))
            if radii.radius[node] > 0:
                assert radii.decisions[node] == (0 if better else 1)
                reach = Fraction(radii.radius[node].item()) * sum_of_differences
                assert reach <= abs(first - second) * (1 + Fraction(1e-12))
    assert certified > 8 or size >= 1e14


OTHERS = (
    lambda: Sequential(GraphFilter(3, 4, order=2, bias=True), nn.LayerNorm(4), nn.Linear(4, 2)),
    lambda: Sequential(Residual(GraphFilter(3, 3, order=1), nn.Tanh(), nn.Linear(3, 3)), nn.Linear(3, 2)),
    lambda: Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2), nn.ELU()),
    lambda: GCNN([3, 4], activation="soft-maximum-ga", out_features=2),
    lambda: GCNN([3, 4], activation="trimmed-mean-ga", out_features=2),
)


@pytest.mark.parametrize("seed", range(70))
def test_the_allowance_covers_what_single_precision_loses(seed, monkeypatch):
    """The same bound with the epsilon of float32 holds for a module that computes in float32, against float64."""
    if seed < 40:
        case = draw(seed, KINDS[seed % len(KINDS)])
        model, graph = case.module.float(), case.graph.to(torch.float32)
        x = case.signals(3, torch.Generator().manual_seed(seed))[0].float()
    else:
        torch.manual_seed(seed)
        model, graph = OTHERS[seed % len(OTHERS)](), random_graph(12, 0.3).to(torch.float32)
        x = 10 ** (seed % 6 - 2) * torch.randn(12, 3)
    layers, _ = read_model(model, graph, x.size(-1))
    with torch.no_grad():
        values, whole = x.double(), graph.to(torch.float64)
        lost = (model(x, graph).double() - evaluate(layers, values, whole)).abs()
        monkeypatch.setattr("graphact.guarantees.layers.EPSILON", torch.finfo(torch.float32).eps)
        assert (lost <= evaluate_with_error(layers, values, whole)[1]).all()


def test_a_layer_norm_of_large_values_is_that_of_small_ones():
    """Squares of its inputs overflow, and what it computes does not depend on their size."""
    norm = nn.LayerNorm(3, elementwise_affine=False).double()
    x = torch.tensor([[1.0, -2.0, 4.0], [3.0, 1.0, 1.0]], dtype=torch.float64)
    layer, radius = LayerNorm(3, norm.eps), torch.full_like(x, 1e-3)
    (value, slack), (large, wide) = (layer_norm_box(layer, size * x, size * radius) for size in (1e3, 1e200))
    torch.testing.assert_close(value, norm(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(large, value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wide, slack, rtol=1e-5, atol=1e-5)
    certificate = certify(nn.Sequential(norm), PAIR, 1e200 * x, 1e197, kind="regressor")
    assert ((certificate.lower <= value) & (value <= certificate.upper)).all()
    torch.testing.assert_close(certificate.outputs, value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["elu", "gelu", "tanh", "maxout"])
def test_ranges_that_overflow_leave_the_constants(name):
    """Chords are not known over them; the certificate is then what the Lipschitz constant gives."""
    model = GCNN([1, 1], order=0, activation=name, out_features=1, readout_bias=False).double()
    with torch.no_grad():
        model.filters[0].taps.fill_(1e308)
        model.readout.weight.fill_(1e-308)
    x = torch.zeros(2, 1, dtype=torch.float64)
    certificate = certify(model, PAIR, x, 1.5)
    found = attack(model, PAIR, x, 1.5)
    assert not (certificate.lower.isnan() | certificate.upper.isnan()).any()
    assert (found.upper <= certificate.upper).all()
    assert (found.lower >= certificate.lower).all()
    assert certificate.upper.max() <= 1.6 * lipschitz_bound(model, PAIR).value
