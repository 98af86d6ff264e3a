"""The specification in half precision: sums are taken in float32, and results come back as they were asked for."""

import pytest
import torch

from graphact import Graph, backend, functional

LEAVES = 300  # more than bfloat16 counts one by one: 256 + 1 is 256


@pytest.fixture(autouse=True)
def _reference():
    with backend("reference"):
        yield


@pytest.fixture(params=[torch.float16, torch.bfloat16], ids=str)
def dtype(request):
    return request.param


def star(weight=None):
    """Node 0 hears all others, and they hear it."""
    leaves, hub = torch.arange(1, LEAVES + 1), torch.zeros(LEAVES, dtype=torch.long)
    edge_index = torch.stack([torch.cat([leaves, hub]), torch.cat([hub, leaves])])
    return Graph.from_edge_index(edge_index, weight)


def test_a_shift_counts_all_neighbors(dtype):
    x = torch.ones(LEAVES + 1, 1, dtype=dtype)
    shifted = functional.shift(x, star())
    assert shifted.dtype == dtype
    assert shifted[0].item() == LEAVES


@pytest.mark.parametrize("op", ["max", "median"])
def test_the_gradient_of_a_selection_counts_all_that_selected(op, dtype):
    x = torch.zeros(LEAVES + 1, 1, dtype=dtype)
    x[0] = 1.0
    x.requires_grad_()
    getattr(functional, f"neighborhood_{op}")(x, star()).sum().backward()
    assert x.grad.dtype == dtype
    assert x.grad[:2, 0].tolist() == [LEAVES, 1]  # the hub by every leaf; the lowest of equal leaves by the hub


def test_the_gradient_of_weights_counts_all_signals(dtype):
    weight = torch.ones(2 * LEAVES, requires_grad=True)
    functional.shift(torch.ones(LEAVES, LEAVES + 1, 1, dtype=dtype), star(weight)).sum().backward()
    assert torch.equal(weight.grad, torch.full_like(weight, LEAVES))


def test_the_kernel_and_its_gradient_are_those_of_the_same_numbers_in_double_precision(dtype):
    """Sums of squares that half precision can neither count nor, beyond 65504, hold."""
    generator = torch.Generator().manual_seed(0)
    x = (30 * torch.randn(LEAVES + 1, 2, generator=generator)).to(dtype)
    results = []
    for signal, graph in ((x, star()), (x.double(), star().to(dtype=torch.float64))):
        signal = signal.clone().requires_grad_()
        out = functional.neighborhood_kernel(signal, graph, gamma=300.0)
        (grad,) = torch.autograd.grad(out.sum(), signal)
        assert out.dtype == grad.dtype == signal.dtype
        results.append((out.double(), grad.double()))
    for half, double in zip(*results, strict=True):
        assert double.abs().max() > 0
        torch.testing.assert_close(half, double, rtol=2 * torch.finfo(dtype).eps, atol=1e-7)
