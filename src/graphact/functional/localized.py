"""The localized activations of Ruiz et al."""

from collections.abc import Iterable

from torch import Tensor

from graphact.functional.coefficients import check_coefficients, mix
from graphact.functional.neighborhood import (
    Operation,
    check_operation,
    evaluate_function,
    evaluate_kernel,
    neighborhood,
)
from graphact.graph.divided import AnyGraph, DividedGraph, check_on_any_graph
from graphact.graph.graph import Graph
from graphact.kernels import autograd


def localized(
    x: Tensor,
    graph: AnyGraph,
    beta: Tensor | float,
    weights: Tensor,
    op: Operation = "max",
    *,
    gamma: float | Tensor = 0.1,
    closed: bool = False,
) -> Tensor:
    r"""Localized activation of Ruiz et al., equation (6) of the paper.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{x_j : j \in \mathcal{N}_i^k\})

    The k-hop neighbours :math:`\mathcal{N}_i^k` are the pattern of the k-th power of the adjacency: the nodes that
    walks of exactly k edges lead to (for k = 2 usually the node itself, too). Edge weights play no part, and beyond
    one hop a node needs values of nodes it does not hear.

    Args:
        x: signal.
        graph: the graph.
        beta: weight of the pointwise term.
        weights: the weights h of the K hops, shared by all features or one for each.
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"``, or a function as :func:`neighborhood_apply` takes it.
        gamma: width of the Gaussian, for ``op="kernel"``.
        closed: let walks rest, so that the k-hop neighbours are all nodes within k hops.

    Shapes:
        x: ``(..., N, F)``; weights: ``(K,)`` or ``(K, F)``; result: ``(..., N, F)``.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, shape, dtype or device, or op is unknown.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0]])
        >>> graphact.functional.localized(x, path, beta=1.0, weights=torch.tensor([1.0, 10.0]), op="max").squeeze()
        tensor([ 39., -16.,  42.])
    """
    x, graph = check_on_any_graph(x, graph)
    op = check_operation(op)
    beta, weights = check_coefficients(beta, weights, x)
    return mix(x, list(_terms(x, graph, op, len(weights), gamma, closed)), beta, weights)


def _terms(
    x: Tensor, graph: AnyGraph, op: Operation, hops: int, gamma: float | Tensor, closed: bool
) -> Iterable[Tensor]:
    """The function over the neighbours of 1..hops hops."""
    if isinstance(graph, DividedGraph):
        return graph.reach(
            x, hops, closed, lambda y, *pieces: tuple(neighborhood(y, piece, op, gamma=gamma) for piece in pieces)
        )
    if op in ("max", "min"):
        return _extremes(x, graph, op, hops, closed)
    return (_over_pattern(x, graph, op, hop, gamma, closed) for hop in range(1, hops + 1))


def _extremes(x: Tensor, graph: Graph, op: Operation, hops: int, closed: bool) -> list[Tensor]:
    """Maxima (minima) over 1..hops hops: the one-hop maximum taken again and again.

    Who was chosen travels along, so that ties go to the lowest index, and a neighbour with nobody to listen to is left
    out rather than counted as zero.
    """
    assert isinstance(op, str)
    chosen, terms = None, []
    for _ in range(hops):
        values, chosen = autograd.select(x, chosen, graph.incoming, op, closed)
        terms.append(values)
    return terms


def _over_pattern(x: Tensor, graph: Graph, op: Operation, hops: int, gamma: float | Tensor, closed: bool) -> Tensor:
    """Any function over the explicit lists of k-hop neighbours."""
    pattern = graph.incoming if hops == 1 and not closed else graph.hop_pattern(hops, closed=closed)
    if op == "kernel":
        turned = graph.outgoing if pattern is graph.incoming else graph.hop_pattern(hops, closed=closed, turned=True)
        return evaluate_kernel(x, pattern, turned, gamma)
    if callable(op):
        return evaluate_function(x, pattern, op, closed=False)
    return autograd.select(x, None, pattern, op, False)[0]
