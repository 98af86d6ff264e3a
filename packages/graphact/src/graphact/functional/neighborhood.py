"""Functions of the values of each node's neighbours: the shift, any other function, and both in one pass."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from graphact._checks import check_companion, check_positive
from graphact.functional.segments import evaluate_segments, has_segments
from graphact.graph import Graph, Neighborhoods
from graphact.graph.graph import HopPattern, check_signal
from graphact.graph.protocol import GraphLike, NeighborLists
from graphact.kernels import autograd
from graphact.kernels.reference import FUNCTIONS, gather_nodes
from graphact.spec.reductions import MEAN, STD, Operation, as_operation

NeighborhoodFunction = Callable[[Tensor], Tensor] | Callable[[Tensor, Tensor], Tensor]
AnyOperation = Literal["max", "min", "median", "kernel"] | str | Operation | NeighborhoodFunction
Parameters = Mapping[str, float | Tensor]
Functions = Sequence[tuple[Operation, Parameters]]


def shift(x: Tensor, graph: GraphLike) -> Tensor:
    r"""Apply the shift operator: each node sums the weighted values of its in-neighbours.

    .. math:: [Sx]_i = \sum_j S_{ij} x_j

    Args:
        x: signal.
        graph: the graph, with its diagonal.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Raises:
        TypeError: x or graph is of the wrong type, or x of another dtype than the graph.
        ValueError: the node dimension or the device of x does not fit the graph.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> graphact.functional.shift(torch.tensor([[1.0], [2.0], [4.0]]), path).squeeze()
        tensor([2., 5., 2.])
    """
    x = check_signal(x, graph)
    return graph.one_hop(x, shift_pass)[0]


def neighborhood_max(x: Tensor, graph: GraphLike, *, closed: bool = False) -> Tensor:
    r"""The largest value among each node's neighbours: :math:`\max\{x_j : j \in \mathcal{N}_i\}`.

    Args:
        x: signal.
        graph: the graph.
        closed: count the node itself among its neighbours.

    The result is 0 at a node without neighbours, and NaN where a neighbour is NaN. The gradient goes to the neighbour
    that attains the maximum, the one with the lowest index among ties.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> graphact.functional.neighborhood_max(x, path).squeeze()
        tensor([2., 4., 2.])
        >>> graphact.functional.neighborhood_max(x, path, closed=True).squeeze()
        tensor([2., 4., 4.])
    """
    return neighborhood(x, graph, "max", closed=closed)


def neighborhood_min(x: Tensor, graph: GraphLike, *, closed: bool = False) -> Tensor:
    r"""The smallest value among each node's neighbours; otherwise as :func:`neighborhood_max`."""
    return neighborhood(x, graph, "min", closed=closed)


def neighborhood_median(x: Tensor, graph: GraphLike, *, closed: bool = False) -> Tensor:
    r"""The lower median of the values of each node's neighbours; otherwise as :func:`neighborhood_max`.

    Of an even number of values, the lower of the two in the middle is taken, as :func:`torch.median` does.

    Example:
        >>> import torch, graphact
        >>> star = graphact.Graph.from_edge_index([[1, 2, 3, 4], [0, 0, 0, 0]])
        >>> x = torch.tensor([[9.0], [4.0], [1.0], [3.0], [2.0]])
        >>> graphact.functional.neighborhood_median(x, star).squeeze()
        tensor([2., 0., 0., 0., 0.])
    """
    return neighborhood(x, graph, "median", closed=closed)


