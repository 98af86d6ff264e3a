"""Rescaled shift operators. Every function maps (neighbour lists, weights, diagonal) to (weights, diagonal)."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from graphact._checks import check_choice
from graphact.graph.eager import is_plain, outside_compiled_code
from graphact.graph.edges import check_finite, sum_by
from graphact.graph.neighborhoods import Neighborhoods
from graphact.graph.spectral_radius import spectral_radius

Normalization = Literal["spectral", "symmetric", "gcn", "random_walk", "laplacian"]
Weights = tuple[Tensor, Tensor | None]


@outside_compiled_code("eigenvalues are found in every call: normalise the graphact.Graph once and compile with it")
def spectral(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S divided by its largest eigenvalue magnitude; the zero operator is returned unchanged."""
    if not weight.any() and (diagonal is None or not diagonal.any()):
        return weight, diagonal
    radius = spectral_radius(incoming, weight, diagonal)
    if radius == 0:
        raise ValueError(
            'kind "spectral" needs an eigenvalue that is not zero, and this operator has none, as graphs without '
            "cycles have none"
        )
    scaled, loops = (None if part is None else (part.double() / radius).to(part.dtype) for part in (weight, diagonal))
    for part in (scaled, loops):
        if part is not None:
            check_finite('weights of kind "spectral"', part.detach())
    return scaled, loops  # type: ignore[return-value]


def symmetric(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None, is_undirected: bool = False) -> Weights:
    """S divided by the square roots of its row and column sums of magnitudes, which are equal if it is undirected."""
    rows, col = incoming.rows, incoming.col
    across = root(inverse_sums(rows, weight, diagonal, incoming.num_nodes))
    down = across if is_undirected else root(inverse_sums(col, weight, diagonal, incoming.num_nodes))
    loops = None if diagonal is None else (across * down * diagonal).to(weight.dtype)
    return (across.index_select(0, rows) * down.index_select(0, col) * weight).to(weight.dtype), loops


def gcn(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S with self-loops of weight 1 where a node has none, divided by the square roots of its row sums at both ends."""
    rows, dtype = incoming.rows, torch.promote_types(weight.dtype, torch.float32)
    loops = weight.new_ones(incoming.num_nodes) if diagonal is None else torch.where(diagonal == 0, 1.0, diagonal)
    sums = sum_by(rows, weight.to(dtype), incoming.num_nodes) + loops
    across = torch.where(sums > 0, torch.where(sums > 0, sums, 1.0).rsqrt(), 0.0)
    scaled = weight * (across[rows] * across[incoming.col])
    return scaled.to(weight.dtype), (loops * across.square()).to(weight.dtype)


def random_walk(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """S with each row divided by its sum of magnitudes."""
    across = inverse_sums(incoming.rows, weight, diagonal, incoming.num_nodes)
    loops = None if diagonal is None else (across * diagonal).to(weight.dtype)
    return (across.index_select(0, incoming.rows) * weight).to(weight.dtype), loops


def laplacian(incoming: Neighborhoods, weight: Tensor, diagonal: Tensor | None) -> Weights:
    """Row sums on the diagonal minus S; self-loops cancel."""
    del diagonal
    sums = sum_by(incoming.rows, weight, incoming.num_nodes)
    return -weight, check_finite('row sums of kind "laplacian"', sums) if is_plain(sums) else sums


KINDS: dict[str, Callable[[Neighborhoods, Tensor, Tensor | None], Weights]] = {
    "spectral": spectral,
    "symmetric": symmetric,
    "gcn": gcn,
    "random_walk": random_walk,
    "laplacian": laplacian,
}


def check_normalize(normalize: Any) -> Normalization | None:
    """Return the kind by which a graph made from an edge_index is normalised; None leaves its weights unchanged."""
    return None if normalize is None else check_choice("normalize", normalize, tuple(KINDS))  # type: ignore[return-value]


def inverse_sums(index: Tensor, weight: Tensor, diagonal: Tensor | None, num_nodes: int) -> Tensor:
    """Return 1 over the sum of |S| over the entries that share an index, and 0 where a node has no weight.

    In float64, whose range no sum of float32 leaves.
    """
    sums = sum_by(index, weight.abs().double(), num_nodes)
    sums = sums if diagonal is None else sums + diagonal.abs()
    empty = sums == 0
    inverse = torch.where(empty, 0.0, 1.0 / torch.where(empty, 1.0, sums))
    if weight.dtype == torch.float64 and is_plain(inverse):
        check_finite("sums of weights and 1 / sums", sums + inverse)
    return inverse


def root(values: Tensor) -> Tensor:
    """Return square roots whose derivative at 0 is 0."""
    empty = values == 0
    return torch.where(empty, 0.0, torch.where(empty, 1.0, values).sqrt())
