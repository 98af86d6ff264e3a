"""Several functions of a neighbourhood in one pass: against loops over nodes, and by every kind of derivative."""

import math

import pytest
import torch
from torch import nn
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import graphact
from graphact import Graph, functional
from graphact.kernels import autograd, reference
from graphact.kernels.autograd import neighborhood_functions, tensors_of
from graphact.spec.reductions import Operation
from support.kernel_cases import GRAPHS, graph_of, random_edges, signal

OPS = ("max", "min", "median", "mean", "std", "kernel")
BACKENDS = ("reference", "numba")
each_backend = pytest.mark.parametrize("backend", BACKENDS)
# a directed graph with a self-loop, which joins the shift alone, a repeated edge, and a node without neighbours
EDGES = [[0, 1, 2, 3, 4, 0, 2, 1, 3, 0], [1, 0, 3, 2, 1, 3, 1, 1, 1, 1]]


def loop_graph(dtype=torch.float64, *, requires_grad=False):
    weight = torch.linspace(0.5, 1.5, 10, dtype=dtype).requires_grad_(requires_grad)
    return Graph.from_edge_index(EDGES, weight, num_nodes=6), weight


def members_of(graph, closed):
    """The neighbours of each node in ascending order, from a dense matrix."""
    matrix = graph.to_dense() != 0
    matrix.fill_diagonal_(closed)
    return [row.nonzero().flatten() for row in matrix]


