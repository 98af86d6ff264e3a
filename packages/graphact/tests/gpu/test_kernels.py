"""The Triton kernels against the reference on a CUDA device."""

import numpy as np
import pytest
import torch

import graphact
from graphact import nn
from graphact.kernels.autograd import tensors_of
from support.kernel_cases import (
    KernelCases,
    check_select,
    check_sums,
    graph_of,
    hub,
    random_edges,
    shorten_lists,
    signal,
)

gpu = pytest.importorskip("graphact.kernels.triton")


class TestOnDevice(KernelCases):
    device = "cuda"

    @pytest.fixture
    def module(self):
        return gpu


class TestOnDeviceAsInTheInterpreter(TestOnDevice):
    """Short lists take the ways that are meant for long ones."""

    @pytest.fixture
    def module(self, monkeypatch):
        shorten_lists(monkeypatch)
        return gpu


def power_law(num_nodes, num_edges):
    rng = np.random.default_rng(0)
    target = (num_nodes * rng.random(num_edges) ** 4).astype(int)
    return graph_of(num_nodes, np.stack([rng.integers(num_nodes, size=num_edges), target], 1).tolist())


LARGE = {
    "random": lambda: graph_of(5_000, random_edges(5_000, 80_000)),
    "power law": lambda: power_law(5_000, 60_000),
    "hub": lambda: hub(3_000, 2_900, 2_000),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("columns", [3, 64, 130])
def test_large(name, columns):
    graph = LARGE[name]().to(dtype=torch.float32).to("cuda")
    x = signal((2, graph.num_nodes, columns)).float().cuda()
    check_sums(gpu, graph, x)
    check_select(gpu, graph, x)


def test_more_numbers_than_32_bits_count():
    nodes, columns = 2**20 + 3, 2100
    if torch.cuda.mem_get_info()[0] < 40 * 2**30:
        pytest.skip("40 GiB of device memory are needed")
    ring = torch.arange(nodes)
    graph = graphact.Graph.from_edge_index(torch.stack([ring, ring.roll(-1)]), num_nodes=nodes).to("cuda")
    x = (
        torch.arange(nodes, device="cuda").remainder(1999).half().unsqueeze(1)
        + torch.zeros(columns, device="cuda").half()
    )
    expected, lists, tensors = x.roll(1, 0), graph.incoming, tensors_of(graph)
    assert torch.equal(gpu.shift(x, graph.weight, lists), expected)
    values, chosen = gpu.select(x, None, lists, "median", False)
    assert torch.equal(values, expected)
    assert torch.equal(chosen[:, -1].long(), ring.roll(1).cuda())
    assert torch.equal(gpu.scatter_selected(x, chosen), x.roll(-1, 0))
    del values, chosen
    for op in ("max", "median"):
        found = gpu.neighborhood_functions(x, tensors, [op], False, True, 1)
        assert torch.equal(found.pop(op), expected)
        assert torch.equal(found.pop("shift"), expected)
        back = gpu.neighborhood_functions_backward({op: x}, found, tensors, False)
        assert torch.equal(back, x.roll(-1, 0))
        del back, found


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_modules_with_gradients(name):
    graph = LARGE["random"]().to(dtype=torch.float32).normalize("spectral").to("cuda")
    model = nn.GCNN([1, 8, 8], activation=name, hops=2, gamma=3.0).cuda()
    results = []
    for backend in ("reference", "triton"):
        x = torch.randn(2, graph.num_nodes, 1, generator=torch.Generator().manual_seed(0)).cuda().requires_grad_()
        model.zero_grad()
        with graphact.backend(backend):
            out = model(x, graph)
            out.square().mean().backward()
        results.append([out.detach(), x.grad, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(results[1], results[0], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("op", ["max", "kernel"])
def test_what_was_recorded_on_one_tile_serves_several(op):
    """301 nodes of 4 features are one tile of the mixing step, 701 are two; both share what is recorded."""
    generator = torch.Generator().manual_seed(0)
    for nodes in (301, 301, 301, 701, 1601, 301):
        graph = graph_of(nodes, random_edges(nodes, 4 * nodes)).to(dtype=torch.float32).normalize("random_walk")
        x, grad = (torch.randn(nodes, 4, generator=generator).cuda() for _ in range(2))
        inputs = [x, torch.tensor(0.7).cuda(), torch.randn(1, 4, generator=generator).cuda()]
        results = []
        for backend in ("reference", "triton"):
            given = [tensor.clone().requires_grad_() for tensor in inputs]
            with graphact.backend(backend):
                out = graphact.functional.graph_adaptive(given[0], graph.to("cuda"), *given[1:], op, gamma=2.0)
            results.append([out, *torch.autograd.grad(out, given, grad)])
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)
