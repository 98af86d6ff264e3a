"""The Triton kernels on the CPU, in Triton's interpreter; started by `test_gpu_interpreted.py`."""

import importlib

import numpy as np
import pytest
import torch

import graphact
from graphact import Graph, functional
from graphact.kernels import reference
from graphact.kernels.autograd import tensors_of
from support.interpreter import swift
from support.kernel_cases import (
    FUNCTION_CASES,
    KernelCases,
    check_functions,
    check_hop,
    check_once,
    graph_of,
    poisoned,
    shorten_lists,
    signal,
)

# NumPy, which computes in place of the GPU, warns of what torch does silently
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


@pytest.fixture(scope="module", autouse=True)
def _swift_interpreter():
    with swift():
        yield


class TestInterpreted(KernelCases):
    subnormal = False

    @pytest.fixture
    def module(self, monkeypatch):
        import triton.language as tl
        from triton.runtime import JITFunction

        from graphact.kernels import triton
        from graphact.kernels.triton import functions, median

        assert not isinstance(functions.functions_kernel, JITFunction), "set TRITON_INTERPRET=1"
        # the interpreter is slow: let short lists take the ways that are meant for long ones, and look ahead less
        shorten_lists(monkeypatch)
        for room in ("functions", "backward", "select"):
            kernels = importlib.import_module(f"graphact.kernels.triton.{room}")
            monkeypatch.setattr(kernels, "UNROLL", tl.constexpr(3))
        monkeypatch.setattr(median, "COUNTED", 16)  # so that the longest lists are counted in two steps
        return triton

    @pytest.mark.parametrize("kind", ["normal", "ties", "special", "far"])
    def test_functions_of_lists_in_pieces(self, module, kind, monkeypatch):
        for room in ("launch", "functions"):
            monkeypatch.setattr(importlib.import_module(f"graphact.kernels.triton.{room}"), "PIECE", 8)
        graph = self.graph("longer hubs")
        cases = (*FUNCTION_CASES, ("min,std", True, True), ("mean,std", False, False))
        check_functions(module, graph, signal((2, graph.num_nodes, 3), kind).float(), cases)

    @pytest.mark.parametrize("pieces", [False, True])
    @pytest.mark.parametrize("closed", [False, True])
    @pytest.mark.parametrize("far", [0, 1])
    def test_deviations_of_neighbors_around_one_far_value(self, module, far, closed, pieces, monkeypatch):
        piece = 64 if pieces else 512
        for room in ("launch", "functions"):
            monkeypatch.setattr(importlib.import_module(f"graphact.kernels.triton.{room}"), "PIECE", piece)
        graph = graph_of(301, [(j, 0) for j in range(1, 301)]).to(dtype=torch.float32)
        x = signal((301, 3)).float()
        x[far] += 10_000
        with poisoned():
            found = module.neighborhood_functions(x, tensors_of(graph), ["std"], closed, False, 300)
        members = x[1 - closed :].double()
        # the largest error of a mean square in one pass would be 300 units of rounding
        torch.testing.assert_close(found["std"][0], members.std(0, correction=0).float(), rtol=5e-6, atol=0)
        torch.testing.assert_close(found["mean"][0], members.mean(0).float(), rtol=5e-6, atol=1e-5)

    def test_more_columns_than_programs(self, module, monkeypatch):
        from graphact.kernels.triton import median

        monkeypatch.setattr(median, "MAX_PROGRAMS", 2)
        grids = []

        def recorded(*arguments, shape, **options):
            grids.append(shape.grid)
            start(*arguments, shape=shape, **options)

        start = median.start
        monkeypatch.setattr(median, "start", recorded)
        graph = self.graph("longer hubs")
        x = signal((graph.num_nodes, 5)).float()
        check_hop(module, graph, x, ["median"])
        check_once(module, graph, x, "median")
        assert max(columns for _, columns in grids) <= 2  # the interpreter would start more


