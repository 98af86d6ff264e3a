"""Cases that every compiled backend must pass: its functions against the reference, on hard graphs and numbers.

A test module subclasses `KernelCases`, and says where the tensors live and which module is tested.
"""

import importlib
from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.kernels import reference
from graphact.kernels.autograd import tensors_of
from support.graphs import random_case
from support.tolerances import TOLERANCE

OPS = ("max", "min", "median")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def graph_of(num_nodes, edges):
    """A weighted graph of (source, target) pairs; pairs that repeat and loops are left out."""
    source, target = np.unique(
        np.array([pair for pair in edges if pair[0] != pair[1]], dtype=int).reshape(-1, 2), axis=0
    ).T
    weight = np.random.default_rng(0).normal(size=len(source))
    return Graph.from_edge_index(np.stack([source, target]), weight, num_nodes=num_nodes)


def random_edges(num_nodes, num_edges, seed=0):
    return np.random.default_rng(seed).integers(num_nodes, size=(num_edges, 2)).tolist()


def hub(num_nodes, heard, hearers):
    """Node 1 hears many, node 2 is heard by many, and a few other edges."""
    into, out_of = [(j, 1) for j in range(heard)], [(2, i) for i in range(num_nodes - hearers, num_nodes)]
    return graph_of(num_nodes, into + out_of + random_edges(num_nodes, 2 * num_nodes))


GRAPHS = {
    "directed": lambda: graph_of(13, random_edges(13, 40)),
    "isolated nodes": lambda: graph_of(9, [(0, 1), (1, 0), (3, 1), (8, 3)]),
    "no edges": lambda: graph_of(4, []),
    "one node": lambda: graph_of(1, []),
    "complete": lambda: graph_of(7, [(i, j) for i in range(7) for j in range(7)]),
    "hubs": lambda: hub(30, 8, 29),
    "longer hubs": lambda: hub(30, 26, 20),
}


