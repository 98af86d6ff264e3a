"""Forward-mode derivatives: dual numbers against finite differences, Jacobians against reverse mode."""

import pytest
import torch

import graphact
from graphact import Graph, functional, nn
from support.activations import FAMILY
from support.gradients import as_function
from support.graphs import directed_graph, random_graph

NAMES = [*(name for name in FAMILY if name != "relu"), "mixture-ga"]
BACKENDS = ["auto", "reference"]


def check(function, inputs):
    """Dual numbers against finite differences, and ``torch.func.jvp`` against the gradients of reverse mode."""
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True, check_backward_ad=False, fast_mode=True)
    tangents = tuple(torch.randn_like(x) for x in inputs)
    value, tangent = torch.func.jvp(function, tuple(x.detach() for x in inputs), tangents)
    expected = function(*inputs)
    torch.testing.assert_close(value, expected)
    cotangent = torch.randn_like(value)
    gradients = torch.autograd.grad(expected, inputs, cotangent)
    along = sum((gradient * direction).sum() for gradient, direction in zip(gradients, tangents, strict=True))
    torch.testing.assert_close((tangent * cotangent).sum(), along)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_activations(name, hops, closed, backend):
    torch.manual_seed(0)
    graph = directed_graph()
    options = {"learn_gamma": True, "gamma": 2.0} if "kernel" in name else {}
    module = nn.make_activation(name, hops=hops, closed=closed, features=3, **options).double()
    run, values = as_function(module, graph)
    with graphact.backend(backend):
        for shape in ((9, 3), (2, 9, 3)):
            check(run, (torch.randn(shape, dtype=torch.float64), *values))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("taps", [(3,), (3, 2, 4), (3, 4, 2)])
def test_filters(taps, backend):
    torch.manual_seed(0)
    graph, taps = directed_graph(), torch.randn(taps, dtype=torch.float64)
    features = taps.size(1) if taps.dim() == 3 else 2
    with graphact.backend(backend):
        check(lambda x, h: functional.graph_filter(x, graph, h), (torch.randn(2, 9, features).double(), taps))


def test_a_network_and_a_function_of_ones_own():
    torch.manual_seed(0)
    graph = directed_graph()
    for activation in ("median-ga", nn.GraphAdaptive(lambda own, near: (own - near).abs().amax(-2), hops=2)):
        model = nn.GCNN([1, 3], order=2, activation=activation, out_features=2).double()
        if activation != "median-ga":  # amax over nobody
            graph = random_graph(num_nodes=9)
        run, values = as_function(model, graph)
        check(run, (torch.randn(2, 9, 1, dtype=torch.float64), *values))


@pytest.mark.parametrize("name", NAMES)
def test_jacobians_and_batches_of_tangents(name):
    torch.manual_seed(0)
    graph, x = directed_graph(), torch.randn(9, 2, dtype=torch.float64)
    module = nn.make_activation(name, hops=2, **({"gamma": 2.0} if "kernel" in name else {})).double()

    def run(x):
        return module(x, graph)

    expected = torch.autograd.functional.jacobian(run, x)
    torch.testing.assert_close(torch.func.jacfwd(run)(x), expected)
    torch.testing.assert_close(torch.func.jacrev(run)(x), expected)
    batch = torch.randn(4, 9, 2, dtype=torch.float64)
    together = torch.func.vmap(lambda t: torch.func.jvp(run, (x,), (t,))[1])(batch)
    torch.testing.assert_close(together, torch.stack([torch.func.jvp(run, (x,), (t,))[1] for t in batch]))
    pairs = torch.func.vmap(lambda x, t: torch.func.jvp(run, (x,), (t,))[1])(batch, batch.flip(0))
    alone = [torch.func.jvp(run, (x,), (t,))[1] for x, t in zip(batch, batch.flip(0), strict=True)]
    torch.testing.assert_close(pairs, torch.stack(alone))


def test_ties_and_empty_neighborhoods():
    graph = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
    x, t = torch.tensor([[0.0], [2.0], [2.0]]), torch.tensor([[1.0], [10.0], [100.0]])
    value, tangent = torch.func.jvp(lambda x: functional.neighborhood_max(x, graph), (x,), (t,))
    assert value.squeeze().tolist() == [2, 0, 0]
    assert tangent.squeeze().tolist() == [10, 0, 0]  # the lowest index among ties, as in reverse mode


@pytest.mark.parametrize("op", ["max", "kernel"])
def test_half_precision(op):
    torch.manual_seed(0)
    graph = random_graph(dtype=torch.float32)
    x, t = torch.randn(12, 2).bfloat16(), torch.randn(12, 2).bfloat16()

    def run(x):
        return functional.graph_adaptive(x, graph, 1.0, torch.ones(1), op, gamma=3.0)

    value, tangent = torch.func.jvp(run, (x,), (t,))
    assert value.dtype == tangent.dtype == torch.bfloat16
    _, exact = torch.func.jvp(run, (x.float(),), (t.float(),))
    torch.testing.assert_close(tangent.float(), exact, atol=0.1, rtol=0.05)
