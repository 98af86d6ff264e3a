"""What can happen to a graph, noise on its weights or lost links, and the errors that come from it, by their source.

An error is a tensor ``(C, B, N, F)``. What C sources do together is at most the sum of what each does, so errors are
carried through a network source by source, and only then added up: over the links that together do the most.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from graphact._checks import check_integer, check_positive
from graphact.graph import Graph


@dataclass(frozen=True, eq=False)
class ErrorSources(ABC):
    """What can happen to a graph, taken apart into C sources.

    Attributes:
        magnitudes: the absolute values of S, ``(N, N)``.
        count: the number C.
        most: how many of them act at once.
        losing: which source takes a neighbour from which node, ``(C, N)``; None if none does.
    """

    magnitudes: Tensor
    count: int
    most: int
    losing: Tensor | None

    def total(self, errors: Tensor) -> Tensor:
        """What sources can do together, ``(C, B, N, F)`` to ``(B, N, F)``: those that do most."""
        return errors.topk(min(self.most, self.count), dim=0).values.sum(0)

    @abstractmethod
    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """What a perturbed shift adds: S' times the rest so far ``(C, B, N, F)``, and S' - S times the values."""


@dataclass(frozen=True, eq=False)
class NoiseSource(ErrorSources):
    """One source: E with rows of at most ``norm``, where S has ``entries``."""

    entries: Tensor
    norm: float

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """A row of E can put all of its norm on the entry that matters most."""
        reached = torch.where(self.entries.unsqueeze(-1), (rest[0] + values).unsqueeze(-3), 0.0).amax(-2)
        return self.magnitudes @ rest + self.norm * reached


@dataclass(frozen=True, eq=False)
class LinkSources(ErrorSources):
    """One source for each of the ``links`` ``(2, C)``."""

    links: Tensor

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """Each end of a link misses what the other sent; all other entries can only shrink to 0."""
        result = self.magnitudes @ rest
        source = torch.arange(self.count)
        for here, there in (self.links, self.links.flip(0)):
            missed = self.magnitudes[here, there, None] * values[:, there]
            result[source, :, here] += missed.transpose(0, 1)
        return result


def entries_of(graph: Graph) -> Tensor:
    """Where S has entries, ``(N, N)``."""
    (source, target), _ = graph.to_edge_index()
    entries = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
    entries[target, source] = True
    return entries


@dataclass(frozen=True)
class EdgeNoise:
    r"""S becomes S + E with :math:`\|E\|_\infty \le` norm, where E has entries only where S has (edges stay edges).

    Attributes:
        norm: the largest sum of changes in a row of S.
    """

    norm: float

    def __post_init__(self) -> None:
        check_positive("norm", self.norm)

    def error_sources(self, graph: Graph) -> ErrorSources:
        """The noise as a whole."""
        return NoiseSource(graph.to_dense().abs(), 1, 1, None, entries_of(graph), self.norm)

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

    def error_sources(self, graph: Graph) -> ErrorSources:
        """Every link on its own: a pair of nodes of which at least one reads the other, the lower number first."""
        entries = entries_of(graph)
        links = (entries | entries.T).triu(1).nonzero().T
        count = links.size(1)
        ends = torch.zeros(count, graph.num_nodes, dtype=torch.bool).scatter(1, links.T, True)
        return LinkSources(graph.to_dense().abs(), count, self.count, ends, links)

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