@pytest.mark.parametrize("length", [8, 11, 15, 20, 24, 27, 32, 47, 64, 101, 200, 300, 1100])
def test_medians_of_every_size(length):
    """One node that hears so many: what is meant for each length, as it is."""
    from graphact.kernels import triton

    graph = graph_of(length + 1, [(j, 0) for j in range(length + 1)])
    x = signal((length + 1, 2), "ties" if length % 2 else "normal").to(torch.float32)
    arguments = (x, tensors_of(graph), ["median"], length % 3 == 0, False, length)
    with poisoned():
        found = triton.neighborhood_functions(*arguments)
    expected = reference.neighborhood_functions(*arguments)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_networks_sort():
    """Numbers that are 0 or 1, by all thresholds of random orders."""
    from graphact.kernels.triton.median import SIZES, sorting_network

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
    from graphact.kernels import triton

    own, *values = (torch.randn(2, 5, 3).requires_grad_() for _ in range(terms + 1))
    beta, weights = torch.randn(2), torch.randn((2, terms, 3)[: 3 if per_feature else 2])
    if special is not None:
        beta[1] = own.data[0, 2, 1] = special
    beta.requires_grad_()
    weights.requires_grad_()
    grad = torch.randn(2, 5, 3)
    expected = reference.mix(own, values, beta, weights)
    gradients = torch.autograd.grad(expected, [own, *values, beta, weights], grad)
    with torch.no_grad():
        found = triton.mix(own, values, beta, weights)
        grad_own, grad_values, grad_beta, grad_weights = triton.mix_backward(grad, own, values, beta, weights)
    torch.testing.assert_close(found, expected.detach(), equal_nan=True)
    torch.testing.assert_close([grad_own, *grad_values, grad_beta, grad_weights], list(gradients), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("per_feature", [False, True])
@pytest.mark.parametrize("rows", [5, 300_000])  # sums of tiles by a kernel, and by torch
def test_mixing_rounds_half_precision_once(rows, per_feature, dtype):
    from graphact.kernels import triton

    own, first, second, grad = (torch.randn(rows, 1).to(dtype) for _ in range(4))
    beta, weights = torch.randn(1).to(dtype)[0], torch.randn((2, 1)[: 2 if per_feature else 1]).to(dtype)
    wide = [tensor.double().requires_grad_() for tensor in (own, first, second, beta, weights)]
    expected = reference.mix(wide[0], wide[1:3], *wide[3:])
    gradients = torch.autograd.grad(expected, wide, grad.double())
    found = triton.mix(own, [first, second], beta, weights)
    grad_own, grad_values, grad_beta, grad_weights = triton.mix_backward(grad, own, [first, second], beta, weights)
    for one, right in zip(
        [found, grad_own, *grad_values, grad_beta, grad_weights], [expected.detach(), *gradients], strict=True
    ):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), right, rtol=torch.finfo(dtype).eps, atol=1e-4)