def neighborhood_kernel(x: Tensor, graph: GraphLike, gamma: float | Tensor = 0.1, *, closed: bool = False) -> Tensor:
    r"""Gaussian kernel of the differences to each node's neighbours, equation (11) of the paper.

    .. math:: g_i = \exp\Big(-\sum_{j \in \mathcal{N}_i} (x_i - x_j)^2 / (2 \gamma^2)\Big)

    for each sample and feature. The result is 1 at a node without neighbours. ``closed`` has no effect, as a node does
    not differ from itself; it is accepted so that all neighbourhood functions are called alike.

    Args:
        x: signal.
        graph: the graph.
        gamma: width of the Gaussian, above 0: a number, or a tensor with one element through which gradients flow.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> pair = graphact.Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=3)
        >>> x = torch.tensor([[1.0], [2.0], [5.0]])
        >>> graphact.functional.neighborhood_kernel(x, pair, gamma=1.0).squeeze()
        tensor([0.6065, 0.6065, 1.0000])
    """
    return neighborhood(x, graph, "kernel", gamma=gamma, closed=closed)


def neighborhood_apply(x: Tensor, graph: GraphLike, function: NeighborhoodFunction, *, closed: bool = False) -> Tensor:
    r"""Apply your own function to every neighbourhood.

    Args:
        x: signal.
        graph: the graph.
        function: ``function(neighbors)`` or ``function(own, neighbors)``. It is called once for each distinct number d
            of neighbours with ``neighbors`` of shape ``(..., n, d, F)``, the values of n nodes' neighbours in ascending
            order of their indices, and ``own`` of shape ``(..., n, 1, F)``; it returns ``(..., n, F)``.
        closed: count the node itself among its neighbours.

    The function is not called for nodes without neighbours; the result is 0 there.

    Raises:
        TypeError: function is not callable with one or two arguments.
        ValueError: function returns another shape.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> graphact.functional.neighborhood_apply(x, path, lambda neighbors: neighbors.mean(-2)).squeeze()
        tensor([2.0000, 2.5000, 2.0000])
        >>> contrast = lambda own, neighbors: (own - neighbors).abs().amax(-2)
        >>> graphact.functional.neighborhood_apply(x, path, contrast).squeeze()
        tensor([1., 2., 2.])
    """
    if not callable(function):
        raise TypeError(f"function must be callable, got {function!r}")
    return neighborhood(x, graph, function, closed=closed)


def neighborhood(
    x: Tensor, graph: GraphLike, op: AnyOperation, *, gamma: float | Tensor = 0.1, closed: bool = False
) -> Tensor:
    """Evaluate ``op``, by name or as a function, over the one-hop neighbourhood of every node."""
    x, (op, parameters) = check_signal(x, graph), check_operation(op, gamma)
    return graph.one_hop(x, neighborhood_pass, op, parameters, closed)[0]


def check_operation(
    op: AnyOperation, gamma: float | Tensor, parameters: Parameters | None = None
) -> tuple[Operation, Parameters]:
    """Return the operation and its parameters; raise unless they are those that it has, numbers above 0 or tensors."""
    op = op if isinstance(op, Operation) else as_operation(op)
    if parameters is None:
        return op, {**op.parameters, "gamma": gamma} if "gamma" in op.parameters else op.parameters
    if parameters.keys() != op.parameters.keys():
        names = [", ".join(names) or "none" for names in (op.parameters, parameters)]
        raise TypeError(f"parameters must hold those of the operation {op.name!r}, {names[0]}, got {names[1]}")
    for name, value in parameters.items():
        if not (isinstance(value, Tensor) or is_positive(value)):
            check_positive(name, value)
    return op, parameters


def is_positive(value: Any) -> bool:
    """Return true for a finite float above 0: a test that takes less time than a call on a small graph allows."""
    return isinstance(value, float) and 0 < value < math.inf


# Passes over the neighbours of a local graph, as GraphLike.one_hop applies them; x and op are checked


def shift_pass(x: Tensor, graph: Graph) -> tuple[Tensor]:
    """``(S x,)``."""
    return (autograd.apply_operator(x, graph),)


def neighborhood_pass(x: Tensor, graph: Graph, op: Operation, parameters: Parameters, closed: bool) -> tuple[Tensor]:
    """``(f(x),)``."""
    return (evaluate(x, graph, op, parameters, closed),)


