"""The operators as torch sees them: schemas, shapes, autograd registration, and the reference behind them."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map

import graphact
from graphact import Graph, functional
from graphact.kernels import autograd, reference
from graphact.kernels.autograd import tensors_of
from graphact.kernels.graph_tensors import CSRLists, EdgeLists
from support.graphs import random_graph

DIRECTED = Graph.from_edge_index([[0, 1, 1, 2, 4], [1, 0, 2, 3, 2]], torch.rand(5), num_nodes=6)


def lists(graph):
    return CSRLists.flat(graph.incoming), EdgeLists(graph.incoming, graph.outgoing).flat()


@pytest.mark.slow
@pytest.mark.parametrize("graph", [random_graph(dtype=torch.float32), DIRECTED], ids=["undirected", "directed"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_opcheck(graph, requires_grad):
    incoming, both = lists(graph)
    x = torch.randn(2, graph.num_nodes, 3, requires_grad=requires_grad)
    weight_t = graph.outgoing_weight.clone()
    weight = graph.weight.clone().requires_grad_(requires_grad)
    torch.library.opcheck(torch.ops.graphact.shift.default, (x, weight, weight_t, both))
    torch.library.opcheck(torch.ops.graphact.sum_sq_diff.default, (x, both))
    fixed = x.detach()
    for op in ("max", "min", "median"):
        torch.library.opcheck(torch.ops.graphact.select.default, (x, None, incoming, op, False))
        torch.library.opcheck(torch.ops.graphact.select.default, (x, None, incoming, op, True))
    selected = torch.ops.graphact.select(fixed, None, incoming, "max", False)[1]
    torch.library.opcheck(torch.ops.graphact.select.default, (x, selected, incoming, "max", False))
    # all operators have gradients, those of a backward pass too
    torch.library.opcheck(torch.ops.graphact.scatter_selected.default, (x, selected))
    torch.library.opcheck(torch.ops.graphact.sum_sq_diff_backward.default, (x, fixed, both))
    torch.library.opcheck(torch.ops.graphact.shift_weight_grad.default, (x, fixed, incoming))


def test_vmap_over_weights_is_one_shift_after_the_other():
    _, both = lists(DIRECTED)
    weights, x = torch.rand(3, DIRECTED.num_edges), torch.randn(6, 2)

    def run(weight):
        return torch.ops.graphact.shift(x, weight, weight, both)

    assert torch.equal(torch.func.vmap(run)(weights), torch.stack([run(weight) for weight in weights]))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_tracing_sees_operators_and_eager_code_calls_the_backend(requires_grad):
    graph, x = DIRECTED, torch.randn(6, 3, requires_grad=requires_grad)

    def run(x):
        return autograd.neighborhood_functions(x, graph, ["max"], True)[1]

    traced = make_fx(run)(x)
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert torch.ops.graphact.neighborhood_functions.default in targets
    torch.testing.assert_close(traced(x), run(x))
    with torch.profiler.profile() as profile:
        run(x)
    assert not any(event.name.startswith("graphact::") for event in profile.events())


def test_tensors_without_numbers():
    x = torch.randn(6, 3)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = functional.graph_adaptive(mode.from_tensor(x), DIRECTED, 1.0, torch.ones(2), "median")
    assert fake.shape == x.shape
    on_meta = autograd.select(x.to("meta"), None, DIRECTED.to("meta").incoming, "max", False)
    assert [part.shape for part in on_meta] == [x.shape] * 2
    assert [part.dtype for part in on_meta] == [torch.float32, torch.int32]


def test_half_precision_has_the_same_types_without_numbers():
    """Sums over a signal in half precision and their gradients are float32; the gradient of the signal is not."""
    incoming, both = lists(DIRECTED)
    around, x, sums = tensors_of(DIRECTED).flat(), torch.randn(6, 3, dtype=torch.bfloat16), torch.randn(6, 3)
    ops = torch.ops.graphact
    found = ops.neighborhood_functions(x, around, "max,std", False, True, 2)
    slot, mean, std = (found[reference.RESULTS.index(name)] for name in ("max slot", "mean", "std"))
    back = (x, x, None, None, None, sums, slot, None, None, mean, std, x, around, False)
    calls = {
        ops.shift: (x, *around[:2], both),
        ops.shift_weight_grad: (x, x, incoming),
        ops.select: (x, None, incoming, "max", False),
        ops.scatter_selected: (x, ops.select(x, None, incoming, "max", False)[1]),
        ops.sum_sq_diff: (x, both),
        ops.sum_sq_diff_backward: (sums, x, both),
        ops.sum_products: (x, x, both),
        ops.neighborhood_functions: (x, around, "max,std,kernel", False, True, 2),
        ops.neighborhood_functions_backward: back,
    }
    for operator, inputs in calls.items():
        with FakeTensorMode() as mode:
            fake = operator(
                *tree_map(lambda part: mode.from_tensor(part) if isinstance(part, Tensor) else part, inputs)
            )
        for expected, found in zip(tree_leaves(operator(*inputs)), tree_leaves(fake), strict=True):
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype), operator


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_gradients_that_have_gradients_are_the_same_gradients(hops, backend):
    """Also where the inputs of a mixing step depend on each other, as its terms depend on the signal."""
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    graph = DIRECTED.to(dtype=torch.float64)

    def loss(x, function, op):
        weights = x[:1].tanh().expand(hops, -1)  # coefficients computed from the signal
        return function(x, graph, x.mean(), weights, op, gamma=2.0).pow(2).sum()

    for function in (functional.graph_adaptive, functional.localized):
        for op in ("max", "median", "kernel"):
            with graphact.backend(backend):
                plain = torch.autograd.grad(loss(x, function, op), x)
                again = torch.autograd.grad(loss(x, function, op), x, create_graph=True)
            torch.testing.assert_close(again, plain)
            assert torch.autograd.gradgradcheck(partial(loss, function=function, op=op), x)


def test_backward_pass_runs_on_the_backend_of_the_forward_pass(monkeypatch):
    calls, right = [], reference.neighborhood_functions_backward
    monkeypatch.setattr(
        reference, "neighborhood_functions_backward", lambda *inputs: calls.append(inputs) or right(*inputs)
    )
    x = torch.randn(6, 3, requires_grad=True)
    with graphact.backend("reference"):
        value = (
            functional.neighborhood_max(x, DIRECTED).sum()
            + functional.graph_adaptive(x, DIRECTED, 1.0, torch.ones(1), "max").sum()
        )
    assert not calls
    value.backward()
    assert len(calls) == 1


@pytest.mark.parametrize("op", ["max", "median", "kernel"])
def test_weights_changed_between_forward_and_backward_are_noticed(op):
    graph, x = random_graph(), torch.randn(12, 2, dtype=torch.float64, requires_grad=True)
    out = functional.graph_adaptive(x, graph, 1.0, torch.ones(2, dtype=torch.float64), op)
    graph.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
