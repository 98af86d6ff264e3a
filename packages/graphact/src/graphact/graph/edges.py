"""Edge lists as given by callers: checked and converted to one form."""

import math
import sys
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION, check_integer
from graphact.graph.advice import how_to_build
from graphact.graph.eager import is_batched

SUMMED = "edge_weight summed over repeated edges"


class Edges(NamedTuple):
    """An edge list of the right types and shapes; values are checked where the edges are sorted."""

    edge_index: Tensor
    weight: Tensor
    num_nodes: int | None


def as_integers(name: str, value: Any) -> Tensor:
    """Return integers in any container as an int64 tensor."""
    value = as_tensor(name, value)
    if value.numel() and (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
        raise TypeError(f"{name} must hold integers, got {value.dtype}")
    return value.to(torch.int64)


def as_weights(name: str, weight: Any) -> Tensor:
    """Return weights as a floating-point tensor; integers and booleans take torch's default dtype."""
    plain_python = not isinstance(weight, (Tensor, np.ndarray))
    weight = as_tensor(name, weight)
    if weight.is_complex():
        raise TypeError(f"{name} must hold real numbers, got {weight.dtype}")
    if plain_python or not weight.is_floating_point():
        weight = weight.to(torch.get_default_dtype())
    return weight


def check_weights(name: str, weight: Any) -> Tensor:
    """Return weights as a finite floating-point tensor."""
    return check_finite(name, as_weights(name, weight))


def check_finite(name: str, values: Tensor) -> Tensor:
    """Return values if they hold neither NaN nor infinity; not checked inside a vmap over them."""
    if is_batched(values):
        return values
    if not math.isfinite(sum_of(values)):  # rare: a value is not finite, or only the sum overflows
        bad = (~values.detach().isfinite()).nonzero()
        if len(bad):
            index = bad[0].tolist()
            found = values.detach()[tuple(index)].item()
            raise ValueError(f"{name} must be finite, got {found} at index {index} ({len(bad)} such values)")
    return values


def sum_of(weight: Tensor) -> Tensor:
    """Return the sum in at least float32. If it is finite, so are all weights: faster than testing each."""
    return weight.detach().sum(dtype=torch.float32 if weight.dtype in HALF_PRECISION else weight.dtype)


def as_tensor(name: str, value: Any) -> Tensor:
    """Return numbers in any container as a dense tensor."""
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(np.require(value, requirements="W"))  # a table of pandas is copied: it is read-only
        except (TypeError, ValueError) as error:
            text = " ".join(repr(value).split())
            raise TypeError(f"{name} must be a tensor or an array of numbers, got {text:.60}") from error
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got one of layout {value.layout}")
    return value


def sum_by(index: Tensor, values: Tensor, count: int) -> Tensor:
    """Sum the values that share an index, in at least float32; the result has the dtype of the values."""
    wide = values.to(torch.float32) if values.dtype in HALF_PRECISION else values
    return wide.new_zeros(count).index_add(0, index, wide).to(values.dtype)


def as_edges(edge_index: Any, edge_weight: Any, num_nodes: Any) -> Edges:
    """Check types and shapes of the arguments of ``Graph.from_edge_index``; the default weight is one."""
    given, known_nodes = plain_edge_index(edge_index)
    try:
        edge_index = as_integers("edge_index", given)
    except TypeError as error:
        raise TypeError(f"{error}{how_to_build(given)}") from error
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        shape = tuple(edge_index.shape)
        raise ValueError(f"edge_index must have the shape (2, E), got {shape}{how_to_build(given)}")
    num_nodes = known_nodes if num_nodes is None else num_nodes
    if num_nodes is None and edge_index.numel() == 0:
        raise ValueError("num_nodes must be given for a graph without edges, got None and an empty edge_index")
    if num_nodes is not None:
        num_nodes = check_integer("num_nodes", num_nodes, minimum=1)
    if edge_weight is None:
        edge_weight = torch.ones(edge_index.size(1), device=edge_index.device)
    edge_weight = as_weights("edge_weight", edge_weight)
    if edge_weight.shape != edge_index.shape[1:]:
        raise ValueError(
            f"edge_weight must have the shape ({edge_index.size(1)},), got {tuple(edge_weight.shape)}"
            f"{advice_on_attributes(edge_weight, edge_index.size(1))}"
        )
    if edge_weight.device != edge_index.device:
        raise ValueError(
            f"edge_weight must be on the device of edge_index, {edge_index.device}, got {edge_weight.device}"
        )
    return Edges(edge_index, edge_weight, num_nodes)


def advice_on_attributes(weight: Tensor, edges: int) -> str:
    """Return the end of a message for weights that look like PyG's edge_attr, with several numbers an edge."""
    if weight.dim() != 2 or weight.size(0) != edges:
        return ""
    if weight.size(1) == 1:
        return "; edge_attr.flatten() makes weights of a single column"
    return "; a weight is one number an edge: choose a column of edge_attr, such as edge_attr[:, 0], or leave it out"


def check_bounds(lowest: int, highest: int, num_nodes: int | None) -> int:
    """Return the number of nodes, by default the largest index plus one; raise if an index is out of bounds."""
    num_nodes = max(highest, 0) + 1 if num_nodes is None else num_nodes
    if lowest < 0 or highest >= num_nodes:
        bad = lowest if lowest < 0 else highest
        raise ValueError(f"edge_index must hold node indices from 0 to {num_nodes - 1}, got {bad}")
    return num_nodes


def plain_edge_index(edge_index: Any) -> tuple[Any, int | None]:
    """Return the tensor and the number of nodes of PyG's ``EdgeIndex``; anything else unchanged, and None."""
    pyg = sys.modules.get("torch_geometric")
    kind = getattr(pyg, "EdgeIndex", None)
    if kind is None or not isinstance(edge_index, kind):
        return edge_index, None
    rows, columns = edge_index.sparse_size()
    return edge_index.as_tensor(), rows if rows == columns else None