def by_loops(x, graph, ops, closed):
    """Written out node by node, differentiable; ties give the gradient to the first."""

    def evaluate(values, op):
        if values.size(-2) == 0:
            return values.sum(-2)
        if op == "mean":
            return values.mean(-2)
        if op == "std":
            spread = values.std(-2, correction=0)
            equal = ((values == values[..., :1, :]) & values.isfinite()).all(-2)
            return torch.where(equal, 0.0, torch.where(equal, values[..., 0, :] ** 2 + 1, spread**2).sqrt())
        ordered = values.sort(-2).values
        place = {"max": -1, "min": 0, "median": (values.size(-2) - 1) // 2}[op]
        unknown = values.isnan()
        wanted = torch.where(unknown.any(-2), math.nan, ordered[..., place, :]).unsqueeze(-2)
        hit = torch.where(wanted.isnan(), unknown, values == wanted)
        return values.gather(-2, hit.int().argmax(-2, keepdim=True)).squeeze(-2)

    rows = [x[..., members, :] for members in members_of(graph, closed)]

    def distances():
        return [(x[..., i : i + 1, :] - row).square().sum(-2) for i, row in enumerate(open_rows)]

    open_rows = [x[..., members, :] for members in members_of(graph, False)]
    values = ([evaluate(row, op) for row in rows] if op != "kernel" else distances() for op in ops)
    return tuple(torch.stack(each, -2) for each in values)


@each_backend
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kind", ["normal", "ties", "special", "infinite"])
def test_values_are_those_of_loops(kind, closed, backend):
    graph, _ = loop_graph()
    x = signal((2, 6, 3), kind)
    with graphact.backend(backend):
        shifted, *values = neighborhood_functions(x, graph, OPS, True, closed)
        torch.testing.assert_close(shifted, functional.shift(x, graph), equal_nan=True)
    torch.testing.assert_close(tuple(values), by_loops(x, graph, OPS, closed), equal_nan=True)


@each_backend
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("kind", ["normal", "ties"])
@pytest.mark.parametrize("ops", [OPS, ("std", "max", "min"), ("mean",), ("median",)], ids=",".join)
def test_gradients_are_those_of_loops(ops, kind, closed, backend):
    graph, weight = loop_graph(requires_grad=True)
    constant, _ = loop_graph()
    x = signal((2, 6, 3), kind).requires_grad_()
    grads = [signal((2, 6, 3), seed=seed) for seed in range(len(ops) + 1)]
    expected = (graph.to_dense() @ x, *by_loops(x, graph, ops, closed))
    right = torch.autograd.grad(expected, (x, weight), grads, retain_graph=True)
    with graphact.backend(backend):
        for each, inputs in ((graph, (x, weight)), (constant, (x,))):
            found = neighborhood_functions(x, each, ops, True, closed)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(
                torch.autograd.grad(found, inputs, grads, retain_graph=True), right[: len(inputs)]
            )


@each_backend
@pytest.mark.parametrize("closed", [False, True])
def test_first_and_second_derivatives(closed, backend):
    graph, _ = loop_graph()
    x = signal((6, 2)).requires_grad_()

    def run(x):
        return neighborhood_functions(x, graph, OPS, True, closed)

    with graphact.backend(backend):
        assert torch.autograd.gradcheck(run, x, check_forward_ad=True)
        one_column = x.detach()[:, :1].requires_grad_()
        assert torch.autograd.gradgradcheck(run, one_column, check_fwd_over_rev=True)


@pytest.mark.parametrize("closed", [False, True])
def test_transforms_of_transforms(closed):
    graph, _ = loop_graph()
    x = signal((6, 2))

    def energy(x):
        return sum(part.pow(3).sum() for part in neighborhood_functions(x, graph, OPS, True, closed))

    def energy_of_loops(x):
        return sum(part.pow(3).sum() for part in (graph.to_dense() @ x, *by_loops(x, graph, OPS, closed)))

    expected = torch.autograd.functional.hessian(energy_of_loops, x)
    for transform in (hessian, lambda f: jacfwd(jacfwd(f)), lambda f: jacrev(jacrev(f)), lambda f: jacrev(jacfwd(f))):
        torch.testing.assert_close(transform(energy)(x), expected)
    torch.testing.assert_close(jacrev(hessian(energy))(x), jacfwd(hessian(energy))(x))


def test_transforms():
    graph, _ = loop_graph()
    x, tangent = signal((4, 6, 2)), signal((6, 2), seed=1)

    def energy(x):
        return sum(part.square().sum() for part in neighborhood_functions(x, graph, OPS, True))

    torch.testing.assert_close(vmap(grad(energy))(x), torch.stack([grad(energy)(one) for one in x]))
    torch.testing.assert_close(jvp(energy, (x[0],), (tangent,))[1], (grad(energy)(x[0]) * tangent).sum())


@each_backend
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("far", [0, 1, 700])
def test_deviations_around_one_value_far_from_all_others(far, closed, backend):
    """Rounding stays small wherever the outlier stands: first in the list, in the middle, or the node itself."""
    graph = graph_of(10_001, [(j, 0) for j in range(1, 10_001)]).to(dtype=torch.float32)
    x = signal((10_001, 3)).float()
    x[far] += 10_000
    members = x[1 - closed :].double()
    with graphact.backend(backend):
        mean, spread = neighborhood_functions(x, graph, ("mean", "std"), False, closed)
    torch.testing.assert_close(spread[0], members.std(0, correction=0).float(), rtol=1e-4, atol=0)
    torch.testing.assert_close(mean[0], members.mean(0).float(), rtol=0, atol=3e-5 * spread[0].max().item())


@each_backend
def test_equal_values_have_no_deviation_and_no_gradient(backend):
    graph = graph_of(41, [(j, 0) for j in range(1, 41)]).to(dtype=torch.float32)
    x = torch.full((41, 2), 16_777.77).requires_grad_()
    x.data[:, 1] += torch.linspace(0, 1, 41)
    with graphact.backend(backend):
        (spread,) = neighborhood_functions(x, graph, ("std",), False)
        (found,) = torch.autograd.grad(spread.sum(), x)
    assert spread[0, 0].item() == 0.0
    assert not spread[1:].any()
    assert not found[:, 0].any()
    torch.testing.assert_close(spread[0, 1], x[1:, 1].double().std(correction=0).float(), rtol=1e-3, atol=0)
    assert found[1:, 1].abs().min() > 0


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_precision(dtype, diagonal):
    """Sums are held in float32, a diagonal joins in float32, and each result is rounded once."""
    graph = loop_graph(torch.float32)[0] if diagonal else graph_of(6, random_edges(6, 20)).to(dtype=torch.float32)
    x = signal((6, 5)).to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    found = neighborhood_functions(x, graph, OPS[:-1], True)
    expected = neighborhood_functions(wide, graph.to(dtype=torch.float64), OPS[:-1], True)
    assert neighborhood_functions(x, graph, ["kernel"], False)[0].dtype == torch.float32
    tolerance = 4 * torch.finfo(dtype).eps
    assert all(part.dtype == dtype for part in found)
    torch.testing.assert_close(found, tuple(part.to(dtype) for part in expected), rtol=tolerance, atol=tolerance)
    grads = [signal((6, 5), seed=seed).to(dtype) for seed in range(6)]
    right = torch.autograd.grad(expected, wide, [each.double() for each in grads])[0]
    (result,) = torch.autograd.grad(found, x, grads)
    torch.testing.assert_close(result, right.to(dtype), rtol=8 * tolerance, atol=8 * tolerance)


def test_only_what_is_wanted_is_held():
    """Beyond the results, the slots of selected neighbours and the mean that a deviation needs."""
    graph = GRAPHS["directed"]()
    x = signal((13, 3))
    found = reference.neighborhood_functions(x, tensors_of(graph), ["std"], False, False, 9)
    assert found.keys() == {"mean", "std"}
    with graphact.backend("numba"):
        held = autograd.NeighborhoodFunctions.apply(x, tensors_of(graph), "max,std", False, True, 9)
    held = dict(zip(reference.RESULTS, held, strict=True))
    assert {name for name, part in held.items() if part.numel()} == {"shift", "max", "mean", "std", "max slot"}
    assert held["max slot"].dtype == torch.uint8


def test_one_result_of_several_is_differentiated():
    graph, _ = loop_graph()
    x = signal((6, 2)).requires_grad_()
    for at, op in enumerate(OPS):
        expected = torch.autograd.grad(by_loops(x, graph, (op,), False)[0].sum(), x)
        torch.testing.assert_close(
            torch.autograd.grad(neighborhood_functions(x, graph, OPS, False)[at].sum(), x), expected
        )


def test_names():
    graph, _ = loop_graph()
    x = signal((6, 2))
    with pytest.raises(ValueError, match="ops must be names among max, min, median, mean, std, kernel, got 'sum'"):
        neighborhood_functions(x, graph, ("max", "sum"), True)
    assert neighborhood_functions(x, graph, (), False) == ()
    torch.testing.assert_close(neighborhood_functions(x, graph, (), True), (functional.shift(x, graph),))
    first, second = neighborhood_functions(x, graph, ("min", "min"), False)
    assert torch.equal(first, second)


class Bank(nn.Module):
    def __init__(self, graph, ops):
        super().__init__()
        self.graph, self.ops = graph, ops

    def forward(self, x):
        return torch.stack(neighborhood_functions(2 * x, self.graph, self.ops, True)).sum(0)


@pytest.mark.slow
@pytest.mark.parametrize("requires_grad", [False, True])
def test_torchs_own_checks(requires_grad):
    graph = GRAPHS["directed"]().to(dtype=torch.float32)
    x = signal((2, 13, 3)).float().requires_grad_(requires_grad)
    rest = (tensors_of(graph).flat(), ",".join(OPS), False, True, 9)
    torch.library.opcheck(torch.ops.graphact.neighborhood_functions.default, (x, *rest))
    found = torch.ops.graphact.neighborhood_functions(x.detach(), *rest)
    mean, std = (found[reference.RESULTS.index(name)] for name in ("mean", "std"))
    back = (*[x] * 6, *found[-3:], mean, std, x.detach(), rest[0], False)
    torch.library.opcheck(torch.ops.graphact.neighborhood_functions_backward.default, back)


@pytest.mark.slow
def test_compiled_whole():
    graph, _ = loop_graph(torch.float32)
    bank = Bank(graph, OPS)
    x = signal((6, 2)).float().requires_grad_()
    compiled = torch.compile(bank, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), bank(x))
    right, found = (torch.autograd.grad(run(x).square().sum(), x) for run in (bank, compiled))
    torch.testing.assert_close(found, right)


def test_passes_of_an_activation_use_it(monkeypatch):
    """A mixture's functions come from one pass; a user's own function of one of these names does not."""
    graph, _ = loop_graph()
    x, weights = signal((6, 2)), torch.ones(3, 1, dtype=torch.float64)
    calls, right = [], autograd.neighborhood_functions

    def recorded(x, graph, ops, *rest):
        calls.append(tuple(ops))
        return right(x, graph, ops, *rest)

    monkeypatch.setattr(autograd, "neighborhood_functions", recorded)
    own = Operation("std", lambda neighbors: neighbors.abs().mean(-2))
    found = functional.graph_adaptive_mixture(x, graph, 0.0, weights, ["min", own, "mean"])
    assert calls == [("min", "mean")]
    shifted = graph.to_dense() @ x
    small, average = by_loops(shifted, graph, ("min", "mean"), False)
    torch.testing.assert_close(found, small + average + functional.neighborhood_apply(shifted, graph, own.function))
