"""Random graphs of every kind the specification names, each with its dense matrix and edge pattern."""

from dataclasses import dataclass

import numpy as np
import torch

from graphact import Graph


@dataclass(frozen=True)
class Case:
    """A graph as the package sees it and as the oracle sees it, and a signal."""

    graph: Graph
    matrix: np.ndarray
    edges: np.ndarray
    x: np.ndarray

    @property
    def signal(self):
        return torch.from_numpy(self.x.copy())


BATCHES = [(), (1,), (3,), (2, 2)]


def random_matrix(rng, num_nodes):
    """A dense shift operator: weighted or not, signed or not, directed or not, with loops and isolated nodes or not."""
    edges = rng.random((num_nodes, num_nodes)) < rng.choice([0.0, 0.2, 0.5, 0.9])
    if rng.random() < 0.5:
        edges = np.triu(edges) | np.triu(edges).T
    if rng.random() < 0.6:
        np.fill_diagonal(edges, False)
    if rng.random() < 0.4:
        alone = rng.integers(num_nodes)
        edges[alone] = edges[:, alone] = False
    weights = np.ones(edges.shape)
    if rng.random() < 0.7:
        weights = rng.uniform(0.2, 1.5, edges.shape)
        weights = np.triu(weights) + np.triu(weights, 1).T if (edges == edges.T).all() else weights
    if rng.random() < 0.4:
        weights = weights * rng.choice([-1.0, 1.0], edges.shape)
    return np.where(edges, weights, 0.0)


def random_case(seed, max_nodes=7):
    """Case number `seed`, always the same."""
    rng = np.random.default_rng(seed)
    matrix = random_matrix(rng, int(rng.integers(1, max_nodes + 1)))
    batch = BATCHES[rng.integers(len(BATCHES))]
    x = rng.normal(size=(*batch, len(matrix), int(rng.integers(1, 4))))
    target, source = np.nonzero(matrix)
    graph = Graph.from_edge_index(np.stack([source, target]), matrix[target, source], num_nodes=len(matrix))
    return Case(graph, matrix, matrix != 0, x)


def random_graph(num_nodes=12, density=0.4, seed=0, dtype=torch.float64):
    """A connected-looking undirected weighted graph for tests that need just any graph."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((num_nodes, num_nodes)) < density, 1) * rng.uniform(0.2, 1.0, (num_nodes, num_nodes))
    return Graph.from_dense(torch.from_numpy(upper + upper.T)).to(dtype=dtype)


def directed_graph(num_nodes=9, seed=1, loops=True, dtype=torch.float64):
    """A directed graph with a node that hears nobody and one that nobody hears, with some loops or none."""
    dense = random_graph(num_nodes=num_nodes, seed=seed).to_dense().to(dtype).clone()
    dense[2], dense[:, 4] = 0, 0
    dense[0, 1:4] = 0
    dense.fill_diagonal_(0)
    if loops:
        dense[3, 3], dense[5, 5] = 0.5, -0.3
    return Graph.from_dense(dense)
