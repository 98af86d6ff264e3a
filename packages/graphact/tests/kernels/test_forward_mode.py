"""Forward-mode derivatives: against finite differences, and against reverse mode."""

import pytest
import torch
from torch.autograd import forward_ad

import graphact
from graphact import Graph, functional, nn
from support.activations import FAMILY
from support.graphs import random_graph

NAMES = [*(name for name in FAMILY if name != "relu"), "mixture-ga"]
BACKENDS = ["auto", "reference"]


def directed(num_nodes=9, seed=1):
    """A directed graph with self-loops and a node that hears nobody."""
    graph = random_graph(num_nodes=num_nodes, seed=seed)
    dense = graph.to_dense().clone()
    dense[2] = 0
    dense[3, 3], dense[5, 5] = 0.5, -0.3
    return Graph.from_dense(dense)


def by_reverse_mode(function, inputs, tangents):
    """``J t`` by differentiating ``J^T u`` with respect to u."""
    inputs = tuple(each.detach().requires_grad_() for each in inputs)
    out = function(*inputs)
    dummy = torch.zeros_like(out, requires_grad=True)
    back = torch.autograd.grad(out, inputs, dummy, create_graph=True)
    return torch.autograd.grad(back, dummy, tangents)[0]


def by_differences(function, inputs, tangents, step=1e-6):
    ahead, behind = ([x + s * t for x, t in zip(inputs, tangents, strict=True)] for s in (step, -step))
    return (function(*ahead) - function(*behind)) / (2 * step)


def by_dual_numbers(function, inputs, tangents):
    with forward_ad.dual_level():
        out = function(*(forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents, strict=True)))
        return forward_ad.unpack_dual(out)


def check(function, inputs, seed=3):
    generator = torch.Generator().manual_seed(seed)
    inputs = tuple(x.detach() for x in inputs)
    tangents = tuple(torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in inputs)
    value, tangent = torch.func.jvp(function, inputs, tangents)
    torch.testing.assert_close(value, function(*inputs))
    torch.testing.assert_close(tangent, by_reverse_mode(function, inputs, tangents))
    torch.testing.assert_close(tangent, by_differences(function, inputs, tangents), atol=1e-6, rtol=1e-6)
    value, dual = by_dual_numbers(function, inputs, tangents)
    torch.testing.assert_close(value, function(*inputs))
    torch.testing.assert_close(dual, tangent)
    return tangent


def module_function(module, graph):
    """A module as a function of its signal and its parameters, and the parameters."""
    names, values = zip(*((name, value.detach()) for name, value in module.named_parameters()), strict=True)

    def run(x, *values):
        return torch.func.functional_call(module, dict(zip(names, values, strict=True)), (x, graph))

    return run, values


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_activations(name, hops, closed, backend):
    torch.manual_seed(0)
    graph = directed()
    options = {"learn_gamma": True, "gamma": 2.0} if "kernel" in name else {}
    module = nn.make_activation(name, hops=hops, closed=closed, features=3, **options).double()
    run, values = module_function(module, graph)
    with graphact.backend(backend):
        for shape in ((9, 3), (2, 9, 3)):
            tangent = check(run, (torch.randn(shape, dtype=torch.float64), *values))
            assert tangent.abs().max() > 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("taps", [(3,), (3, 2, 4), (3, 4, 2)])
def test_filters(taps, backend):
    torch.manual_seed(0)
    graph, taps = directed(), torch.randn(taps, dtype=torch.float64)
    features = taps.size(1) if taps.dim() == 3 else 2
    with graphact.backend(backend):
        check(lambda x, h: functional.graph_filter(x, graph, h), (torch.randn(2, 9, features).double(), taps))


def test_a_network_and_a_function_of_ones_own():
    torch.manual_seed(0)
    graph = directed()
    for activation in ("median-ga", nn.GraphAdaptive(lambda own, near: (own - near).abs().amax(-2), hops=2)):
        model = nn.GCNN([1, 3], order=2, activation=activation, out_features=2).double()
        if activation != "median-ga":  # amax over nobody
            graph = random_graph(num_nodes=9)
        run, values = module_function(model, graph)
        check(run, (torch.randn(2, 9, 1, dtype=torch.float64), *values))


@pytest.mark.parametrize("name", NAMES)
def test_jacobians_and_batches_of_tangents(name):
    torch.manual_seed(0)
    graph, x = directed(), torch.randn(9, 2, dtype=torch.float64)
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
