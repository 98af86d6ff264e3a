"""Every activation in half precision and under autocast: the type of the signal, and what float32 gives, rounded."""

import copy
from contextlib import nullcontext

import pytest
import torch

from graphact import nn
from graphact._checks import HALF_PRECISION
from support.graphs import random_graph

FEATURES = 4


def make(name):
    torch.manual_seed(3)
    return nn.make_activation(name, features=FEATURES, hops=2, start="uniform")


def check_near(found, expected, low):
    """Within a few roundings of the largest value, which features and hops share."""
    scale = expected.abs().max().item()
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=8 * torch.finfo(low).eps * scale)


BIASED = {"name": "GraphFilter", "bias": True}


@pytest.mark.parametrize("low", sorted(HALF_PRECISION, key=str), ids=str)
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_half_precision_beside_float32(name, autocast, low):
    module, graph = make(name), random_graph(num_nodes=20, seed=2).to(torch.float32).normalize("symmetric")
    x = torch.randn(3, 20, FEATURES).to(low)
    for given, kept, by in (
        (x, graph, module),
        (x, graph.to(low), module),
        (x, graph.to(low), copy.deepcopy(module).to(low)),
        (x.float(), graph, module),
    ):
        expected = copy.deepcopy(by).float()(x.float(), kept.to(torch.float32)).detach()
        signal = given.clone().requires_grad_()
        with torch.autocast("cpu", dtype=low) if autocast else nullcontext():
            found = by(signal, kept)
        assert found.dtype == given.dtype
        check_near(found, expected, low)
        (grad,) = torch.autograd.grad(found.float().sum(), signal)
        assert grad.dtype == given.dtype
        assert grad.isfinite().all()


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_behind_a_convolution_with_a_bias_under_autocast(name):
    """The sum with a float32 bias is float32 although its terms are in half precision."""
    torch.manual_seed(0)
    network = nn.GraphNetwork([3, 4], convolution=BIASED, activation=name, out_features=2)
    graph = random_graph(num_nodes=20, seed=2).to(torch.float32).normalize("symmetric")
    x = torch.randn(20, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = network(x, graph)
    scale = network(x, graph).abs().max().item()
    torch.testing.assert_close(found.float(), network(x, graph), rtol=0, atol=0.05 * scale)
