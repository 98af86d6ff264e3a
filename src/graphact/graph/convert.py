"""Entries of a shift operator from the formats of other libraries."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphact.graph.build import check_weights

if TYPE_CHECKING:
    import networkx
    import scipy.sparse


def check_square(shape: tuple[int, ...]) -> int:
    """The number of nodes of a matrix of this shape."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"matrix must be square, of shape (N, N), got {tuple(shape)}")
    if shape[0] == 0:
        raise ValueError(f"matrix must have at least one node, got the shape {tuple(shape)}")
    return shape[0]


def entries_of_dense(matrix: Any) -> tuple[Tensor, Tensor, Tensor, int]:
    """Target, source and weight of the entries that are not zero, and the number of nodes."""
    matrix = check_weights("matrix", matrix)
    num_nodes = check_square(tuple(matrix.shape))
    target, source = matrix.detach().nonzero(as_tuple=True)
    return target, source, matrix[target, source], num_nodes


def entries_of_scipy(matrix: "scipy.sparse.sparray | scipy.sparse.spmatrix") -> tuple[Tensor, Tensor, Tensor, int]:
    """Target, source and weight of the stored entries, and the number of nodes."""
    if not hasattr(matrix, "tocoo"):
        raise TypeError(f"matrix must be a SciPy sparse matrix, got {type(matrix).__name__}")
    num_nodes = check_square(tuple(matrix.shape))
    entries = matrix.tocoo()
    target, source = (
        torch.from_numpy(np.asarray(index, dtype=np.int64).copy()) for index in (entries.row, entries.col)
    )
    return target, source, check_weights("matrix", np.asarray(entries.data).copy()), num_nodes


def edges_of_networkx(graph: "networkx.Graph", weight: str) -> tuple[Tensor, Tensor, int]:
    """Edge list, weights and number of nodes; an undirected edge goes both ways."""
    if not hasattr(graph, "is_directed") or not hasattr(graph, "nodes"):
        raise TypeError(f"graph must be a NetworkX graph, got {type(graph).__name__}")
    number = {node: position for position, node in enumerate(graph.nodes)}
    if not number:
        raise ValueError("graph must have at least one node, got an empty NetworkX graph")
    sources, targets, weights = [], [], []
    for u, v, w in graph.edges(data=weight, default=1.0):
        ends = [(u, v)] if graph.is_directed() or u == v else [(u, v), (v, u)]
        for a, b in ends:
            sources.append(number[a])
            targets.append(number[b])
            weights.append(number_of(w, u, v))
    edge_index = torch.tensor([sources, targets], dtype=torch.int64)
    return edge_index, torch.tensor(weights, dtype=torch.get_default_dtype()), len(number)


def number_of(weight: Any, u: Any, v: Any) -> float:
    """The weight of an edge of a NetworkX graph."""
    try:
        return float(weight)
    except (TypeError, ValueError) as error:
        raise TypeError(f"graph must have numbers as weights, got {weight!r} on the edge ({u!r}, {v!r})") from error


def edges_of_pyg(data: Any) -> tuple[Tensor, Tensor | None, int]:
    """Edge list, weights (edge_weight, or an edge_attr of one real number an edge) and number of nodes."""
    edge_index = getattr(data, "edge_index", None)
    if edge_index is None:
        raise TypeError(f"data must be a PyG Data object with an edge_index, got {type(data).__name__}")
    weight = getattr(data, "edge_weight", None)
    if weight is None:
        attribute = getattr(data, "edge_attr", None)
        if attribute is not None and attribute.is_floating_point() and attribute.numel() == edge_index.size(1):
            weight = attribute.flatten()
    return edge_index, weight, data.num_nodes
