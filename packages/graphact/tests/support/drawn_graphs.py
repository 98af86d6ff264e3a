"""Random graphs for the fuzzer: built in every way there is, changed in every order, and checked at each step."""

import copy
import pickle
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse
import torch

from graphact import Graph
from support import oracle
from support.building import as_python, by_hand
from support.graphs import random_matrix

NODES = (1, 2, 3, 5, 8, 13, 40)
SOURCES = (
    "tensor", "int32", "numpy", "list", "transposed", "strided", "dense", "coo", "csr", "csc", "bsr", "scipy coo",
    "scipy csr", "networkx", "pyg", "coalesced", "npz", "txt",
)  # fmt: skip
STEPS = (
    "none", "permute", "union", "drop", "symmetric", "random_walk", "laplacian", "spectral", "gcn", "pickle",
    "deepcopy", "npz", "txt", "dtype", "edge_index", "pyg", "shared",
)  # fmt: skip
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


class World(NamedTuple):
    """A graph, and the numbers and edges that it must hold; ``edges[i, j]``: i hears j, without self-loops."""

    graph: Graph
    matrix: np.ndarray
    edges: np.ndarray


def draw_edges(draw, name=""):
    """Lists of sources, targets and weights, and the number of nodes: repeated edges, loops, weights of zero."""
    rng, nodes = draw.rng(f"{name}edges"), draw.choice(f"{name}nodes", NODES)
    matrix = random_matrix(rng, nodes)
    target, source = np.nonzero(matrix)
    weight = matrix[target, source]
    if draw.flag(f"{name}zeros", 0.3):
        weight = weight * (rng.random(len(weight)) < 0.8)
    if draw.flag(f"{name}repeated", 0.3) and len(weight):
        again = rng.integers(len(weight), size=len(weight))
        source, target = np.append(source, source[again]), np.append(target, target[again])
        weight = np.append(weight, rng.uniform(-1, 1, len(again)))
    order = rng.permutation(len(weight))
    return source[order], target[order], weight[order], nodes


