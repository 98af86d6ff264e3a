"""The modules on a CUDA device equal the modules on the CPU."""

import copy

import pytest
import torch
from support.graphs import random_graph

from graphact import nn


def gradients(model, x, graph):
    model.zero_grad()
    out = model(x, graph)
    out.square().sum().backward()
    return out.detach().cpu(), [parameter.grad.cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_same_as_cpu(name, hops, closed):
    model = nn.GCNN([1, 4, 4], activation=name, hops=hops, out_features=2, closed=closed, gamma=0.7).double()
    graph, x = random_graph().normalize("laplacian"), torch.randn(3, 12, 1, dtype=torch.float64)
    expected = gradients(model, x, graph)
    torch.testing.assert_close(gradients(copy.deepcopy(model).cuda(), x.cuda(), graph.to("cuda")), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_lower_precision(name, dtype):
    model = nn.GCNN([1, 4], activation=name, hops=2, gamma=0.7).to(dtype)
    graph, x = random_graph(dtype=torch.float32).normalize("spectral"), torch.randn(3, 12, 1)
    expected = copy.deepcopy(model).float()(x.to(dtype).float(), graph).detach()
    actual = model.cuda()(x.to(dtype).cuda(), graph.to("cuda"))
    torch.testing.assert_close(actual.float().cpu(), expected, rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
def test_compile_on_the_device():
    model = nn.GCNN([1, 4, 4], activation="max-ga", hops=2).cuda()
    graph, x = random_graph(dtype=torch.float32).to("cuda"), torch.randn(3, 12, 1, device="cuda")
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x, graph), model(x, graph))
