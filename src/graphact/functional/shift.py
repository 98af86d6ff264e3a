"""The graph shift."""

from torch import Tensor

from graphact._checks import check_companion
from graphact.graph.graph import Graph, check_graph, check_signal
from graphact.kernels import gradients


def shift(x: Tensor, graph: Graph) -> Tensor:
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
    graph = check_graph("graph", graph)
    x = check_signal(x, graph)
    shifted = gradients.shift(x, graph)
    if graph.diagonal is None:
        return shifted
    return shifted + check_companion("diagonal", graph.diagonal, x).unsqueeze(-1) * x
