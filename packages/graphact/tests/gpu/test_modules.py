"""The modules on a CUDA device equal the modules on the CPU."""

import copy

import pytest
import torch

from graphact import functional, nn
from support.graphs import random_graph


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
    model, x, graph = model.cuda(), x.to(dtype).cuda(), graph.to("cuda", dtype=dtype)
    for _ in range(3):  # the third is replayed
        torch.testing.assert_close(model(x, graph).float().cpu(), expected, rtol=0.05, atol=0.05)


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
def test_compile_on_the_device():
    model = nn.GCNN([1, 4, 4], activation="max-ga", hops=2).cuda()
    graph, x = random_graph(dtype=torch.float32).to("cuda"), torch.randn(3, 12, 1, device="cuda")
    torch.testing.assert_close(torch.compile(model, fullgraph=True)(x, graph), model(x, graph))


class Layers(torch.nn.Module):
    """Three times a linear map, a shift and an activation."""

    def __init__(self, name):
        super().__init__()
        self.linear = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))
        self.activations = torch.nn.ModuleList(nn.make_activation(name, features=8) for _ in range(3))

    def forward(self, x, graph):
        for linear, activation in zip(self.linear, self.activations, strict=True):
            x = activation(functional.shift(linear(x), graph), graph)
        return x


def gradients_after(run, model, x, times):
    for _ in range(times):
        model.zero_grad()
        run(x).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


# gradients are added up in the stream of the caller, where torch records those of a CUDA graph in another
OTHER_STREAM = pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match:UserWarning")


@OTHER_STREAM
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")  # between two of our operators
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores for float32 matrix multiplication:UserWarning")
@pytest.mark.parametrize("name", ["max-ga", "median-ga", "kernel-ga"])
def test_reduce_overhead(name):
    torch.compiler.reset()
    graph, model = random_graph(40, dtype=torch.float32).normalize("symmetric").to("cuda"), Layers(name).cuda()
    x = torch.randn(40, 8, device="cuda")
    compiled = torch.compile(model, mode="reduce-overhead")
    expected = gradients_after(lambda x: model(x, graph), model, x, 1)
    found = gradients_after(lambda x: compiled(x, graph), model, x, 4)  # the fourth is replayed
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@OTHER_STREAM
@pytest.mark.parametrize("name", ["max-ga", "median-ga", "kernel-ga", "max-l"])
def test_a_cuda_graph_of_a_model_with_its_graph(name):
    graph, model = random_graph(40, dtype=torch.float32).normalize("symmetric").to("cuda"), Layers(name).cuda()
    x, alike = torch.randn(40, 8, device="cuda", requires_grad=True), copy.deepcopy(model)
    expected = gradients_after(lambda x: alike(x, graph), alike, x.detach(), 1)

    class OnItsGraph(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x, graph)

    graphed = torch.cuda.make_graphed_callables(OnItsGraph(), (x,))
    torch.testing.assert_close(gradients_after(graphed, model, x, 3), expected, rtol=1e-4, atol=1e-4)
