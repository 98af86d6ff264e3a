"""The Triton kernels on the CPU, in Triton's interpreter; started by `test_gpu_interpreted.py`."""

import numpy as np
import pytest
import torch
from support.kernel_cases import KernelCases, check_hop, graph_of, poisoned, shorten_lists, signal

from graphact.kernels import reference
from graphact.kernels.reference import Lists

# NumPy, which computes in place of the GPU, warns of what torch does silently
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


class TestInterpreted(KernelCases):
    subnormal = False

    @pytest.fixture
    def module(self, monkeypatch):
        import triton.language as tl

        from graphact.kernels import _gpu_hop, _gpu_median, _gpu_select, _gpu_sums, _gpu_turn, gpu

        assert gpu.INTERPRETED, "set TRITON_INTERPRET=1"
        # the interpreter is slow: let short lists take the ways that are meant for long ones, and look ahead less
        shorten_lists(monkeypatch, gpu)
        for kernels in (_gpu_hop, _gpu_select, _gpu_sums, _gpu_turn):
            monkeypatch.setattr(kernels, "UNROLL", tl.constexpr(3))
        for name in ("AHEAD", "FURTHER_AHEAD"):
            monkeypatch.setattr(_gpu_median, name, tl.constexpr(2))
        return gpu

    def test_more_columns_than_programs(self, module, monkeypatch):
        from graphact.kernels import _gpu_held, _gpu_median, _gpu_medians

        for kernels in (_gpu_median, _gpu_medians):
            monkeypatch.setattr(kernels, "MOST_PROGRAMS", 2)
        monkeypatch.setattr(_gpu_held, "BYTES", 8 * 4)  # one column at a time, so that there are too many of them
        monkeypatch.setattr(_gpu_held, "LEAST_BYTES", 4)
        grids = []

        def recorded(*arguments, shape, **options):
            grids.append(shape.grid)
            walk(*arguments, shape=shape, **options)

        walk = _gpu_medians.walk
        monkeypatch.setattr(_gpu_medians, "walk", recorded)
        graph = self.graph("longer hubs")
        check_hop(module, graph, signal((graph.num_nodes, 37)).float(), ["median"])
        assert max(columns for _, columns in grids) == 2  # the interpreter would start more


@pytest.mark.parametrize("length", [8, 11, 15, 20, 24, 27, 32, 47, 64, 101, 200, 300, 1100])
def test_medians_of_every_size(length):
    """One node that hears so many: what is meant for each length, as it is."""
    from graphact.kernels import gpu

    graph = graph_of(length + 1, [(j, 0) for j in range(length + 1)])
    x = signal((length + 1, 2), "ties" if length % 2 else "normal").to(torch.float32)
    arguments = (x, graph.weight, Lists.of(graph.incoming), "median", length % 3 == 0, False, length)
    with poisoned():
        values, places, _ = gpu.hop(*arguments)
    expected = reference.hop(*arguments)
    assert torch.equal(values, expected[0])
    assert torch.equal(places, expected[1])


def test_networks_sort():
    """Numbers that are 0 or 1, by all thresholds of random orders."""
    from graphact.kernels._gpu_network import SIZES, sorting_network

    for size in SIZES:
        orders = np.random.default_rng(0).random((200, size)).argsort(1)
        values = (orders[:, None] < np.arange(size + 1)[:, None]).reshape(-1, size)
        for low, high in sorting_network(size):
            values[:, low], values[:, high] = values[:, [low, high]].min(1), values[:, [low, high]].max(1)
        assert (np.sort(values, 1) == values).all(), size


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("special", [None, float("nan"), float("-inf"), float("inf")])
def test_mixing_equals_torch(special, per_feature, terms):
    from graphact.kernels import _gpu_mix
    from graphact.kernels.mixing import mix_plainly

    own, *values = (torch.randn(2, 5, 3).requires_grad_() for _ in range(terms + 1))
    beta, weights = torch.randn(2), torch.randn((2, terms, 3)[: 3 if per_feature else 2])
    if special is not None:
        beta[1] = own.data[0, 2, 1] = special
    beta.requires_grad_()
    weights.requires_grad_()
    grad = torch.randn(2, 5, 3)
    expected = mix_plainly(own, values, beta, weights)
    gradients = torch.autograd.grad(expected, [own, *values, beta, weights], grad)
    with torch.no_grad():
        found = _gpu_mix.mix(own, values, beta, weights)
        of_own, of_values, of_beta, of_weights = _gpu_mix.mix_gradients(grad, own, values, beta, weights)
    torch.testing.assert_close(found, expected.detach(), equal_nan=True)
    torch.testing.assert_close([of_own, *of_values, of_beta, of_weights], list(gradients), equal_nan=True)
