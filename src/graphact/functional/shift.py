"""The graph shift."""

from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph.divided import AnyGraph, DividedGraph
from graphact.graph.graph import check_graph, check_signal
from graphact.kernels import autograd


def shift(x: Tensor, graph: AnyGraph) -> Tensor:
    r"""Let every node combine the values of the nodes it hears, once.

    .. math:: [Sx]_i = \sum_j S_{ij} x_j

    Args:
        x: signal.
        graph: the graph; its diagonal takes part.

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
    if isinstance(graph, DividedGraph):
        return graph.hop(x, lambda y, piece: (shift(y, piece),))[0]
    graph = check_graph("graph", graph)
    x = check_signal(x, graph)
    if graph.diagonal is None:
        return autograd.shift(x, graph)
    wide = x.float() if x.dtype in HALF_PRECISION else x
    return (autograd.shift(wide, graph) + graph.diagonal.to(wide.dtype).unsqueeze(-1) * wide).to(x.dtype)
