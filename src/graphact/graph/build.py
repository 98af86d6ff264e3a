"""From a list of edges to the sorted, merged and transposed structure of a graph."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION, check_integer
from graphact.graph.neighborhoods import Neighborhoods


def as_integers(name: str, value: Any) -> Tensor:
    """Return integers in any container as an int64 tensor."""
    value = as_tensor(name, value)
    if value.numel() and (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
        raise TypeError(f"{name} must hold integers, got {value.dtype}")
    return value.to(torch.int64)


def check_weights(name: str, weight: Any) -> Tensor:
    """Return weights as a finite floating-point tensor; integers and booleans take torch's default dtype."""
    plain_python = not isinstance(weight, (Tensor, np.ndarray))
    weight = as_tensor(name, weight)
    if weight.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {weight.dtype}")
    if plain_python or not weight.is_floating_point():
        weight = weight.to(torch.get_default_dtype())
    return check_finite(name, weight)


def check_finite(name: str, weight: Tensor) -> Tensor:
    """Return ``weight`` if it holds neither NaN nor infinity."""
    finite = weight.detach().isfinite()
    if not finite.all():
        bad = weight.detach()[~finite].flatten()[0].item()
        raise ValueError(f"{name} must be finite, got {bad} ({int((~finite).sum())} such values)")
    return weight


def as_tensor(name: str, value: Any) -> Tensor:
    """Return numbers in any container as a dense tensor."""
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(np.asarray(value))
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be a tensor or an array of numbers, got {value!r:.60}") from error
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got one of layout {value.layout}")
    return value


def sum_by(index: Tensor, values: Tensor, count: int) -> Tensor:
    """Sum the values that share an index, in at least float32; the result has the dtype of the values."""
    wide = values.to(torch.float32) if values.dtype in HALF_PRECISION else values
    return wide.new_zeros(count).index_add(0, index, wide).to(values.dtype)


def check_edges(edge_index: Any, edge_weight: Any, num_nodes: Any) -> tuple[Tensor, Tensor, int]:
    """Validate the arguments of ``Graph.from_edge_index``; edges without weights weigh one."""
    edge_index = as_integers("edge_index", edge_index)
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(f"edge_index must have the shape (2, E), got {tuple(edge_index.shape)}")
    lowest, highest = (int(end) for end in edge_index.aminmax()) if edge_index.numel() else (0, -1)
    if num_nodes is None and highest < 0:
        raise ValueError("num_nodes must be given for a graph without edges, got None and an empty edge_index")
    num_nodes = check_integer("num_nodes", highest + 1 if num_nodes is None else num_nodes, minimum=1)
    if lowest < 0 or highest >= num_nodes:
        bad = lowest if lowest < 0 else highest
        raise ValueError(f"edge_index must hold node indices from 0 to {num_nodes - 1}, got {bad}")
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.size(1), device=edge_index.device)
    edge_weight = check_weights("edge_weight", edge_weight)
    if edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(f"edge_weight must have the shape ({edge_index.size(1)},), got {tuple(edge_weight.shape)}")
    if edge_weight.device != edge_index.device:
        raise ValueError(
            f"edge_weight must be on the device of edge_index, {edge_index.device}, got {edge_weight.device}"
        )
    return edge_index, edge_weight, num_nodes


def build_structure(
    rows: Tensor, col: Tensor, weight: Tensor, num_nodes: int
) -> tuple[Neighborhoods, Neighborhoods, Tensor, bool]:
    """Neighbour lists of both directions, the weights in transposed order, and whether S differs from its transpose."""
    incoming = Neighborhoods.from_sorted(rows, col, num_nodes)
    rows_t, order = torch.sort(col, stable=True)  # the same edges seen from their sources
    col_t, weight_t = rows[order], weight[order]
    if torch.equal(rows_t, rows) and torch.equal(col_t, col):
        symmetric = torch.equal(weight_t, weight)
        # trained weights are equal by chance: each edge keeps a gradient of its own
        shared = symmetric and not weight.requires_grad
        return incoming, incoming, weight if shared else weight_t, not symmetric
    return incoming, Neighborhoods.from_sorted(rows_t, col_t, num_nodes), weight_t, True