def check_plan(plan, graph, shape, hops, per_feature=True, *, shifted=True, tolerance=None):
    """Compare a plan and its backward pass, by the Triton kernels, with the reference on new numbers."""
    gamma = 0.9 if plan.op == "kernel" else None
    x, grad, beta = torch.randn(shape), torch.randn(shape), torch.randn(())
    weights = torch.randn((hops, shape[-1])[: 2 if per_feature else 1])
    plan.backend = importlib.import_module("graphact.kernels.triton")
    out, saved = plan.forward(x, beta, weights, gamma)
    found = plan.backward(grad, x, beta, weights, gamma, saved, True)[:3]
    inputs = [tensor.clone().requires_grad_() for tensor in (x, beta, weights)]
    activation = functional.graph_adaptive if shifted else functional.localized
    with graphact.backend("reference"):
        right = activation(inputs[0], graph, *inputs[1:], plan.op, closed=plan.closed, gamma=gamma or 0.1)
    expected = [right.detach(), *torch.autograd.grad(right, inputs, grad)]
    torch.testing.assert_close([out, *found], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("op", ["max", "min", "median", "kernel"])
@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("loops", [False, True])
def test_recorded_launches_serve_other_signals(op, hops, loops):
    """The second evaluation records its launches; the others, on other numbers, must give what the reference gives."""
    from graphact.kernels.triton.plan import RecordedPlan

    torch.manual_seed(hops)
    nodes, features = 12, 3
    edge_index = torch.randint(nodes, (2, 40))
    edge_index = edge_index if loops else edge_index[:, edge_index[0] != edge_index[1]]
    graph = Graph.from_edge_index(edge_index, num_nodes=nodes + 1).normalize("symmetric")
    plan = RecordedPlan(graph, torch.randn(nodes + 1, features), op, False, True)
    for _ in range(4):
        check_plan(plan, graph, (nodes + 1, features), hops)
    assert all(recording is not None for recording in plan.recordings.values())
    assert len(plan.recordings) == 2


@pytest.mark.parametrize("op", ["max", "min", "median", "kernel"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
def test_large_signals_equal_torch(op, closed, shifted, monkeypatch):
    """On a graph with a hub and loops, for a batch of signals; weights of each feature only enter the last sum."""
    from graphact.kernels.triton.plan import LargePlan

    for room in ("launch", "select"):  # a smaller hub is one that no lane walks alone
        monkeypatch.setattr(importlib.import_module(f"graphact.kernels.triton.{room}"), "ALONE", 64)
    torch.manual_seed(0)
    per_feature = closed != shifted  # so that each meets each of the others, for every operation
    nodes, shape = 100, (2, 101, 3)
    hub = torch.stack([torch.arange(1, nodes), torch.zeros(nodes - 1, dtype=torch.int64)])
    edge_index = torch.cat([torch.randint(nodes, (2, 3 * nodes)), hub, hub.flip(0)], 1)
    graph = Graph.from_edge_index(edge_index, num_nodes=nodes + 1).normalize("random_walk")
    plan = LargePlan(graph, torch.randn(shape), op, closed, shifted)
    check_plan(plan, graph, shape, 2 if shifted else 1, per_feature, shifted=shifted, tolerance=1e-4)


@pytest.mark.parametrize("op", ["max", "kernel"])
@pytest.mark.parametrize("loops", [False, True])
def test_graphs_without_hubs_share_a_recording(op, loops, monkeypatch):
    """A recording of one graph serves others, of another size and with other edges."""
    from graphact.kernels.triton import plan as plans

    monkeypatch.setattr(plans, "_shared", {})
    monkeypatch.setattr(plans, "MIN_NODES", 1)
    torch.manual_seed(0)
    features, shared = 2, []
    for nodes in (258, 260, 301, 262):  # one lane or tile more or less, none of them a multiple of 16
        edge_index = torch.randint(nodes, (2, 4 * nodes))
        edge_index = edge_index if loops else edge_index[:, edge_index[0] != edge_index[1]]
        graph = Graph.from_edge_index(edge_index, num_nodes=nodes).normalize("random_walk")
        plan = plans.RecordedPlan(graph, torch.randn(nodes, features), op, False, True)
        shared.append(plan.recordings)
        check_plan(plan, graph, (nodes, features), 2)
    assert any(len(recordings) == 2 and all(recordings.values()) for recordings in shared)
    assert len({id(recordings) for recordings in shared}) < len(shared)


def test_what_is_not_recorded_is_not_replayed():
    """A tensor that something else made cannot be made again, so such an evaluation is never replayed."""
    from graphact.kernels.triton.record import allocate, call, recording

    given = torch.ones(4)
    with recording([given], []) as made:
        out = allocate((4,), torch.float32, given.device)
        call(torch.Tensor.copy_, out, given * 2)
    assert not made.finish([out])
    with recording([given], []) as made:
        out = allocate((4,), torch.float32, given.device)
        call(torch.Tensor.copy_, out, given)
    assert made.finish([out])
    assert made.replay([torch.full((4,), 3.0)])[0].tolist() == [3.0] * 4
    with recording([given], []) as made:
        pass
    assert not made.finish([given * 2])


@pytest.mark.parametrize(
    ("ops", "closed", "shifting"), [*FUNCTION_CASES[::2], ("max,kernel", True, True), ("", False, True)]
)
def test_passes_that_compiled_code_sees(ops, closed, shifting):
    """Their operators give the values and gradients of the reference."""
    from graphact.kernels import autograd

    graph = graph_of(9, [(i, j) for i in range(9) for j in range(9) if (3 * i + j) % 4 < 2 and i != j])
    graph = graph.to(dtype=torch.float32)
    assert graph.key.size(3) == 1
    found, expected = [], []
    for results in (found, expected):
        x = signal((9, 3)).float().requires_grad_()
        if results is found:
            parts = autograd._inlined_functions(x, graph, ops, closed, shifting)
            values = [parts["shift"]] * shifting + [parts[op] for op in ops.split(",") if op]
        else:
            with graphact.backend("reference"):
                values = autograd.neighborhood_functions(x, graph, ops.split(",") if ops else [], shifting, closed)
        weights = torch.linspace(0.5, 2, len(values) * x.numel()).view(len(values), *x.shape)
        total = sum((weight * value).sum() for weight, value in zip(weights, values, strict=True))
        results += [*values, *torch.autograd.grad(total, x)]
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=2e-6)


def test_mixing_that_compiled_code_sees():
    import graphact.kernels.triton.inlined  # noqa: F401 (it registers the operator)

    own, first, second = (signal((7, 3), kind).double().requires_grad_() for kind in ("normal", "ties", "normal"))
    for values in ((first,), (first, second)):
        beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
        weights = torch.linspace(-1, 1, len(values) * 3, dtype=torch.float64).view(-1, 3).requires_grad_()
        inputs = (own, beta, weights, *values)
        found, expected = (
            [mixed, *torch.autograd.grad((mixed * mixed).sum(), inputs)]
            for mixed in (
                torch.ops.graphact.inlined_mix(own, values, beta, weights),
                reference.mix(own, values, beta, weights),
            )
        )
        torch.testing.assert_close(found, expected)
