"""Advice for error messages: the constructor that builds a graph from a given value."""

import os
from typing import Any

import numpy as np
from torch import Tensor, strided


def kind_of(value: Any) -> str:
    """Return the name of a value's type, with its package: ``networkx.Graph`` is not our ``Graph``."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    name = kind.__name__ if package in ("builtins", "torch") else f"{package}.{kind.__name__}"
    return f"{name} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else name


def how_to_build(value: Any) -> str:
    """Return the end of a message: code that builds a graph from ``value``, or nothing if no constructor accepts it.

    Example:
        >>> import torch
        >>> how_to_build(torch.ones(3, 3))
        ': write graphact.Graph.from_dense(matrix)'
        >>> how_to_build(3)
        ''
    """
    call = constructor_call(value)
    return f": write graphact.Graph.{call}" if call else ""


def constructor_call(value: Any) -> str:
    """Return the call of the constructor of :class:`graphact.Graph` that accepts a value, or nothing."""
    if is_networkx(value):
        return "from_networkx(graph)"
    if hasattr(value, "tocoo"):
        return "from_scipy(matrix)"
    if hasattr(value, "sparse_sizes") or (isinstance(value, Tensor) and value.layout != strided):
        return "from_sparse(matrix)"
    if getattr(value, "edge_index", None) is not None or getattr(value, "adj_t", None) is not None:
        return "from_pyg(data)"
    if isinstance(value, str | os.PathLike):
        return "load(path)"
    if isinstance(value, tuple) and len(value) == 2 and len(shape_of(value[0])) == 2:
        return "from_edge_index(edge_index, edge_weight)"
    shape = shape_of(value)
    if len(shape) != 2:
        return ""
    if shape[0] == shape[1] and (shape[0] != 2 or not is_integer(value)):
        return "from_dense(matrix)"
    if not is_integer(value):
        return ""
    if shape[0] == 2:
        return "from_edge_index(edge_index)"
    return "from_edge_index(torch.as_tensor(edges).T)" if shape[1] == 2 else ""


def is_networkx(value: Any) -> bool:
    """Return true for a NetworkX graph, without importing NetworkX."""
    return hasattr(value, "is_directed") and hasattr(value, "adjacency") and hasattr(value, "number_of_nodes")


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor, an array or a nested list; empty if it has none."""
    if not isinstance(value, Tensor | np.ndarray | list | tuple):
        return ()
    try:
        return tuple(np.shape(value)) if isinstance(value, list | tuple) else tuple(value.shape)
    except (TypeError, ValueError):  # lists of different lengths
        return ()


def is_integer(value: Any) -> bool:
    """Return true if a tensor, an array or a nested list holds integers."""
    if isinstance(value, Tensor):
        return not (value.is_floating_point() or value.is_complex())
    return np.asarray(value).dtype.kind in "iu"