def signal(shape, kind="normal", seed=0):
    """Numbers in float64: any, many equal ones, or with NaN, infinities, both zeros and subnormal numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if kind == "ties":
        x = rng.choice([-1.0, -0.0, 0.0, 0.0, 2.0], size=shape)
    if kind == "special":
        special = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40], size=shape)
        x = np.where(rng.random(shape) < 0.3, special, x)
    if kind == "infinite":
        x = rng.choice([-np.inf, np.inf, 1.0], size=shape)
    return torch.from_numpy(x)


def shorten_lists(monkeypatch):
    """Let short lists take the ways that Triton kernels keep for long ones."""
    shorter = {"SIZES": (2, 4), "IN_REGISTER": (8,), "TILED": {16: 1}, "TILED_NUMBERS": 64}
    shorter |= {"RANKED": 6, "ALONE": 8, "MAX_PIECE": 10}
    for room in ("fused", "launch", "median", "median_long", "select"):
        module = importlib.import_module(f"graphact.kernels.triton.{room}")
        for name, value in shorter.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@contextmanager
def poisoned():
    """Fresh memory holds NaN, or a label that no node has."""

    def poison(shape, *, dtype, device):
        return torch.full(shape, float("nan") if dtype.is_floating_point else -77, dtype=dtype, device=device)

    with mock.patch("torch.empty", poison):
        yield


def assert_close(actual, expected):
    """Sums may be taken in another order."""
    tolerance = TOLERANCE[expected.dtype]
    size = expected.nan_to_num(posinf=0.0, neginf=0.0).abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * max(1.0, size), equal_nan=True)


def assert_same(actual, expected):
    """Selected numbers are copies, down to the sign of zero."""
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    values, source_index = (part.nan_to_num() for part in (actual[0], expected[0])), (actual[1], expected[1])
    assert torch.equal(*(part.signbit() for part in values))
    assert torch.equal(*source_index)


def check_sums(module, graph, x):
    incoming, outgoing = graph.incoming, graph.outgoing
    grad = signal(x.shape, seed=5).to(x).to(reference.accumulation_dtype(x.dtype))
    with poisoned():
        assert_close(module.shift(x, graph.weight, incoming), reference.shift(x, graph.weight, incoming))
        assert_close(module.sum_sq_diff(x, incoming), reference.sum_sq_diff(x, incoming))
        other = grad.to(x.dtype)
        assert_close(module.sum_products(x, other, incoming), reference.sum_products(x, other, incoming))
        back = (grad, x, incoming, outgoing)
        assert_close(module.sum_sq_diff_backward(*back), reference.sum_sq_diff_backward(*back))
        expected = reference.shift_weight_grad(grad, x, incoming)
        assert_close(module.shift_weight_grad(grad, x, incoming), expected)


def check_select(module, graph, x, ops=OPS):
    """Two hops: what the first selects, the second selects among."""
    lists = graph.incoming
    for op in ops:
        for closed in {"max": (False,), "min": (True,), "median": (False, True)}[op]:
            with poisoned():
                expected = reference.select(x, None, lists, op, closed)
                assert_same(module.select(x, None, lists, op, closed), expected)
                source_index, wider = expected[1], not closed
                assert_same(
                    module.select(x, source_index, lists, op, wider),
                    reference.select(x, source_index, lists, op, wider),
                )
    assert_close(module.scatter_selected(x, source_index), reference.scatter_selected(x, source_index))


def check_hop(module, graph, x, ops=(*OPS, "kernel"), closed=(False, True)):
    """Forward with and without the shift, and back; gradients that are nowhere zero show where they go."""
    tensors, max_degree = tensors_of(graph), graph.incoming.max_degree
    grad, further = (signal(x.shape, seed=seed).to(x) for seed in (6, 7))
    for op in ops:
        for around in closed if op != "kernel" else (False,):
            for shifting in (False, True):
                arguments = (x, tensors, op, around, shifting, max_degree)
                expected = reference.fused_neighbor_pass(*arguments)
                with poisoned():
                    actual = module.fused_neighbor_pass(*arguments)
                assert [part.dtype for part in actual] == [part.dtype for part in expected]
                if op == "kernel":
                    assert_close(actual[0], expected[0])
                    assert actual[1].shape == expected[1].shape == (0,)
                else:
                    assert_same(actual[:2], expected[:2])
                assert_close(actual[2], expected[2])
                if op != "kernel":
                    back = (grad, expected[1], further if shifting else None, tensors, around)
                    with poisoned():
                        actual = module.hop_backward(*back)
                    assert_close(actual, reference.hop_backward(*back))


FUNCTION_CASES = (
    # functions, closed neighbourhoods, with the shift
    ("max,min,std", False, True),
    ("max,min,median,mean,std", True, False),
    ("mean", False, True),
)


def check_functions(module, graph, x, cases=FUNCTION_CASES):
    """Several functions at once, forward and back, in types and shapes too."""
    tensors, max_degree = tensors_of(graph), graph.incoming.max_degree
    for ops, closed, shifting in cases:
        arguments = (x, tensors, ops, closed, shifting, max_degree)
        expected = reference.neighborhood_functions(*arguments)
        with poisoned():
            actual = module.neighborhood_functions(*arguments)
        assert [(part.dtype, part.shape) for part in actual] == [(part.dtype, part.shape) for part in expected]
        for at in range(3):
            assert_same((actual[1 + at], actual[6 + at]), (expected[1 + at], expected[6 + at]))
        for at in (0, 4, 5):
            assert_close(actual[at], expected[at])
        grads = [signal(x.shape, seed=at).to(part) if part.numel() else None for at, part in enumerate(expected[:6])]
        if "mean" not in ops.split(","):
            grads[4] = None
        slots = [None if grad is None else slot for grad, slot in zip(grads[1:4], expected[6:], strict=True)]
        moments = (None, None, None) if grads[5] is None else (*expected[4:6], x)
        if any(grad is not None for grad in grads):
            back = (*grads, *slots, *moments, tensors, closed)
            with poisoned():
                actual = module.neighborhood_functions_backward(*back)
            assert_close(actual, reference.neighborhood_functions_backward(*back))


def check_once(module, graph, x, op):
    """One hop only."""
    lists = graph.incoming
    with poisoned():
        assert_same(module.select(x, None, lists, op, False), reference.select(x, None, lists, op, False))


class KernelCases:
    """Subclasses set the device, and the fixture `module`."""

    device = "cpu"
    subnormal = True  # whether bfloat16 keeps numbers below 1e-38

    def graph(self, name, dtype=torch.float32):
        return GRAPHS[name]().to(dtype=dtype).to(self.device)

    @pytest.mark.parametrize("name", GRAPHS)
    def test_graphs(self, module, name):
        graph = self.graph(name)
        x = signal((graph.num_nodes, 3)).float().to(self.device)
        check_sums(module, graph, x)
        check_select(module, graph, x)
        check_hop(module, graph, x)

    @pytest.mark.parametrize("seed", range(3))
    def test_random_graphs(self, module, seed):
        case = random_case(seed)
        check_sums(module, case.graph.to(self.device), case.signal.to(self.device))
        check_select(module, case.graph.to(self.device), case.signal.to(self.device))
        check_hop(module, case.graph.to(self.device), case.signal.to(self.device), closed=(seed == 1,))

    @pytest.mark.parametrize("name", GRAPHS)
    def test_several_functions(self, module, name):
        graph = self.graph(name)
        for kind in ("normal", "ties", "special"):
            check_functions(module, graph, signal((2, graph.num_nodes, 5), kind).float().to(self.device))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_several_functions_in_every_precision(self, module, dtype):
        graph = self.graph("directed", torch.float64 if dtype == torch.float64 else torch.float32)
        x = signal((13, 37)).to(dtype).to(self.device)
        check_functions(module, graph, x, FUNCTION_CASES[:1])
        check_functions(module, graph, x.unsqueeze(0).expand(2, 13, 37)[..., ::2], FUNCTION_CASES[:1])

    @pytest.mark.parametrize("columns", [1, 17, 65, 300])
    def test_columns(self, module, columns):
        graph = self.graph("directed")
        x = signal((13, columns)).float().to(self.device)
        check_sums(module, graph, x)
        check_once(module, graph, x, "max" if columns < 300 else "median")
        check_hop(module, graph, x, ["kernel", "min" if columns < 300 else "median"], closed=[True])

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, module, dtype):
        graph = self.graph("directed", torch.float64 if dtype == torch.float64 else torch.float32)
        x = signal((2, 13, 3)).to(dtype).to(self.device)
        check_sums(module, graph, x)
        check_select(module, graph, x, ("max", "median"))
        check_hop(module, graph, x, ("max", "median", "kernel"), closed=[False])

    @pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
    def test_dtypes_around_hubs(self, module, dtype):
        graph = self.graph("longer hubs")
        x = signal((graph.num_nodes, 2)).to(dtype).to(self.device)
        check_sums(module, graph, x)
        check_select(module, graph, x, ("median",))
        check_hop(module, graph, x, ("max", "median"), closed=[False])

    @pytest.mark.parametrize(
        ("kind", "dtype"),
        [
            ("ties", torch.float32),
            ("special", torch.float32),
            ("special", torch.bfloat16),
            ("infinite", torch.float16),
        ],
    )
    def test_numbers_that_are_equal_or_not_finite(self, module, kind, dtype):
        graph = self.graph("directed")
        x = signal((13, 3), kind)
        if dtype == torch.bfloat16 and not self.subnormal:
            x[x.abs() < 1e-38] = 0.0
        x = x.to(dtype).to(self.device)
        check_sums(module, graph, x)
        check_select(module, graph, x)
        check_hop(module, graph, x, OPS)

    @pytest.mark.parametrize("kind", ["ties", "special", "infinite"])
    def test_numbers_that_are_equal_or_not_finite_around_hubs(self, module, kind):
        graph = self.graph("longer hubs")
        x = signal((graph.num_nodes, 2), kind).float().to(self.device)
        check_select(module, graph, x)
        check_hop(module, graph, x, ("max", "median"))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_nan_of_both_signs(self, module, dtype):
        """Their sums depend on their order, and nothing may depend on those."""
        for graph in (GRAPHS["complete"](), graph_of(90, [(j, 89) for j in range(89)])):
            graph = graph.to(dtype=dtype).to(self.device)
            x = signal((graph.num_nodes, 3)).to(dtype)
            x[3], x[5] = torch.nan, -torch.tensor(torch.nan)
            check_hop(module, graph, x.to(self.device), ["median"], closed=[False])

    def test_many_neighbors(self, module):
        graph = hub(210, 200, 80).to(dtype=torch.float32).to(self.device)
        x = signal((210, 1)).float().to(self.device)
        check_sums(module, graph, x)
        check_once(module, graph, x, "max")
        check_once(module, graph, x, "median")
        check_hop(module, graph, x, ("max", "median"), closed=[True])

    def test_slots_that_a_byte_does_not_hold(self, module):
        graph = hub(310, 300, 3).to(dtype=torch.float32).to(self.device)
        x = signal((310, 1)).float().to(self.device)
        x[:300] = torch.arange(300.0).unsqueeze(1).to(x)  # the last are the largest
        check_hop(module, graph, x, ["max"], closed=[False])
        tensors = tensors_of(graph)
        assert reference.slot_dtype(graph.incoming.max_degree) == torch.int16
        slots = module.fused_neighbor_pass(x, tensors, "max", False, False, 300)[1]
        assert slots.dtype == torch.int16
        assert slots[1].item() > 255
        slots = module.fused_neighbor_pass(x, tensors, "max", False, False, 40_000)[1]
        assert slots.dtype == torch.int32
        back = (x, slots, None, tensors, False)
        assert_close(module.hop_backward(*back), reference.hop_backward(*back))

    def test_indices_that_stand_for_nothing(self, module):
        for graph in (self.graph("complete"), hub(30, 22, 9).to(dtype=torch.float32).to(self.device)):
            nodes = graph.num_nodes
            x = signal((2, nodes, 4), "special").float().to(self.device)
            source_index = torch.from_numpy(np.random.default_rng(1).integers(nodes + 1, size=(2, nodes, 4))).int()
            source_index, lists = source_index.to(self.device), graph.incoming
            for some in (source_index, torch.full_like(source_index, nodes)):
                for op in OPS:
                    assert_same(module.select(x, some, lists, op, False), reference.select(x, some, lists, op, False))
                assert_close(module.scatter_selected(x, some), reference.scatter_selected(x, some))

    def test_not_contiguous(self, module):
        graph = self.graph("directed")
        x = signal((5, 13, 2)).float().to(self.device).movedim(0, -1)[..., ::2].movedim(1, 0)
        check_sums(module, graph, x)
        check_once(module, graph, x, "min")
        check_hop(module, graph, x, ["max", "kernel"], closed=[False])
        lists = (graph.incoming, graph.outgoing)
        one = torch.ones((), device=self.device).expand(x.shape)
        assert_close(module.sum_sq_diff_backward(one, x, *lists), reference.sum_sq_diff_backward(one, x, *lists))

    @pytest.mark.parametrize("shape", [(0, 13, 3), (13, 0), (2, 0, 13, 1)])
    def test_empty(self, module, shape):
        graph, x = self.graph("directed"), torch.zeros(shape, device=self.device)
        incoming, outgoing = graph.incoming, graph.outgoing
        values, chosen = module.select(x, None, incoming, "median", True)
        assert values.shape == chosen.shape == shape
        assert chosen.dtype == torch.int32
        assert module.scatter_selected(x, chosen).shape == shape
        assert module.shift(x, graph.weight, incoming).shape == shape
        assert module.sum_sq_diff(x, incoming).shape == shape
        assert module.sum_sq_diff_backward(x, x, incoming, outgoing).shape == shape
        found = module.neighborhood_functions(x, tensors_of(graph), "max,median,std", True, True, 9)
        assert [part.shape == shape for part in found] == [True, True, False, True, True, True, True, False, True]
        back = (x, x, None, None, None, x, found[6], None, None, *found[4:6], x, tensors_of(graph), True)
        assert module.neighborhood_functions_backward(*back).shape == shape
        for op in (*OPS, "kernel"):
            values, slots, shifted = module.fused_neighbor_pass(x, tensors_of(graph), op, True, True, 9)
            assert values.shape == shifted.shape == shape
            assert slots.shape == (shape if op != "kernel" else (0,))
        slots = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        assert module.hop_backward(x, slots, x, tensors_of(graph), True).shape == shape
        assert_close(module.shift_weight_grad(x, x, incoming), torch.zeros(graph.weight.shape, device=self.device))

    def test_scatter_in_fixed_order(self, module):
        x = signal((13, 3)).float().to(self.device)
        chosen = torch.zeros(13, 3, dtype=torch.int32, device=self.device)
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.equal(module.scatter_selected(x, chosen), reference.scatter_selected(x, chosen))
        finally:
            torch.use_deterministic_algorithms(before)

    @pytest.mark.parametrize("shape", [(7, 3), (2, 5, 200), (0, 4)])
    def test_rows_of_a_table(self, module, shape):
        table = signal((11, shape[-1])).to(torch.float32)
        index = torch.from_numpy(np.random.default_rng(1).integers(11, size=shape[:-1]))
        table, index = table.to(self.device), index.to(self.device)
        with poisoned():
            actual = module.gather_rows(table, index)
        assert torch.equal(actual, reference.gather_rows(table, index))

    def test_supports(self, module):
        for dtype in DTYPES:
            assert dtype in module.DTYPES
        assert torch.int64 not in module.DTYPES
