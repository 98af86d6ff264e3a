"""What can happen to a graph: noise on its weights, or lost links."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphact._checks import check_integer, check_positive
from graphact.analysis.causes import Causes, EachLink, WholeNoise, entries_of, links_of
from graphact.graph import Graph


@dataclass(frozen=True)
class EdgeNoise:
    r"""S becomes S + E with :math:`\|E\|_\infty \le` norm, where E has entries only where S has (edges stay edges).

    Attributes:
        norm: the largest sum of changes in a row of S.
    """

    norm: float

    def __post_init__(self) -> None:
        check_positive("norm", self.norm)

    def causes(self, graph: Graph) -> Causes:
        """The noise as a whole."""
        return WholeNoise(graph.to_dense().abs(), entries_of(graph), self.norm)

    def draw(self, graph: Graph, generator: torch.Generator | None = None) -> Graph:
        """A random graph of this kind: each row's changes add up to the norm."""
        edge_index, weight = graph.to_edge_index()
        size = torch.rand(weight.shape, generator=generator, dtype=torch.float64).to(weight)
        sign = torch.where(torch.rand(weight.shape, generator=generator) < 0.5, -1.0, 1.0).to(weight)
        total = weight.new_zeros(graph.num_nodes).index_add(0, edge_index[1], size)
        change = self.norm * sign * size / total[edge_index[1]]
        return Graph.from_edge_index(edge_index, weight + change, graph.num_nodes)

    def attack(self, graph: Graph, gradient: Tensor) -> Graph:
        """The graph of this kind that a linear function of the weights rises most on; gradient as in to_edge_index."""
        edge_index, weight = graph.to_edge_index()
        rows = edge_index[1]
        strongest = weight.new_full((graph.num_nodes,), -1.0).scatter_reduce(0, rows, gradient.abs(), "amax")
        chosen = (gradient.abs() == strongest[edge_index[1]]) & (gradient != 0)
        shares = weight.new_zeros(graph.num_nodes).index_add(0, edge_index[1], chosen.to(weight))[edge_index[1]]
        change = torch.where(chosen, self.norm * gradient.sign() / shares.clamp_min(1), 0.0)
        return Graph.from_edge_index(edge_index, weight + change, graph.num_nodes)


@dataclass(frozen=True)
class LostLinks:
    """Any ``count`` links, or fewer, are lost, in both directions; the other weights and the diagonal stay.

    Attributes:
        count: how many.
    """

    count: int

    def __post_init__(self) -> None:
        check_integer("count", self.count, minimum=1)

    def causes(self, graph: Graph) -> Causes:
        """Every link on its own."""
        return EachLink(graph.to_dense().abs(), links_of(graph), self.count)

    def draw(self, graph: Graph, generator: torch.Generator | None = None) -> Graph:
        """A random graph of this kind: ``count`` links are lost."""
        scores = torch.rand(graph.num_edges, generator=generator, dtype=torch.float64)
        return self._without(graph, scores)

    def attack(self, graph: Graph, gradient: Tensor) -> Graph:
        """The links whose loss a linear function of the weights rises most with; gradient as in to_edge_index."""
        edge_index, weight = graph.to_edge_index()
        between = edge_index[0] != edge_index[1]
        return self._without(graph, -(gradient * weight)[between])

    def _without(self, graph: Graph, scores: Tensor) -> Graph:
        """The graph without the links that score highest; an edge in both directions is one link."""
        edge_index, weight = graph.to_edge_index()
        loops = edge_index[0] == edge_index[1]
        names = edge_index.amin(0) * graph.num_nodes + edge_index.amax(0)
        links, link = torch.unique(names[~loops], return_inverse=True)
        totals = torch.zeros(len(links), dtype=scores.dtype).index_add(0, link, scores)
        lost = totals.topk(min(self.count, len(links))).indices
        keep = loops | ~torch.isin(names, links[lost])
        return Graph.from_edge_index(edge_index[:, keep], weight[keep], graph.num_nodes)


Perturbation = EdgeNoise | LostLinks
