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
    """Numbers in float64: any, many equal ones, with NaN, infinities, both zeros and subnormal numbers, or outliers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if kind == "ties":
        x = rng.choice([-1.0, -0.0, 0.0, 0.0, 2.0], size=shape)
    if kind == "special":
        special = rng.choice([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40], size=shape)
        x = np.where(rng.random(shape) < 0.3, special, x)
    if kind == "far":
        x = np.where(rng.random(shape) < 0.1, 1e4, x)
    if kind == "infinite":
        x = rng.choice([-np.inf, np.inf, 1.0], size=shape)
    return torch.from_numpy(x)


def shorten_lists(monkeypatch):
    """Let short lists take the ways that Triton kernels keep for long ones."""
    shorter = {"SIZES": (2, 4), "IN_REGISTER": (8,), "TILED": {16: 1}, "TILED_NUMBERS": 64, "ALONE": 8}
    for room in ("launch", "median", "median_counting", "select"):
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
                if op != "median":
                    assert_same(
                        module.select(x, source_index, lists, op, wider),
                        reference.select(x, source_index, lists, op, wider),
                    )
    assert_close(module.scatter_selected(x, source_index), reference.scatter_selected(x, source_index))


def check_hop(module, graph, x, ops=(*OPS, "kernel"), closed=(False, True)):
    """One function with and without the shift."""
    around = {op: closed if op != "kernel" else (False,) for op in ops}
    cases = [(op, each, shifting) for op in ops for each in around[op] for shifting in (False, True)]
    check_functions(module, graph, x, cases)


FUNCTION_CASES = (
    # functions, closed neighbourhoods, with the shift
    ("max,min,std", False, True),
    ("max,min,median,mean,std,kernel", True, False),
    ("mean", False, True),
)


def check_functions(module, graph, x, cases=FUNCTION_CASES):
    """Several functions at once, in types and shapes too, and back: gradients are nowhere zero."""
    tensors, max_degree = tensors_of(graph), graph.incoming.max_degree
    for ops, closed, shifting in cases:
        arguments = (x, tensors, ops.split(","), closed, shifting, max_degree)
        expected = reference.neighborhood_functions(*arguments)
        with poisoned():
            found = module.neighborhood_functions(*arguments)
        kinds = [{name: (part.dtype, part.shape) for name, part in each.items()} for each in (found, expected)]
        assert kinds[0] == kinds[1]
        for name in expected:
            if name in OPS:
                assert_same((found[name], found[f"{name} slot"]), (expected[name], expected[f"{name} slot"]))
            elif "slot" not in name:
                assert_close(found[name], expected[name])
        names = [name for name in ("shift", *ops.split(",")) if name in expected and name != "kernel"]
        grads = {name: signal(x.shape, seed=at).to(expected[name]) for at, name in enumerate(names)}
        saved = {f"{op} slot": expected[f"{op} slot"] for op in OPS if op in grads}
        saved |= {"mean": expected["mean"], "std": expected["std"], "x": x} if "std" in grads else {}
        if grads:
            back = (grads, saved, tensors, closed)
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
        slots = module.neighborhood_functions(x, tensors, ["max"], False, False, 300)["max slot"]
        assert slots.dtype == torch.int16
        assert slots[1].item() > 255
        slots = module.neighborhood_functions(x, tensors, ["max"], False, False, 40_000)["max slot"]
        assert slots.dtype == torch.int32
        back = ({"max": x}, {"max slot": slots}, tensors, False)
        assert_close(module.neighborhood_functions_backward(*back), reference.neighborhood_functions_backward(*back))

    def test_indices_that_stand_for_nothing(self, module):
        for graph in (self.graph("complete"), hub(30, 22, 9).to(dtype=torch.float32).to(self.device)):
            nodes = graph.num_nodes
            x = signal((2, nodes, 4), "special").float().to(self.device)
            source_index = torch.from_numpy(np.random.default_rng(1).integers(nodes + 1, size=(2, nodes, 4))).int()
            source_index, lists = source_index.to(self.device), graph.incoming
            for some in (source_index, torch.full_like(source_index, nodes)):
                for op in ("max", "min"):
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
        tensors, names = tensors_of(graph), ["max", "median", "std", "kernel"]
        found = module.neighborhood_functions(x, tensors, names, True, True, 9)
        assert found.keys() == {"shift", "mean", *names, "max slot", "median slot"}
        assert all(part.shape == shape for part in found.values())
        back = ({"shift": x, "max": x, "std": x}, {**found, "x": x}, tensors, True)
        assert module.neighborhood_functions_backward(*back).shape == shape
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