def functions_pass(x: Tensor, graph: Graph, functions: Functions, closed: bool, shifting: bool) -> tuple[Tensor, ...]:
    """``(f_1(x), ..., f_M(x), S x)``, with x in the place of S x without shifting.

    One fused pass gives the shift and the functions that kernels know, see :func:`is_fused`.
    """
    fused = [op.name for op, _ in functions if is_fused(op)]
    found = autograd.neighborhood_functions(x, graph, fused, shifting, closed)
    following, values = (found[0], iter(found[1:])) if shifting else (x, iter(found))
    results = []
    for op, parameters in functions:
        value = next(values) if is_fused(op) else evaluate(x, graph, op, parameters, closed)
        results.append(gaussian(value, parameters["gamma"], x) if is_fused(op) and op.name == "kernel" else value)
    return *results, following


def is_fused(op: Operation) -> bool:
    """Return whether one pass over the neighbours evaluates an operation beside others."""
    return op.name in FUNCTIONS and (op.is_built_in or op in (MEAN, STD))


def evaluate(x: Tensor, lists: NeighborLists, op: Operation, parameters: Parameters, closed: bool = False) -> Tensor:
    """Evaluate ``op`` over neighbour lists of one or several hops; other kinds of lists may evaluate it themselves."""
    if hasattr(lists, "evaluate"):
        return lists.evaluate(x, op, parameters, closed)
    if not op.is_built_in:
        by_edges = evaluate_segments if has_segments(op, x) else evaluate_function
        return by_edges(x, lists.incoming, op, parameters, closed)
    if op.name == "kernel":
        if isinstance(lists, HopPattern) and lists.hops == 1:  # a node does not differ from itself, even if infinite
            lists = lists.graph
        return evaluate_kernel(x, lists.incoming, lists.outgoing, parameters["gamma"])
    return autograd.select(x, None, lists.incoming, op.name, closed)[0]


def evaluate_kernel(x: Tensor, incoming: Neighborhoods, outgoing: Neighborhoods, gamma: float | Tensor) -> Tensor:
    """Evaluate the Gaussian kernel over neighbour lists."""
    return gaussian(autograd.sum_sq_diff(x, incoming, outgoing), gamma, x)


def gaussian(spread: Tensor, gamma: float | Tensor, x: Tensor) -> Tensor:
    """Return the kernel from the sum of squared differences of a signal ``x``."""
    gamma = check_gamma(gamma, x)
    if isinstance(gamma, Tensor):
        gamma = gamma.to(spread.dtype)
    return torch.exp(spread * (-0.5 / gamma**2)).to(x.dtype)


def check_gamma(gamma: float | Tensor, x: Tensor) -> float | Tensor:
    """Return the width of a Gaussian as a number above 0, or as a scalar tensor that fits ``x``."""
    if isinstance(gamma, Tensor):
        if gamma.numel() != 1:
            raise ValueError(f"gamma must have one element, got the shape {tuple(gamma.shape)}")
        check_companion("gamma", gamma, x)
        return gamma.reshape(())
    return gamma if is_positive(gamma) else check_positive("gamma", gamma)


def evaluate_function(
    x: Tensor, neighborhoods: Neighborhoods, op: Operation, parameters: Parameters, closed: bool
) -> Tensor:
    """Evaluate a user's operation over neighbour lists."""
    parts = []
    for nodes, table in neighborhoods.tables():
        own = gather_nodes(x, nodes)
        members = torch.cat([nodes.unsqueeze(-1), table], dim=-1).sort(-1).values if closed else table
        neighbors = gather_nodes(x, members)
        value = op(own.unsqueeze(-2), neighbors, parameters)
        if not isinstance(value, Tensor) or value.shape != own.shape:
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"op must map neighbors {tuple(neighbors.shape)} to one value a node and feature, "
                f"{tuple(own.shape)}, got {came}"
            )
        parts.append(value)
    return torch.cat(parts, dim=-2).index_select(-2, neighborhoods.rank)
