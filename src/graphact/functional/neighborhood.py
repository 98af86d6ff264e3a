"""Nonlinear functions of a node's neighbourhood."""

import inspect
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from graphact._checks import check_companion, check_positive
from graphact.graph import Neighborhoods
from graphact.graph.divided import AnyGraph, DividedGraph
from graphact.graph.graph import check_graph, check_signal
from graphact.kernels import autograd
from graphact.kernels.reference import gather_nodes

NeighborhoodFunction = Callable[[Tensor], Tensor] | Callable[[Tensor, Tensor], Tensor]
Operation = Literal["max", "min", "median", "kernel"] | NeighborhoodFunction
NAMED_OPERATIONS = ("max", "min", "median", "kernel")


def neighborhood_max(x: Tensor, graph: AnyGraph, *, closed: bool = False) -> Tensor:
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


def neighborhood_min(x: Tensor, graph: AnyGraph, *, closed: bool = False) -> Tensor:
    r"""The smallest value among each node's neighbours; otherwise as :func:`neighborhood_max`."""
    return neighborhood(x, graph, "min", closed=closed)


def neighborhood_median(x: Tensor, graph: AnyGraph, *, closed: bool = False) -> Tensor:
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


def neighborhood_kernel(x: Tensor, graph: AnyGraph, gamma: float | Tensor = 0.1, *, closed: bool = False) -> Tensor:
    r"""How much each node agrees with its neighbours, equation (11) of the paper.

    .. math:: g_i = \exp\Big(-\sum_{j \in \mathcal{N}_i} (x_i - x_j)^2 / (2 \gamma^2)\Big)

    for each sample and each feature on its own. A node without neighbours agrees perfectly: 1. A node does not differ
    from itself, so ``closed`` changes nothing; it is accepted so that all neighbourhood functions are called alike.

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


def neighborhood_apply(x: Tensor, graph: AnyGraph, function: NeighborhoodFunction, *, closed: bool = False) -> Tensor:
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


def check_operation(op: Operation) -> Operation:
    """Return ``op`` if it is a known name or a function of one or two arguments."""
    if callable(op):
        _takes_own_value(op)
    elif op not in NAMED_OPERATIONS:
        listed = ", ".join(repr(name) for name in NAMED_OPERATIONS)
        raise ValueError(f"op must be one of {listed}, or a function, got {op!r}")
    return op


def neighborhood(
    x: Tensor, graph: AnyGraph, op: Operation, *, gamma: float | Tensor = 0.1, closed: bool = False
) -> Tensor:
    """Evaluate ``op``, by name or as a function, over the one-hop neighbourhood of every node."""
    if isinstance(graph, DividedGraph):
        return graph.hop(x, lambda y, piece: (neighborhood(y, piece, op, gamma=gamma, closed=closed),))[0]
    graph = check_graph("graph", graph)
    x = check_signal(x, graph)
    op = check_operation(op)
    if op == "kernel":
        return evaluate_kernel(x, graph.incoming, graph.outgoing, gamma)
    if callable(op):
        return evaluate_function(x, graph.incoming, op, closed)
    return autograd.select(x, None, graph.incoming, op, closed)[0]


def evaluate_kernel(x: Tensor, incoming: Neighborhoods, outgoing: Neighborhoods, gamma: float | Tensor) -> Tensor:
    """The Gaussian kernel over given neighbour lists."""
    return gaussian(autograd.sum_sq_diff(x, incoming, outgoing), gamma, x)


def gaussian(spread: Tensor, gamma: float | Tensor, x: Tensor) -> Tensor:
    """The kernel from the sum of squared distances of a signal ``x`` and its width."""
    if isinstance(gamma, Tensor):
        if gamma.numel() != 1:
            raise ValueError(f"gamma must have one element, got the shape {tuple(gamma.shape)}")
        check_companion("gamma", gamma, x)
        gamma = gamma.reshape(()).to(spread.dtype)
    else:
        gamma = check_positive("gamma", gamma)
    return torch.exp(spread * (-0.5 / gamma**2)).to(x.dtype)


def evaluate_function(x: Tensor, neighborhoods: Neighborhoods, function: NeighborhoodFunction, closed: bool) -> Tensor:
    """A user's function over given neighbour lists."""
    takes_own = _takes_own_value(function)
    parts = []
    for nodes, table in neighborhoods.tables():
        own = gather_nodes(x, nodes)
        members = torch.cat([nodes.unsqueeze(-1), table], dim=-1).sort(-1).values if closed else table
        if members.size(-1) == 0:
            parts.append(torch.zeros_like(own))
            continue
        neighbors = gather_nodes(x, members)
        value = function(own.unsqueeze(-2), neighbors) if takes_own else function(neighbors)  # type: ignore[call-arg]
        if not isinstance(value, Tensor) or value.shape != own.shape:
            came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"op must map neighbors {tuple(neighbors.shape)} to one value a node and feature, "
                f"{tuple(own.shape)}, got {came}"
            )
        parts.append(value)
    return torch.cat(parts, dim=-2).index_select(-2, neighborhoods.rank)


def _takes_own_value(function: NeighborhoodFunction) -> bool:
    """Whether the function wants (own, neighbors) rather than (neighbors); built-in functions want the latter."""
    try:
        parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except ValueError:
        return False
    takes = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in takes if p.default is p.empty]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if len(required) > 2 or not (takes or takes_any):
        raise TypeError(
            f"op must be a function of (neighbors) or of (own, neighbors), got {len(required)} required arguments"
        )
    return len(required) == 2
