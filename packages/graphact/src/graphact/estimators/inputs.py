"""Conversion of features and graphs from the forms of many libraries to arrays, tensors and graphs."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from graphact.graph import Graph
from graphact.graph.advice import is_networkx
from graphact.graph.normalize import Normalization

Array = NDArray[Any]
IMPUTE = "fill them in first, for example with sklearn.impute.SimpleImputer()"
LEAVE_OUT = "name the nodes whose target is known: nodes=..."


def as_array(value: Any) -> Array:
    """An array of what may be a tensor on any device; what is masked is missing."""
    if isinstance(value, np.ma.MaskedArray):
        kind, missing = (np.float64, np.nan) if value.dtype.kind in "biuf" else (object, None)
        return np.asarray(np.ma.filled(value.astype(kind), missing))
    if not isinstance(value, Tensor):
        return np.asarray(value)
    value = value.detach().cpu()
    array: Array = (value.float() if value.dtype == torch.bfloat16 else value).numpy()  # NumPy has no such numbers
    return array


def as_float32(name: str, value: Any, advice: str = IMPUTE) -> Array:
    """Finite numbers in the precision of the networks."""
    array = check_finite(name, as_array(value).astype(np.float64), advice)
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise ValueError(f"{name} must hold numbers of float32, got {array[~np.isfinite(narrow)][0]}")
    return narrow


def check_finite(name: str, values: Array, advice: str = IMPUTE) -> Array:
    """Return numbers if none of them is NaN or infinite; say where the first one stands, and what to do."""
    bad = ~np.isfinite(values)
    if bad.any():
        place = np.argwhere(bad)[0].tolist()
        found = "NaN" if np.isnan(values[tuple(place)]) else "infinity"
        where = ", ".join(f"{word} {number}" for word, number in zip(("row", "column"), place, strict=False))
        raise ValueError(f"{name} must hold finite numbers, got {found} in {where} ({bad.sum()} such values); {advice}")
    return values


def encode_classes(targets: Array) -> tuple[Array, Array]:
    """Return the classes among some targets, and the number of the class of each."""
    check_classification_targets(targets)
    classes, labels = np.unique(targets, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got one class: {classes}")
    return classes, labels


def score_of(estimator: Any, targets: Any, answers: Array, weight: Any = None) -> float:
    """Return the share of right classes of a classifier, or the coefficient of determination, R²."""
    from sklearn.metrics import accuracy_score, r2_score

    return float((accuracy_score if is_classifier(estimator) else r2_score)(targets, answers, sample_weight=weight))


def as_graph(graph: Any, normalize: Normalization | None = None) -> Any:
    """A graph or a tensor, of what may be a list, a matrix of SciPy or NumPy, or a graph of NetworkX or PyG."""
    if graph is None or hasattr(graph, "one_hop") or hasattr(graph, "sparse_sizes"):
        return graph
    if hasattr(graph, "tocoo"):
        return Graph.from_scipy(graph)
    if is_networkx(graph) or hasattr(graph, "edge_index"):
        built = Graph.from_networkx(graph) if is_networkx(graph) else Graph.from_pyg(graph)
        return built if normalize is None else built.normalize(normalize)
    array = graph if isinstance(graph, Tensor) else np.asarray(graph)
    if not isinstance(array, Tensor) and array.dtype.kind not in "biuf":
        raise TypeError(f"graph must be a Graph, an edge_index or a sparse matrix, got {type(graph).__name__}")
    tensor = array if isinstance(array, Tensor) else torch.tensor(array)
    is_matrix = tensor.layout == torch.strided and tensor.dim() == 2 and tensor.size(0) == tensor.size(1)
    is_matrix = is_matrix and (tensor.size(0) != 2 or tensor.is_floating_point())  # two edges, where these are numbers
    if tensor.layout == torch.strided and tensor.is_floating_point() and not is_matrix:
        raise TypeError(
            f"graph must be a square matrix or an edge_index of integers, got numbers of the shape "
            f"{tuple(tensor.shape)}; of places, graphact.Graph.nearest_neighbors(places, k=5) makes a graph"
        )
    return Graph.from_dense(tensor) if is_matrix else tensor


def check_nodes(graph: Any, count: int, item: str, advice: str = "") -> None:
    """Raise unless a graph has as many nodes as X has rows or columns; an edge_index may name fewer."""
    if graph is None:
        return
    is_list = isinstance(graph, Tensor) and graph.layout == torch.strided
    if is_list:
        nodes = int(graph.max()) + 1 if graph.numel() else 0
    elif isinstance(graph, Tensor):
        nodes = graph.size(0)
    else:
        nodes = graph.sparse_size(0) if hasattr(graph, "sparse_sizes") else graph.num_nodes
    if count < nodes or (count > nodes and not is_list):
        raise ValueError(f"X must have a {item} for each of the {nodes} nodes of graph, got {count}{advice}")


def edges_of(data: Any) -> tuple[Any, Tensor | None]:
    """The graph of PyG's ``Data``, or its edges with their weights; a plain signal has none."""
    if getattr(data, "graph", None) is not None:
        return data.graph, None
    if getattr(data, "edge_index", None) is not None:
        return data.edge_index, getattr(data, "edge_weight", None)
    return getattr(data, "adj_t", None), None


def is_one(graphs: Any) -> bool:
    """Return whether this is one graph for all samples rather than one for each."""
    is_matrix = hasattr(graphs, "sparse_sizes") or getattr(graphs, "ndim", None) == 2
    return hasattr(graphs, "one_hop") or is_networkx(graphs) or is_matrix
