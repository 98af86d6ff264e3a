"""Graphs built by the Triton kernels on the CPU, in Triton's interpreter; started by `test_building_interpreted.py`."""

from functools import partial

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.graph import build, counting_kernels, device, device_kernels, operator_kernels
from support.building import as_python, check_coalesced, check_everything, check_gradients
from support.interpreter import swift


@pytest.fixture(scope="module", autouse=True)
def _swift_interpreter():
    with swift():
        yield


@pytest.fixture(autouse=True)
def by_kernels(monkeypatch):
    """Let all graphs be built as on a GPU, and see that the kernels do it."""
    calls = []

    def noted(sort, *given):
        calls.append(given)
        return sort(*given)

    monkeypatch.setattr(build, "is_on_host", lambda _: False)
    for kernels in (counting_kernels, device_kernels):
        monkeypatch.setattr(kernels, "sort_edges", partial(noted, kernels.sort_edges))
    yield calls
    assert calls, "set TRITON_INTERPRET=1"


@pytest.fixture
def small_blocks(monkeypatch):
    """Fewer numbers to a program, so that few edges need several programs and steps; the interpreter counts those."""
    small = {"BLOCK": 128, "NODES": 32, "RANKED": 64, "COMPARED": 128}
    for name, size in small.items():
        monkeypatch.setattr(device_kernels, name, size)
    for name, size in {"ROW_CHUNK": 4, "NODE_CHUNK": 32, "SCAN_CHUNK": 16}.items():
        monkeypatch.setattr(counting_kernels, name, size)
    monkeypatch.setattr(operator_kernels, "BLOCK", 64)
    return small


@pytest.mark.parametrize("counted", [device.COUNTED, 0])  # by counting, and around torch's sorts
@pytest.mark.parametrize("check", [check_everything, check_gradients, check_coalesced])
def test_any_edges(check, counted, monkeypatch):
    monkeypatch.setattr(device, "COUNTED", counted)
    check()


def some_edges(nodes, edges, symmetric=False, distinct=True):
    rng = np.random.default_rng(nodes)
    index = torch.from_numpy(np.minimum(*rng.integers(0, nodes, (2, 2, edges))))
    index = torch.cat([index, index.flip(0)], 1) if symmetric else index
    index = index.unique(dim=1) if distinct else index
    weight = (index[0] * index[1]).double() if symmetric else torch.rand(index.size(1), dtype=torch.float64)
    return index, weight


def check_as_with_torch(kernels, nodes, edges, symmetric, is_coalesced, distinct=True):
    index, weight = some_edges(nodes, edges, symmetric, distinct)
    given = (index[1], index[0], weight, nodes, is_coalesced, True)
    found, expected = kernels.sort_edges(*given), device.sort_with_torch(*given)
    facts = found.facts
    assert facts[2:] == expected.facts[2:]
    for one, other in zip(found.without_loops(), expected.without_loops(), strict=True):
        for tensor, right in zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]:
            if torch.is_tensor(tensor):
                torch.testing.assert_close(tensor, right, rtol=0, atol=0)


@pytest.mark.parametrize("is_coalesced", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("nodes", "edges"), [(1, 1), (70, 500)])  # of one block, of several
@pytest.mark.parametrize("kernels", [counting_kernels, device_kernels])
def test_as_with_torch(kernels, nodes, edges, symmetric, is_coalesced, small_blocks):
    check_as_with_torch(kernels, nodes, edges, symmetric, is_coalesced)


@pytest.mark.parametrize(("nodes", "edges"), [(31, 128), (32, 127), (64, 129), (65, 30)])
def test_by_counting_at_the_edges_of_blocks(nodes, edges):
    assert (counting_kernels.EDGE_BLOCK, counting_kernels.ROW_CHUNK, counting_kernels.NODE_BLOCK) == (32, 32, 16)
    for symmetric in (False, True):
        check_as_with_torch(counting_kernels, nodes, edges, symmetric, False, distinct=False)


@pytest.mark.parametrize("symmetric", [False, True])
def test_lists_of_several_steps(symmetric):
    """Those of few nodes with many edges, and of loops, which have a list of their own."""
    check_as_with_torch(counting_kernels, 4, 12 * counting_kernels.ROW_CHUNK, symmetric, False, distinct=False)


