"""Graphs of many teams at many instants at once, from adjacency masks."""

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.training.stacked import StackedGraphs


def lost_links(adjacency: Tensor, probability: float | Tensor, generator: torch.Generator) -> Tensor:
    """Those of the links ``(..., N, N)`` that are not lost; a link is lost for both of its ends."""
    drawn = torch.rand(adjacency.shape, generator=generator, device=adjacency.device).triu(1)
    return adjacency & (drawn + drawn.transpose(-1, -2) >= probability)


def graph_of(adjacency: Tensor, *, delayed: bool = False, dtype: torch.dtype = torch.float32) -> Graph:
    r"""One graph of all teams side by side, with the shift that divides by an agent's own number of neighbours.

    .. math:: [Sx]_i = \frac{1}{|\mathcal{N}_i|} \sum_{j \in \mathcal{N}_i} x_j

    Args:
        adjacency: ``(G, N, N)``, True where agent i receives from j; or ``(Q, T, N, N)``, at T consecutive steps.
        delayed: a message takes a step: agent i at step t receives what its neighbours of step t had at step t - 1, and
            nothing at the first one. On this graph, filters and activations over k hops read what is k steps old, as
            the information structure of the papers has it.
        dtype: of the weights.

    Example:
        >>> adjacency = torch.tensor([[[False, True], [True, False]]] * 2)
        >>> graph_of(adjacency).to_dense()
        tensor([[0., 1., 0., 0.],
                [1., 0., 0., 0.],
                [0., 0., 0., 1.],
                [0., 0., 1., 0.]])
        >>> graph_of(adjacency.unsqueeze(0), delayed=True).to_dense()[2:]
        tensor([[0., 1., 0., 0.],
                [1., 0., 0., 0.]])
    """
    agents = adjacency.size(-1)
    if delayed:
        adjacency = torch.cat([torch.zeros_like(adjacency[:, :1]), adjacency[:, 1:]], 1)
    rows = adjacency.reshape(-1, agents)
    row, place = rows.nonzero().unbind(1)
    source = row - row % agents + place - (agents if delayed else 0)
    share = 1 / rows.sum(-1).to(dtype)  # unused for agents without neighbours
    return Graph.from_edge_index(torch.stack([source, row]), share.index_select(0, row), num_nodes=len(rows))


class TeamGraphs(StackedGraphs):
    """The graphs of R policies, each with equally many rows of one graph."""

    dense = None
    spectra = None
    union: Graph = None  # type: ignore[assignment]

    def __init__(self, union: Graph, replicas: int) -> None:
        self.union, self.num_nodes = union, union.num_nodes // replicas
