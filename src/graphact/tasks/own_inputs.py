"""Inputs that nodes make of their signal themselves, before a network sees it: each with a few one-hop exchanges."""

import torch
from torch import Tensor

from graphact import functional
from graphact._checks import check_integer
from graphact.graph import Graph

CENTRALITY_STEPS = 10


def local_contrast(inputs: Tensor, graph: Graph) -> Tensor:
    r"""How much a signal differs from its shift, relative to the largest such difference nearby.

    .. math:: d = x - S x, \qquad y_i = d_i / \max_{j \in N_i \cup \{i\}} |d_j|

    A signal that has been shifted often is nearly an eigenvector of S with eigenvalue 1, and what tells its origin is
    tiny beside it. The difference removes the large part, the division brings what is left to the size of 1, wherever
    the signal stands. It takes two exchanges. Where all differences vanish, the result is 0.

    Args:
        inputs: ``(M, N, F)``.
        graph: the shift operator S, of spectral norm 1.

    Example:
        >>> import torch
        >>> from graphact import Graph
        >>> pair = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
        >>> local_contrast(torch.tensor([[[3.0], [1.0]]]), pair)
        tensor([[[ 1.],
                 [-1.]]])
    """
    exact, signal = graph.to(dtype=torch.float64), inputs.double()
    difference = signal - functional.shift(signal, exact)
    size = functional.neighborhood_max(difference.abs(), exact, closed=True)
    return torch.where(size > 0, difference / size, 0.0).to(inputs.dtype)


def by_centrality(inputs: Tensor, graph: Graph, steps: int = CENTRALITY_STEPS) -> Tensor:
    r"""A signal divided by how much each node counts in its shifts: :math:`y = x / S^k \mathbf{1}`.

    Shifts of a signal tend to the leading eigenvector of S, and their size to a sum in which each node has the weight
    of its entry in that eigenvector. Divided by it beforehand, all nodes count alike. The weights take ``steps``
    exchanges, once for a graph; with one step they are the nodes' degrees.

    A node that hears nobody has no weight and gives 0.

    Args:
        inputs: ``(M, N, F)``.
        graph: the shift operator S, with nonnegative weights.
        steps: k.

    Raises:
        ValueError: the graph has negative weights.

    Example:
        >>> import torch
        >>> from graphact import Graph
        >>> line = Graph.from_edge_index(torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> by_centrality(torch.tensor([[[3.0], [4.0], [5.0]]]), line, steps=1).flatten()
        tensor([3., 2., 5.])
    """
    if bool((graph.weight < 0).any()):
        raise ValueError(f"graph must have nonnegative weights, got one of {graph.weight.min().item():g}")
    exact = graph.to(dtype=torch.float64)
    weight = torch.ones(graph.num_nodes, 1, dtype=torch.float64, device=inputs.device)
    for _ in range(check_integer("steps", steps, minimum=1)):
        weight = functional.shift(weight, exact)
    return torch.where(weight > 0, inputs.double() / weight, 0.0).to(inputs.dtype)