def draw_graph(draw, name="", dtypes=(torch.float64, torch.float32)):
    """A graph built in one of many ways."""
    source, target, weight, nodes = draw_edges(draw, name)
    dtype, kind = draw.choice(f"{name}dtype", dtypes), draw.choice(f"{name}source", SOURCES)
    weight = torch.from_numpy(weight).to(dtype)
    matrix, edges = np.zeros((nodes, nodes)), np.zeros((nodes, nodes), bool)
    np.add.at(matrix, (target, source), weight.double().numpy())
    edges[target, source] = True
    with tempfile.TemporaryDirectory() as folder, default_dtype(dtype):
        graph = build(kind, torch.from_numpy(np.stack([source, target])), weight, nodes, Path(folder))
    edges = graph.to_dense().numpy() != 0 if kind == "dense" else edges
    device = draw.choice("device", ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",))
    return settle(draw, World(graph.to(device), matrix, edges & ~np.eye(nodes, dtype=bool)))


@contextmanager
def default_dtype(dtype):
    """Plain numbers and lists of edges are read in this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def build(kind, pair, values, nodes, folder):
    """A graph from a list of edges, by one of its constructors."""
    shape, swapped = (nodes, nodes), pair.flip(0)

    def matrix():
        return torch.sparse_coo_tensor(swapped, values, shape).coalesce()

    def with_gaps(tensor):
        return torch.stack([tensor, torch.full_like(tensor, -7)], -1).flatten(-2)[..., ::2]

    def by_networkx():
        import networkx

        made = networkx.MultiDiGraph()
        made.add_nodes_from(range(nodes))
        made.add_weighted_edges_from(zip(*pair.tolist(), values.tolist(), strict=True))
        return Graph.from_networkx(made)

    def by_pyg():
        from torch_geometric.data import Data

        return Graph.from_pyg(Data(edge_index=pair, edge_weight=values, num_nodes=nodes))

    def by_coalescing():
        known = torch.sparse_coo_tensor(pair, values, shape).coalesce()
        return Graph.from_edge_index(known.indices(), known.values(), nodes, is_coalesced=True)

    def by_scipy():
        stored = scipy.sparse.coo_array((values.numpy(), tuple(swapped.numpy())), shape=shape)
        return Graph.from_scipy(stored if kind == "scipy coo" else stored.tocsr())

    def by_file():
        return reload(Graph.from_edge_index(pair, values, nodes), folder / f"graph.{kind}")

    return {
        "tensor": lambda: Graph.from_edge_index(pair, values, nodes),
        "int32": lambda: Graph.from_edge_index(pair.int(), values, nodes),
        "numpy": lambda: Graph.from_edge_index(pair.numpy(), values.numpy(), nodes),
        "list": lambda: Graph.from_edge_index(pair.tolist(), values.tolist(), nodes),
        "transposed": lambda: Graph.from_edge_index(pair.t().contiguous().t(), values, nodes),
        "strided": lambda: Graph.from_edge_index(with_gaps(pair), with_gaps(values), nodes),
        "dense": lambda: Graph.from_dense(matrix().to_dense().t().contiguous().t()),
        "coo": lambda: Graph.from_sparse(torch.sparse_coo_tensor(swapped, values, shape)),
        "csr": lambda: Graph.from_sparse(matrix().to_sparse_csr()),
        "csc": lambda: Graph.from_sparse(matrix().to_sparse_csc()),
        "bsr": lambda: Graph.from_sparse(matrix().to_sparse_bsr((1, 1))),
        "scipy coo": by_scipy,
        "scipy csr": by_scipy,
        "networkx": by_networkx,
        "pyg": by_pyg,
        "coalesced": by_coalescing,
        "npz": by_file,
        "txt": by_file,
    }[kind]()


def reload(graph, path):
    """A graph through a file; lists of edges are read in torch's default dtype."""
    with default_dtype(graph.dtype):
        graph.save(path)
        return Graph.load(path).to(graph.device)


def settle(draw, world, loosely=1.0):
    """Check every attribute of a graph; return it with its own, rounded numbers."""
    graph, matrix, edges = world
    dense = graph.to_dense().double().cpu().numpy()
    allowed = loosely * TOLERANCE[graph.dtype]
    np.testing.assert_allclose(dense, matrix, rtol=allowed, atol=allowed * max(1.0, np.abs(matrix).max()))
    target, source = np.nonzero(edges)
    expected = by_hand(len(edges), list(zip(source.tolist(), target.tolist(), strict=True)), dense[target, source])
    # a graph stays directed when it is rounded
    unknown = {"diagonal"} | ({"is_directed"} if any(choice.startswith("dtype ") for choice in draw.chosen) else set())
    found = as_python(graph)
    assert {name: part for name, part in found.items() if name not in unknown} == {
        name: part for name, part in expected.items() if name not in unknown
    }
    draw.count("graphs")
    return World(graph, dense, edges)


def change(draw, world, number):
    """One step that makes another graph of a graph."""
    (graph, matrix, edges), step = world, draw.choice(f"step {number}", STEPS)
    rng, nodes, loosely = draw.rng(f"step {number} numbers"), len(edges), 1.0
    with tempfile.TemporaryDirectory() as folder:
        if step == "permute":
            perm = rng.permutation(nodes)
            graph = graph.permute(torch.from_numpy(perm))
            matrix, edges = matrix[perm][:, perm], edges[perm][:, perm]
        elif step == "union" and nodes <= 40:
            other = draw_graph(draw, f"other {number} ", (graph.dtype,))
            parts = [world, other, world] if draw.flag(f"twice {number}") else [world, other]
            graph = Graph.union([part.graph for part in parts])
            matrix = scipy.sparse.block_diag([part.matrix for part in parts]).toarray()
            edges = scipy.sparse.block_diag([part.edges for part in parts]).toarray().astype(bool)
        elif step == "drop":
            p = draw.choice(f"p {number}", (1.0, 0.0, 0.5, 0.1))
            graph = graph.drop_edges(p, generator=torch.Generator().manual_seed(int(rng.integers(1 << 31))))
            kept = np.zeros_like(edges)
            kept[graph.incoming.rows.cpu(), graph.incoming.col.cpu()] = True
            assert (kept == (edges & (kept | kept.T))).all(), "both directions of a link are lost together"
            assert p != 0 or (kept == edges).all()
            assert p != 1 or not kept.any()
            matrix, edges = np.where(kept | np.eye(nodes, dtype=bool), matrix, 0.0), kept
        elif step in ("symmetric", "random_walk", "laplacian", "spectral", "gcn"):
            expected = oracle.normalized(matrix, step)
            if expected is None:
                return world
            graph, matrix, loosely = graph.normalize(step), expected, 1e3
        elif step in ("pickle", "deepcopy"):
            graph = pickle.loads(pickle.dumps(graph)) if step == "pickle" else copy.deepcopy(graph)
        elif step in ("npz", "txt"):
            graph = reload(graph, Path(folder) / f"graph.{step}")
        elif step == "dtype":
            graph = graph.to(dtype=draw.choice(f"dtype {number}", tuple(TOLERANCE)))
        elif step == "edge_index":
            graph = Graph.from_edge_index(*graph.to_edge_index(), nodes)
        elif step == "pyg":
            graph = Graph.from_pyg(graph.to_pyg())
        elif step == "shared" and graph.device.type == "cpu":
            graph.share_memory_()
    return settle(draw, World(graph, matrix, edges), loosely)


def draw_world(draw, steps=2, dtypes=tuple(TOLERANCE)):
    """A graph after a few steps."""
    world = draw_graph(draw, dtypes=dtypes)
    for number in range(draw.integer("steps", 0, steps)):
        world = change(draw, world, number)
    return world
