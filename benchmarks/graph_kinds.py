"""Graphs with and without an order that a cut could find."""

import numpy as np
import scipy.sparse
import torch

import graphact


def small_world(nodes, near=7, seed=0):
    """A ring in which everyone hears ``near`` nodes on both sides, and one far node, chosen at random, both ways."""
    rng = np.random.default_rng(seed)
    here = np.arange(nodes, dtype=np.int32)
    steps = np.concatenate([np.arange(-near, 0), np.arange(1, near + 1)]).astype(np.int32)
    ring = (here[:, None] + steps) % np.int32(nodes)
    pairs = far_apart(rng.permutation(nodes).astype(np.int32), near, rng)
    far = np.empty(nodes, np.int32)
    far[pairs] = np.roll(pairs, 1)
    back = np.empty(nodes, np.int32)
    back[far] = here
    columns = np.concatenate([ring, far[:, None], back[:, None]], axis=1)
    degree = columns.shape[1]
    weight = np.full(columns.size, 1 / degree, np.float32)
    pointers = np.arange(0, columns.size + 1, degree)
    matrix = scipy.sparse.csr_array((weight, columns.reshape(-1), pointers), shape=(nodes, nodes))
    matrix.sort_indices()
    return matrix


def far_apart(cycle, near, rng):
    """Swap places in a cycle until no two that follow each other are near each other on the ring."""
    while True:
        distance = np.abs(cycle - np.roll(cycle, 1))
        close = np.flatnonzero(np.minimum(distance, len(cycle) - distance) <= near)
        if not len(close):
            return cycle
        for place, other in zip(close, rng.integers(0, len(cycle), len(close)), strict=True):
            cycle[place], cycle[other] = cycle[other], cycle[place]


def geometric(nodes, seed=0):
    """Points in the plane, each with its eight nearest, numbered as they were thrown."""
    points = torch.rand(nodes, 2, generator=torch.Generator().manual_seed(seed))
    return graphact.Graph.nearest_neighbors(points, 8).normalize("random_walk")


def communities(nodes, seed=0):
    """Eight communities, the numbers of their members shuffled."""
    generator = torch.Generator().manual_seed(seed)
    graph = graphact.Graph.stochastic_block_model([nodes // 8] * 8, 80 / nodes, 2 / nodes, generator=generator)
    return graph.permute(torch.randperm(graph.num_nodes, generator=generator)).normalize("random_walk")


def random_links(nodes, degree=16, seed=0):
    """No locality at all."""
    ends = torch.randint(nodes, (2, nodes * degree // 2), generator=torch.Generator().manual_seed(seed))
    return graphact.Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), num_nodes=nodes).normalize("random_walk")