@pytest.mark.parametrize("kernels", [counting_kernels, device_kernels])
def test_repeated_edges_are_counted(kernels):
    """Those that repeat one before them, as torch counts them; a loop repeats nothing."""
    check_as_with_torch(kernels, 20, 60, False, False, distinct=False)
    pair = torch.tensor([[0, 1, 0, 2, 2], [1, 0, 1, 2, 2]])
    facts = kernels.sort_edges(pair[1], pair[0], torch.ones(5), 3, False, True).facts
    assert (facts.repeated, facts.kept) == (1, 3)


@pytest.mark.parametrize("is_coalesced", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_blocks_as_they_are(symmetric, is_coalesced):
    """More nodes and edges than a program has, and than numbers are compared with at a time."""
    nodes, edges = device_kernels.NODES + 44, device_kernels.BLOCK + 100
    assert some_edges(nodes, edges, symmetric)[0].size(1) > device_kernels.BLOCK > device_kernels.COMPARED
    check_as_with_torch(device_kernels, nodes, edges, symmetric, is_coalesced)


@pytest.mark.parametrize("is_coalesced", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_keys_of_64_bits(symmetric, is_coalesced, monkeypatch):
    """Of so many nodes that the number of a pair needs them; edges and nodes of several blocks."""
    for name, size in {"BLOCK": 512, "NODES": 4096, "RANKED": 256}.items():
        monkeypatch.setattr(device_kernels, name, size)
    assert device.INT32 < 50_000**2
    check_as_with_torch(device_kernels, 50_000, 700, symmetric, is_coalesced)


@pytest.mark.parametrize("counted", [device.COUNTED, 0])
def test_many_repeated_edges(counted, small_blocks, monkeypatch):
    monkeypatch.setattr(device, "COUNTED", counted)
    index, weight = some_edges(60, 900, distinct=False)
    found = Graph.from_edge_index(index, weight, 61)
    monkeypatch.undo()
    assert as_python(found) == as_python(Graph.from_edge_index(index, weight, 61))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([[0, 2**62], [1, 1]], f"node indices from 0 to 2, got {2**62}"),
        ([[-(2**63), 2**62], [1, 1]], f"node indices from 0 to 2, got {-(2**63)}"),
        ([[0, 3], [1, 1]], "node indices from 0 to 2, got 3"),
        ([[0, -1], [1, -1]], "node indices from 0 to 2, got -1"),
    ],
)
def test_indices_out_of_bounds(index, message):
    with pytest.raises(ValueError, match=message):
        Graph.from_edge_index(index, num_nodes=3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_weights_that_are_not_finite(bad, dtype, small_blocks):
    edges = 2 * small_blocks["BLOCK"] + 30
    weight = torch.ones(edges, dtype=dtype)
    weight[-10] = bad  # in the last block, which is not full
    index = torch.arange(2 * edges).reshape(2, -1)
    with pytest.raises(ValueError, match=rf"edge_weight must be finite, got {bad} \(1 such"):
        Graph.from_edge_index(index, weight, 2 * edges)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("needs_gradients", [False, True])
def test_union(symmetric, dtype, needs_gradients, small_blocks, monkeypatch):
    graphs = []
    for nodes, edges in ((7, 20), (70, 250), (1, 1), (30, 100)):  # the second of several blocks
        index, weight = some_edges(nodes, edges, symmetric)
        graphs.append(Graph.from_edge_index(index, weight.to(dtype).requires_grad_(needs_gradients), nodes))
    graphs.insert(2, Graph.from_edge_index(torch.empty(2, 0), torch.empty(0, dtype=dtype), 3))
    joins, join = [], operator_kernels.join
    monkeypatch.setattr(operator_kernels, "join", lambda *given: joins.append(given) or join(*given))
    found = [as_python(Graph.union(graphs)), as_python(Graph.union(graphs[:1])), as_python(Graph.union(graphs[2:3]))]
    assert len(joins) == 3
    monkeypatch.setattr(device, "has_kernels_for", lambda *_: False)
    right = [as_python(Graph.union(graphs)), as_python(Graph.union(graphs[:1])), as_python(Graph.union(graphs[2:3]))]
    assert found == right


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("symmetric", [False, True, "pattern"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_normalize(symmetric, loops, dtype, small_blocks, monkeypatch):
    index, weight = some_edges(30, 200, bool(symmetric))
    weight = torch.rand_like(weight) if symmetric == "pattern" else weight / 100 - 3
    star = torch.stack([torch.arange(40, 140), torch.full((100,), 39)])  # the longest list takes several steps
    star = torch.cat([star, star.flip(0)], 1) if symmetric else star
    index, weight = torch.cat([index, star], 1), torch.cat([weight, torch.ones(star.size(1))])
    keep = (index[0] != index[1]) | loops
    graph = Graph.from_edge_index(index[:, keep], weight[keep].to(dtype), 145)
    calls, normalize = [], operator_kernels.normalize_symmetric
    monkeypatch.setattr(
        operator_kernels, "normalize_symmetric", lambda *given: calls.append(given) or normalize(*given)
    )
    found = graph.normalize("symmetric")
    assert len(calls) == (dtype != torch.float64)  # whose sums may leave the range
    monkeypatch.setattr(device, "has_kernels_for", lambda *_: False)
    expected = graph.normalize("symmetric")
    assert found.is_directed == expected.is_directed
    assert found.incoming is graph.incoming
    assert (found.outgoing_weight is found.weight) == (expected.outgoing_weight is expected.weight)
    assert (found.diagonal is None) == (expected.diagonal is None) == (not loops)
    for name in ("weight", "outgoing_weight", *(["diagonal"] if loops else [])):
        torch.testing.assert_close(
            getattr(found, name), getattr(expected, name), rtol=4 * torch.finfo(dtype).eps, atol=0
        )
    edge_t = graph.incoming.rowptr[graph.outgoing.col] + graph.incoming_slot
    assert torch.equal(found.weight[edge_t], found.outgoing_weight)


@pytest.mark.parametrize("size", [3e38, 1e-45])
def test_normalize_at_the_ends_of_the_range(size):
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    graph = Graph.from_edge_index(edge_index, torch.full((4,), size), 3)
    torch.testing.assert_close(graph.normalize("symmetric").weight, torch.full((4,), 2**-0.5))


@pytest.mark.parametrize("shape", [(1,), (2, 1), (63,), (2, 64), (700,), (2, 1300)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_few_numbers_are_sorted_by_counting(shape, dtype, by_kernels, monkeypatch):
    by_kernels.append(shape)  # this one builds no graph
    key = torch.randint(-3, 40, shape, generator=torch.Generator().manual_seed(0)).to(dtype) * (1 << 20)
    found = device_kernels.stable_sort(key)
    monkeypatch.setattr(device_kernels, "COUNTED", 0)
    for one, right in zip(found, device_kernels.stable_sort(key), strict=True):
        assert one.dtype == right.dtype
        assert torch.equal(one, right)


@pytest.fixture
def strict(monkeypatch):
    """Programs and atomics in reverse order, as a GPU may take them; all accesses must lie inside the given tensors."""
    from triton.runtime import interpreter

    plain, builder, given = interpreter._interpreter, interpreter.interpreter_builder, []
    set_index, launch = builder.set_grid_idx, counting_kernels.launch

    def see(at, mask):
        assert all(any(a <= p < b for a, b in given) for p in at[mask.astype(bool)].tolist())

    class Strict:
        def __getattr__(self, name):
            return getattr(plain, name)

        def load(self, at, mask, *rest):
            see(at, mask)
            return plain.load(at, mask, *rest)

        def store(self, at, value, mask):
            see(at, mask)
            plain.store(at, value, mask)

        def atomic_rmw(self, op, at, value, mask, sem):
            see(at, mask)
            at, value, mask = (np.flip(np.atleast_1d(part)).copy() for part in (at, value, mask))
            return np.flip(plain.atomic_rmw(op, at, value, mask, sem)).copy()

    def noted(kernel, grid, *arguments, **rest):
        tensors = [part for part in arguments if torch.is_tensor(part)]
        given[:] = [(part.data_ptr(), part.data_ptr() + part.nbytes) for part in tensors]
        return launch(kernel, grid, *arguments, **rest)

    monkeypatch.setattr(interpreter, "_interpreter", Strict())
    monkeypatch.setattr(builder, "set_grid_idx", lambda x, y, z: set_index(builder.grid_dim[0] - 1 - x, y, z))
    monkeypatch.setattr(counting_kernels, "launch", noted)


def check_by_hand(index, nodes, weight):
    found = counting_kernels.sort_edges(*index.flip(0), weight, nodes, False, True)
    source, target = index.tolist()
    outside = [s == t or min(s, t) < 0 or max(s, t) >= nodes for s, t in zip(source, target, strict=True)]
    ends = [(nodes, nodes) if o else (t, s) for o, t, s in zip(outside, target, source, strict=True)]
    edge = sorted(range(len(ends)), key=lambda e: (*ends[e], e))
    edge_t = sorted(range(len(ends)), key=lambda e: (ends[edge[e]][1], e))
    assert found.facts.kept == len(ends) - sum(outside)
    assert (found.edge.tolist(), found.edge_t.tolist()) == (edge, edge_t)
    assert list(zip(found.row.tolist(), found.col.tolist(), strict=True)) == [ends[e] for e in edge]
    degrees = ([end[side] for end in ends].count(node) for side in (0, 1) for node in range(nodes))
    assert torch.cat([pointers.diff() for pointers in found.rowptr]).tolist() == list(degrees)
    assert torch.equal(found.weight, weight[edge])
    return found


@pytest.mark.parametrize("bad", [-1, 20, 21, 25, 2**31, 2**32 + 1, 2**62, -(2**31), 1 - 2**32, -(2**63)])
@pytest.mark.parametrize("end", [0, 1])
def test_any_order_of_programs_and_indices(bad, end, strict):
    index = torch.randint(20, (2, 75), generator=torch.Generator().manual_seed(0))
    index[1, ::9] = index[0, ::9]  # loops
    check_by_hand(index, 20, torch.rand(75))
    index[end, ::7] = bad
    check_by_hand(index, 20, torch.rand(75))


def test_one_cycle_is_directed():
    assert Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], None, 3).is_directed
    assert counting_kernels.sort_edges(*torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.ones(3), 3, False, True).facts[5]


def test_weights_that_float32_does_not_tell_apart():
    weight = torch.tensor([1, 1 + 1e-12], dtype=torch.float64)
    assert Graph.from_edge_index([[0, 1], [1, 0]], weight, 2).is_directed


def test_weights_with_gaps():
    weight = torch.arange(6.0)[::2]
    assert Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], weight, 3).weight.tolist() == [4, 0, 2]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_what_is_known_is_aligned(nodes, monkeypatch):
    def look(kernel, _, *arguments, **__):
        for name, part in zip(kernel.arg_names, arguments, strict=False):
            free = name in ("target", "source", "weight", "weight_t")  # not specialised
            assert free or not torch.is_tensor(part) or part.data_ptr() % 16 == 0, name

    monkeypatch.setattr(counting_kernels, "launch", look)
    counting_kernels.sort_edges(*torch.zeros(2, 1, dtype=torch.int64), torch.ones(1), nodes, False, True)


@pytest.mark.parametrize("way", ["counting", "sorting", "torch"])
@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float64, 1e308), (torch.float32, 3e38), (torch.bfloat16, 3e38), (torch.float16, 6e4)]
)
def test_loops_that_sum_to_infinity(dtype, size, way, by_kernels, monkeypatch):
    monkeypatch.setattr(device, "COUNTED", 0 if way == "sorting" else device.COUNTED)
    if way == "torch":
        by_kernels.append(way)
        monkeypatch.setattr(device, "has_kernels_for", lambda *_: False)
    Graph.from_edge_index([[0, 0, 0], [0, 0, 1]], torch.tensor([size / 3, size / 3, 1], dtype=dtype), 2)
    with pytest.raises(ValueError, match="summed over repeated edges must be finite"):
        Graph.from_edge_index([[0, 0, 0], [0, 0, 1]], torch.tensor([size, size, 1], dtype=dtype), 2)
