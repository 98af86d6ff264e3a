"""Graphs of many teams at many instants at once, straight from adjacency masks: no edge is sorted."""

import torch
import torch.nn.functional as F
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.training.stacked import StackedGraphs


def lost_links(adjacency: Tensor, probability: float | Tensor, generator: torch.Generator) -> Tensor:
    """Those of the links ``(..., N, N)`` that are not lost; a link is lost for both of its ends."""
    drawn = torch.rand(adjacency.shape, generator=generator, device=adjacency.device).triu(1)
    return adjacency & (drawn + drawn.transpose(-1, -2) >= probability)


def graph_of(
    adjacency: Tensor, *, delayed: bool = False, mutual: bool = False, dtype: torch.dtype = torch.float32
) -> Graph:
    r"""One graph of all teams side by side, with the shift that divides by an agent's own number of neighbours.

    .. math:: [Sx]_i = \frac{1}{|\mathcal{N}_i|} \sum_{j \in \mathcal{N}_i} x_j

    Args:
        adjacency: ``(G, N, N)``, True where agent i receives from j; or ``(Q, T, N, N)``, at T consecutive steps.
        delayed: a message takes a step: agent i at step t receives what its neighbours of step t had at step t - 1, and
            nothing at the first one. On this graph, filters and activations over k hops read what is k steps old, as
            the information structure of the papers has it.
        mutual: whether the adjacency is known to be symmetric, which saves work.
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
        leaving = torch.cat([adjacency[:, 1:], torch.zeros_like(adjacency[:, :1])], 1).transpose(-1, -2)
    else:
        leaving = adjacency.transpose(-1, -2)
    adjacency, leaving = adjacency.reshape(-1, agents, agents), leaving.reshape(-1, agents, agents)
    offset = agents if delayed else 0
    share = 1 / adjacency.sum(-1).flatten().to(dtype)  # unused for agents without neighbours
    incoming, rows = _lists(adjacency, -offset)
    outgoing, back = (incoming, rows) if mutual and not delayed else _lists(leaving, offset)
    slot = adjacency.cumsum(-1, dtype=torch.int32).flatten().index_select(0, outgoing.col * agents + back % agents) - 1
    return Graph(
        incoming=incoming,
        outgoing=outgoing,
        weight=share.index_select(0, rows),
        outgoing_weight=share.index_select(0, outgoing.col),
        diagonal=None,
        is_directed=True,
        incoming_slot=slot,
    )


def _lists(pattern: Tensor, offset: int) -> tuple[Neighborhoods, Tensor]:
    """The lists of a pattern ``(G, N, N)`` whose columns lie so many nodes further, and the row of each entry."""
    agents = pattern.size(-1)
    places = pattern.flatten().nonzero().squeeze(1)
    row = places // agents
    degree = pattern.sum(-1).flatten()
    counts = torch.bincount(degree, minlength=agents).cpu()
    present = counts.nonzero().squeeze(1)
    lists = Neighborhoods.from_sizes(
        F.pad(degree.cumsum(0), (1, 0)),
        row - row % agents + places % agents + offset,
        torch.sort(degree, stable=True).indices,
        torch.stack([present, counts[present]], 1),
    )
    return lists, row


class TeamGraphs(StackedGraphs):
    """The graphs of R policies, each with equally many rows of one graph."""

    dense = None
    spectra = None
    union: Graph = None  # type: ignore[assignment]

    def __init__(self, union: Graph, replicas: int) -> None:
        self.union, self.num_nodes = union, union.num_nodes // replicas
