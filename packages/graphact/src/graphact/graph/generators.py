"""Synthetic graphs: communities and points in space."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_generator, check_integer, check_positive, check_probability
from graphact.graph.edges import check_weights

ROWS_AT_A_TIME = 1024


def stochastic_block_model(
    sizes: Sequence[int], p: float, q: float, generator: torch.Generator | None
) -> tuple[Tensor, int]:
    """Edge list (both directions) and number of nodes of a stochastic block model."""
    if isinstance(sizes, int):
        raise TypeError(f"sizes must list the size of each community, got the number {sizes}")
    sizes = [check_integer("sizes", size, minimum=1) for size in sizes]
    check_generator(generator)
    if not sizes:
        raise ValueError("sizes must name at least one community, got none")
    p, q = check_probability("p", p), check_probability("q", q)
    community = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    num_nodes = community.numel()
    nodes = torch.arange(num_nodes)
    found = []
    for rows in nodes.split(ROWS_AT_A_TIME):
        probability = torch.where(community[rows, None] == community, p, q)
        drawn = torch.rand(probability.shape, generator=generator) < probability
        upper, lower = (drawn & (rows[:, None] < nodes)).nonzero(as_tuple=True)
        found.append(torch.stack([rows[upper], lower]))
    half = torch.cat(found, dim=1)
    return torch.cat([half, half.flip(0)], dim=1), num_nodes


def nearest_neighbors(coordinates: Any, k: int, scale: float | None) -> tuple[Tensor, Tensor, int]:
    """Edge list, Gaussian weights and number of nodes of a symmetric nearest-neighbour graph."""
    from scipy.spatial import KDTree

    points = check_weights("coordinates", coordinates)
    if points.dim() != 2 or points.size(0) < 2 or points.size(1) < 1:
        raise ValueError(
            f"coordinates must have the shape (N, D) with N at least 2 and D at least 1, got {tuple(points.shape)}"
        )
    num_nodes = points.size(0)
    k = check_integer("k", k, minimum=1)
    if k >= num_nodes:
        raise ValueError(f"k must be below the number of points, {num_nodes}, got {k}")
    positions = points.detach().cpu().numpy().astype(np.float64)
    _, nearest = KDTree(positions).query(positions, k=k + 1)
    source = np.repeat(np.arange(num_nodes), k)
    # without the node itself, which repeated points may hide among its neighbours
    target = np.concatenate([row[row != node][:k] for node, row in enumerate(nearest)])
    low, high = np.unique(np.sort(np.stack([source, target]), axis=0), axis=1)
    distance = np.linalg.norm(positions[low] - positions[high], axis=1)
    width = (distance.mean() or 1.0) if scale is None else check_positive("scale", scale)
    weight = torch.from_numpy(np.exp(-(distance**2) / (2 * width**2))).to(points.device, points.dtype)
    half = torch.from_numpy(np.stack([low, high])).to(points.device)
    return torch.cat([half, half.flip(0)], dim=1), weight.repeat(2), num_nodes
