"""Random graphs for the fuzzer: built in every way there is, changed in every order, and checked at each step."""

import copy
import pickle
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse
import torch

from graphact import Graph
from support.dense import Operator
from support.radius import spectral_radius

NODES = (1, 2, 3, 4, 5, 7, 13, 30, 60, 300, 1200)
SHARES = (4, 6, 10, 12, 14, 16, 16, 10, 6, 0.6, 0.3)
SOURCES = (
    "tensor", "int32", "numpy", "list", "transposed", "strided", "dense", "dense strided", "coo", "csr", "csc", "bsr",
    "scipy coo", "scipy csr", "networkx", "pyg", "coalesced", "file npz", "file txt",
)  # fmt: skip
STEPS = (
    "none", "permute", "union", "drop", "symmetric", "random_walk", "laplacian", "spectral", "gcn", "pickle",
    "deepcopy", "save npz", "save txt", "dtype", "reorder", "edge_index", "pyg", "shared",
)  # fmt: skip


def device_of(draw):
    """The CPU or, where there is one, a CUDA device."""
    return torch.device(draw.choice("device", ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)))


def draw_edges(draw, name=""):
    """Lists of sources, targets and weights, the number of nodes, and whether sums of the weights are exact."""
    nodes = draw.choice(f"{name}nodes", NODES, SHARES)
    rng, pattern = draw.rng(f"{name}edges"), draw.choice(
        f"{name}pattern", ("path", "random", "star", "twins", "none", "complete", "hub", "ring")
    )  # fmt: skip
    everywhere = np.arange(nodes)
    if pattern == "none":
        source = target = everywhere[:0]
    elif pattern == "path":
        source, target = everywhere[:-1], everywhere[1:]
    elif pattern == "ring":
        source, target = everywhere, np.roll(everywhere, 1)
    elif pattern == "star":
        source, target = everywhere[1:], np.zeros(nodes - 1, np.int64)
    elif pattern == "twins":  # nodes with the same neighbours: ties after a shift
        few = max(1, nodes // 3)
        target, source = np.divmod(np.arange(few * (nodes - few)), max(1, nodes - few))
        source = source + few
    elif pattern == "complete" and nodes <= 60:
        target, source = np.divmod(np.arange(nodes * nodes), nodes)
    elif pattern == "hub":
        few = rng.random(nodes) < 0.8
        source = np.concatenate([everywhere[few], rng.integers(nodes, size=2 * nodes)])
        target = np.concatenate([np.full(few.sum(), nodes - 1), rng.integers(nodes, size=2 * nodes)])
    else:
        count = int(rng.choice([1, 2, 4, 10])) * nodes
        source, target = rng.integers(nodes, size=count), rng.integers(nodes, size=count)
    kind = draw.choice(f"{name}weights", ("ones", "dyadic", "signed", "zeros", "real", "tiny"))
    size = len(source)
    weight = {
        "ones": lambda: np.ones(size),
        "dyadic": lambda: rng.choice([0.25, 0.5, 1.0], size),
        "signed": lambda: rng.choice([-1.0, -0.5, 0.5, 1.0], size),
        "zeros": lambda: rng.choice([0.0, 0.5, 1.0], size),
        "real": lambda: rng.normal(size=size),
        "tiny": lambda: rng.choice([2.0**-30, 2.0**-20], size),
    }[kind]()
    if not draw.flag(f"{name}directed"):
        source, target, weight = np.append(source, target), np.append(target, source), np.append(weight, weight)
    if not draw.flag(f"{name}duplicates", 0.4):
        _, first = np.unique(target * nodes + source, return_index=True)
        source, target, weight = source[first], target[first], weight[first]
    if not draw.flag(f"{name}loops", 0.4):
        other = source != target
        source, target, weight = source[other], target[other], weight[other]
    order = rng.permutation(len(source))
    return source[order], target[order], weight[order], nodes, kind not in ("real", "tiny")


def draw_graph(draw, name="", device="cpu", dtypes=(torch.float64, torch.float32)):
    """A graph built in one of many ways, and its operator."""
    source, target, weight, nodes, exact = draw_edges(draw, name)
    dtype = draw.choice(f"{name}graph dtype", dtypes)
    weight = torch.from_numpy(weight).to(dtype).double().numpy()
    kind = draw.choice(f"{name}source", SOURCES)
    matrix, edges = np.zeros((nodes, nodes)), np.zeros((nodes, nodes), bool)
    np.add.at(matrix, (target, source), weight)
    sizes = np.zeros_like(matrix)
    np.add.at(sizes, (target, source), np.abs(weight))
    edges[target, source] = True
    if kind.startswith("dense"):
        edges = matrix != 0
    if kind == "bsr" and nodes > 60:
        kind = "csr"
    graph = build(kind, source, target, weight, nodes, dtype, device)
    operator = Operator(torch.from_numpy(matrix), edges, exact)
    return graph, settle(draw, graph, operator, sizes=torch.from_numpy(sizes))


def build(kind, source, target, weight, nodes, dtype, device):
    """A graph from lists of edges, by one of its constructors."""
    pair, values = torch.from_numpy(np.stack([source, target])), torch.from_numpy(weight).to(dtype)
    shape, swapped = (nodes, nodes), torch.from_numpy(np.stack([target, source]))
    if kind in ("dense", "dense strided", "coalesced", "csr", "csc", "bsr"):
        summed = torch.sparse_coo_tensor(swapped, values, shape).coalesce()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "int32":
            graph = Graph.from_edge_index(pair.int(), values, nodes)
        elif kind == "numpy":
            graph = Graph.from_edge_index(pair.numpy(), values.numpy(), nodes)
        elif kind == "list":
            graph = Graph.from_edge_index(pair.tolist(), values.tolist(), nodes).to(dtype=dtype)
            if dtype == torch.float64:  # plain numbers take torch's default dtype
                graph = Graph.from_edge_index(pair.tolist(), values, nodes)
        elif kind == "transposed":
            graph = Graph.from_edge_index(pair.t().contiguous().t(), values, nodes)
        elif kind == "strided":
            wide = torch.full((2, 2 * len(weight)), -7)
            wide[:, ::2] = pair
            spread = torch.full((3 * len(weight),), torch.nan, dtype=dtype)
            spread[::3] = values
            graph = Graph.from_edge_index(wide[:, ::2].to(device), spread[::3].to(device), nodes)
        elif kind.startswith("dense"):
            dense = summed.to_dense()
            graph = Graph.from_dense(dense if kind == "dense" else dense.t().contiguous().t())
        elif kind == "coo":
            graph = Graph.from_sparse(torch.sparse_coo_tensor(swapped, values, shape).to(device))
        elif kind in ("csr", "csc"):
            graph = Graph.from_sparse(summed.to_sparse_csr() if kind == "csr" else summed.to_sparse_csc())
        elif kind == "bsr":  # its blocks hold zeros, which are stored entries
            graph = Graph.from_sparse(summed.to_sparse_bsr((1, 1)))
        elif kind.startswith("scipy"):
            stored = scipy.sparse.coo_array((values.numpy(), (target, source)), shape=shape)
            graph = Graph.from_scipy(stored if kind == "scipy coo" else stored.tocsr())
        elif kind == "networkx":
            import networkx

            made = networkx.MultiDiGraph()
            made.add_nodes_from(range(nodes))
            made.add_weighted_edges_from(zip(source.tolist(), target.tolist(), weight.tolist(), strict=True))
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            try:
                graph = Graph.from_networkx(made)
            finally:
                torch.set_default_dtype(before)
        elif kind == "pyg":
            from torch_geometric.data import Data

            graph = Graph.from_pyg(Data(edge_index=pair, edge_weight=values, num_nodes=nodes))
        elif kind == "coalesced":
            known = torch.sparse_coo_tensor(pair, values, shape).coalesce()
            graph = Graph.from_edge_index(known.indices(), known.values(), nodes, is_coalesced=True)
        elif kind.startswith("file"):
            graph = Graph.from_edge_index(pair, values, nodes)
            graph = reload(graph, Path(folder) / f"graph.{kind.split()[1]}")
        else:
            graph = Graph.from_edge_index(pair.to(device), values.to(device), nodes)
    return graph.to(device)


def reload(graph, path):
    """A graph through a file; lists of edges are read in torch's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(graph.dtype)
    try:
        graph.save(path)
        return Graph.load(path)
    finally:
        torch.set_default_dtype(before)


def settle(draw, graph, operator, loosely=1.0, sizes=0.0):
    """Check a graph against its operator, and return that with the graph's own (rounded) numbers.

    ``sizes`` are sums of magnitudes of repeated edges, which may cancel.
    """
    dense, expected = graph.to_dense().detach().double().cpu(), operator.matrix.detach()
    eps = torch.finfo(graph.dtype).eps
    scale = expected.abs().max() if expected.numel() else torch.tensor(0.0)
    allowed = 64 * loosely * eps * (expected.abs() + eps**0.25 * scale) + 8 * eps * sizes
    close = (dense - expected).abs() <= allowed
    assert close.all(), f"entries differ: {dense[~close][:3].tolist()} instead of {expected[~close][:3].tolist()}"
    edges, nodes = operator.edges, operator.num_nodes
    assert graph.num_nodes == nodes
    assert graph.num_edges == edges.sum()
    assert graph.degree.tolist() == edges.sum(1).tolist()
    check_lists(graph.incoming, edges)
    check_lists(graph.outgoing, edges.T)
    target, source = np.nonzero(edges)
    assert torch.equal(graph.weight.detach().double().cpu(), dense[target, source])
    turned, order = np.nonzero(edges.T)
    assert torch.equal(graph.outgoing_weight.detach().double().cpu(), dense[order, turned])
    slots = [int(np.flatnonzero(edges[i]).searchsorted(j)) for j, i in zip(turned, order, strict=True)]
    assert graph.incoming_slot.tolist() == slots
    symmetric = bool((edges == edges.T).all()) and torch.equal(dense, dense.T)
    if not graph.weight.requires_grad:
        rounded = graph.is_directed and any(choice.startswith("dtype ") for choice in draw.chosen)  # stays directed
        assert rounded or graph.is_directed != symmetric, f"is_directed={graph.is_directed}, S symmetric: {symmetric}"
    if nodes <= 60:
        hops, closed = int(draw.rng("hops").integers(1, 4)), bool(draw.rng("closed").integers(2))
        for lists, way in ((edges, False), (edges.T, True)):
            wanted = Operator(expected, lists, True).pattern(hops, closed)
            check_lists(graph.hop_pattern(hops, closed=closed, turned=way), wanted)
    edge_index, weight = graph.to_edge_index()
    key = edge_index[1] * nodes + edge_index[0]
    assert (key.diff() > 0).all()
    assert torch.equal(dense[edge_index[1].cpu(), edge_index[0].cpu()], weight.detach().double().cpu())
    draw.count("graphs")
    return Operator(dense, edges, operator.exact and torch.equal(dense, expected))


def check_lists(lists, edges):
    """Neighbour lists against a pattern."""
    rowptr, col = np.append(0, np.cumsum(edges.sum(1))), np.nonzero(edges)[1]
    assert lists.rowptr.tolist() == rowptr.tolist()
    assert lists.col.tolist() == col.tolist()
    assert lists.max_degree == (edges.sum(1).max() if len(edges) else 0)


def change(draw, graph, operator, number):
    """One step that makes another graph of a graph, on both sides."""
    step = draw.choice(f"step {number}", STEPS)
    rng, matrix, edges, nodes = draw.rng(f"step {number} numbers"), operator.matrix, operator.edges, graph.num_nodes
    exact = operator.exact
    with tempfile.TemporaryDirectory() as folder:
        if step == "permute":
            perm = rng.permutation(nodes)
            graph, matrix, edges = graph.permute(torch.from_numpy(perm)), matrix[perm][:, perm], edges[perm][:, perm]
        elif step == "reorder":
            graph, order = graph.reorder()
            order = order.cpu().numpy()
            assert sorted(order.tolist()) == list(range(nodes))
            matrix, edges = matrix[order][:, order], edges[order][:, order]
        elif step == "union":
            if nodes > 60:
                return graph, operator
            other, beside = draw_graph(draw, f"other {number} ", graph.device, (graph.dtype,))
            both = [(graph, operator), (other, beside)]
            both += [both[0]] if draw.flag(f"twice {number}") else []
            graph = Graph.union([each for each, _ in both])
            matrix = torch.block_diag(*(each.matrix for _, each in both))
            edges = torch.block_diag(*(torch.from_numpy(each.edges) for _, each in both)).numpy().astype(bool)
            exact = operator.exact and beside.exact
        elif step == "drop":
            p = draw.choice(f"p {number}", (1.0, 0.0, 0.5, 0.1))
            graph = graph.drop_edges(p, generator=torch.Generator().manual_seed(int(rng.integers(1 << 31))))
            kept = np.zeros_like(edges)
            kept[graph.incoming.rows.cpu(), graph.incoming.col.cpu()] = True
            assert not (kept & ~edges).any()
            assert (kept == (edges & (kept | kept.T))).all(), "both directions of a link are lost together"
            assert p != 0 or (kept == edges).all()
            assert p != 1 or not kept.any()
            keeps = torch.from_numpy(kept | np.eye(nodes, dtype=bool))
            matrix, edges = torch.where(keeps, matrix, torch.zeros_like(matrix)), kept
        elif step in ("symmetric", "random_walk", "laplacian", "spectral", "gcn"):
            exact = False
            if step == "gcn" and has_cancelling_row(matrix):
                return graph, operator
            if step == "spectral" and np.isnan(spectral_radius(matrix.numpy())):  # known to nobody
                return graph, operator
            try:
                graph = graph.normalize(step)
            except ValueError:
                assert step == "spectral"
                radius = spectral_radius(matrix.numpy())
                assert radius ** min(nodes, 8) < 1e-6 * float(matrix.abs().max()) ** min(nodes, 8)
                return graph, operator
            condition = condition_of_row_sums(matrix)
            matrix = normalized(matrix, step)
        elif step in ("pickle", "deepcopy"):
            graph = pickle.loads(pickle.dumps(graph)) if step == "pickle" else copy.deepcopy(graph)
        elif step.startswith("save"):
            graph = reload(graph, Path(folder) / f"graph.{step.split()[1]}").to(graph.device)
        elif step == "dtype":
            graph = graph.to(dtype=draw.choice(f"dtype {number}", (torch.float64, torch.float32)))
        elif step == "edge_index":
            graph = Graph.from_edge_index(*graph.to_edge_index(), nodes)
        elif step == "pyg":
            graph = Graph.from_pyg(graph.to_pyg())
        elif step == "shared" and graph.device.type == "cpu":
            graph.share_memory_()
    loosely = 1e8 if step == "spectral" and graph.dtype == torch.float64 else 1.0  # an eigenvalue, by two algorithms
    loosely = 1e4 if step == "laplacian" else loosely  # sums that cancel
    loosely = max(1.0, condition / 64) if step == "gcn" else loosely  # of n terms: (n - 1) eps / 2 times the condition
    return graph, settle(draw, graph, Operator(matrix, edges, exact), loosely)


def has_cancelling_row(matrix):
    """Return whether weights of both signs sum to about zero, where rounding decides what GCN's root becomes."""
    loops = torch.where(matrix.diagonal() == 0, 1.0, 0.0)
    return bool(((matrix.sum(1) + loops).abs() < 1e-3 * (matrix.abs().sum(1) + loops)).any())


def condition_of_row_sums(matrix):
    """The largest number of terms times condition number (sum of magnitudes over sum) of GCN's row sums."""
    loops = torch.where(matrix.diagonal() == 0, 1.0, 0.0)
    terms = (matrix != 0).sum(1) + 1
    return float((terms * (matrix.abs().sum(1) + loops) / (matrix.sum(1) + loops).abs().clamp_min(1e-300)).max())


def normalized(matrix, kind):
    """A rescaled operator, by its definition."""
    rows, columns = matrix.abs().sum(1), matrix.abs().sum(0)

    def inverse(sums):
        return torch.where(sums == 0, 0.0, 1 / torch.where(sums == 0, 1.0, sums))

    if kind == "symmetric":
        return matrix * inverse(rows).sqrt()[:, None] * inverse(columns).sqrt()
    if kind == "random_walk":
        return matrix * inverse(rows)[:, None]
    if kind == "laplacian":
        others = matrix - torch.diag(matrix.diagonal())
        return torch.diag(others.sum(1)) - others  # self-loops cancel
    if kind == "gcn":
        loops = matrix.diagonal()
        matrix = matrix + torch.diag(torch.where(loops == 0, 1.0, 0.0).double())
        across = matrix.sum(1)
        across = torch.where(across > 0, torch.where(across > 0, across, 1.0).rsqrt(), 0.0)
        return matrix * across[:, None] * across
    return matrix / spectral_radius(matrix.numpy()) if matrix.any() else matrix


def draw_world(draw, steps=2, dtypes=(torch.float64, torch.float32)):
    """A graph after a few steps, and its operator."""
    graph, operator = draw_graph(draw, device=device_of(draw), dtypes=dtypes)
    for number in range(draw.integer("steps", 0, steps)):
        graph, operator = change(draw, graph, operator, number)
    return graph, operator
