"""The paper's graph-adaptive activations."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from graphact.functional.coefficients import check_coefficients, mix
from graphact.functional.hop import hop
from graphact.functional.neighborhood import Operation, check_operation
from graphact.functional.shift import shift
from graphact.graph.divided import AnyGraph, DividedGraph, check_on_any_graph


def graph_adaptive(
    x: Tensor,
    graph: AnyGraph,
    beta: Tensor | float,
    weights: Tensor,
    op: Operation = "max",
    *,
    gamma: float | Tensor = 0.1,
    closed: bool = False,
) -> Tensor:
    r"""Graph-adaptive activation, definitions 3 and 6 of the paper.

    The signal is shifted k = 1..K times, a nonlinear function is taken over each node's neighbours, and the results
    are mixed:

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{[S^k x]_j : j \in \mathcal{N}_i\})

    Every term needs values of direct neighbours only.

    Args:
        x: signal.
        graph: the graph.
        beta: weight of the pointwise term.
        weights: the weights h of the K hops, shared by all features or one for each.
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"`` (see :func:`neighborhood_max` and its kin), or a function
            as :func:`neighborhood_apply` takes it.
        gamma: width of the Gaussian, for ``op="kernel"``.
        closed: count the node itself among its neighbours.

    Shapes:
        x: ``(..., N, F)``; weights: ``(K,)`` or ``(K, F)``; result: ``(..., N, F)``.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, shape, dtype or device, or op is unknown.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0]])
        >>> graphact.functional.graph_adaptive(x, path, beta=1.0, weights=torch.tensor([0.5]), op="max").squeeze()
        tensor([ 3.5000, -1.0000,  6.5000])
    """
    x, graph = check_on_any_graph(x, graph)
    op = check_operation(op)
    beta, weights = check_coefficients(beta, weights, x)
    return mix(x, list(_terms(x, graph, op, len(weights), gamma, closed)), beta, weights)


def _terms(
    x: Tensor, graph: AnyGraph, op: Operation, hops: int, gamma: float | Tensor, closed: bool
) -> Iterator[Tensor]:
    """The function of S x, ..., S^K x; one look at the neighbours of S^k x gives the next shift, too."""
    shifted = shift(x, graph)
    for number in range(1, hops + 1):
        look = partial(hop, op=op, gamma=gamma, closed=closed, shifting=number < hops)
        term, *following = graph.hop(shifted, look) if isinstance(graph, DividedGraph) else look(shifted, graph)
        yield term
        shifted = following[0] if following else shifted
