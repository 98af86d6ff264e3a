"""What can happen to a graph: noise on its weights, or lost links, and what either does to shifted values."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphact._checks import check_integer, check_positive
from graphact.graph import Graph


@dataclass(frozen=True, eq=False)
class ErrorSources:
    """What can happen to a graph, taken apart into C sources."""

    magnitudes: Tensor  # of S, (N, N)
    count: int  # the number C
    most: int  # how many of them act at once
    losing: Tensor | None  # which source takes a neighbour from which node, (C, N)
    added: Callable[[Tensor, Tensor], Tensor]  # what S' - S makes of the rest of earlier shifts, and of values
    widest: Graph  # with no entry smaller in magnitude than that of any S'
    changing: Tensor  # the nodes whose outputs can change at all, (N,)

    def total(self, errors: Tensor) -> Tensor:
        """What sources can do together, ``(C, B, N, F)`` to ``(B, N, F)``: those that do most."""
        return errors.topk(min(self.most, self.count), dim=0).values.sum(0)

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """What a perturbed shift adds: S' times the rest so far ``(C, B, N, F)``, and S' - S times the values."""
        return self.magnitudes @ rest + self.added(rest, values)


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
        """The noise as a whole: a row of E can put all of its norm on the entry that matters most."""
        entries = entries_of(graph).unsqueeze(-1)

        def added(rest: Tensor, values: Tensor) -> Tensor:
            return self.norm * torch.where(entries, (rest[0] + values).unsqueeze(-3), 0.0).amax(-2)

        edge_index, weight = graph.to_edge_index()
        widest = Graph.from_edge_index(edge_index, weight.abs() + self.norm, graph.num_nodes)
        return ErrorSources(graph.to_dense().abs(), 1, 1, None, added, widest, entries.any((1, 2)))

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
        rows, size = edge_index[1], gradient.abs()
        strongest = weight.new_full((graph.num_nodes,), -1.0).scatter_reduce(0, rows, size, "amax")
        chosen = (size == strongest[rows]) & (gradient != 0)
        shares = weight.new_zeros(graph.num_nodes).index_add(0, rows, chosen.to(weight))[rows]
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
        magnitudes, count = graph.to_dense().abs(), links.size(1)
        ends = torch.zeros(count, graph.num_nodes, dtype=torch.bool).scatter(1, links.T, True)

        def added(rest: Tensor, values: Tensor) -> Tensor:
            """Each end of a link misses what the other sent; all other entries can only shrink to 0."""
            missed = torch.zeros_like(rest)
            for here, there in (links, links.flip(0)):
                sent = magnitudes[here, there, None] * values[:, there]
                missed[torch.arange(count), :, here] = sent.transpose(0, 1)
            return missed

        changing = entries.clone().fill_diagonal_(False).any(1)
        return ErrorSources(magnitudes, count, self.count, ends, added, graph, changing)

    def draw(self, graph: Graph, generator: torch.Generator | None = None) -> Graph:
        """A random graph of this kind."""
        return self._without(graph, torch.rand(graph.num_edges, generator=generator, dtype=torch.float64))

    def attack(self, graph: Graph, gradient: Tensor) -> Graph:
        """The links whose loss a linear function of the weights rises most with; gradient as in to_edge_index."""
        edge_index, weight = graph.to_edge_index()
        return self._without(graph, -(gradient * weight)[edge_index[0] != edge_index[1]])

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
