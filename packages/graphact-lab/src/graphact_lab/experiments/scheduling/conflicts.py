"""Conflict graphs: which links of a wireless network disturb each other, drawn in four ways."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact.graph import Graph

DENSITIES = (0.02, 0.05, 0.1, 0.15, 0.2)  # of the random graphs that networks train on
ATTACHMENTS = (2, 5, 10)
MEAN_DEGREE = 10.0  # of geometric graphs
MIN_WEIGHT = 1e-4  # below it, a utility counts as this in keys


class Conflicts(NamedTuple):
    """Conflict graphs side by side as one graph.

    Attributes:
        graph: all of them; links are its nodes, and its edges join links that disturb each other.
        member: ``(N,)``, the number of the graph of each node.
        degree: ``(N,)``, how many links each one disturbs.
    """

    graph: Graph
    member: Tensor
    degree: Tensor

    @classmethod
    def from_edges(cls, edges: Sequence[Tensor], sizes: Sequence[int], device: torch.device | str) -> "Conflicts":
        """From the edges ``(2, E)`` of each graph, every one in a single direction."""
        starts = [0, *np.cumsum(sizes).tolist()]
        joined = torch.cat([each + start for each, start in zip(edges, starts, strict=False)], 1)
        member = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        return cls.from_one_way(joined, member, device)

    @classmethod
    def from_one_way(cls, edges: Tensor, member: Tensor, device: torch.device | str) -> "Conflicts":
        both = torch.cat([edges, edges.flip(0)], 1)
        graph = Graph.from_edge_index(both, num_nodes=len(member)).normalize("symmetric").to(device)
        return cls(graph, member.to(device), graph.degree.to(torch.float32))

    @property
    def num_graphs(self) -> int:
        return int(self.member[-1]) + 1

    def totals(self, values: Tensor) -> Tensor:
        """Sum values ``(..., N)`` over the nodes of each graph."""
        return values.new_zeros(*values.shape[:-1], self.num_graphs).index_add(-1, self.member, values)

    def lossy(self, probability: float, generator: torch.Generator) -> Graph:
        """The graph of one round in which messages are lost, each with a probability, in either direction."""
        if probability == 0:
            return self.graph
        edge_index, weight = self.graph.to_edge_index()
        kept = torch.rand(len(weight), generator=generator) >= probability
        kept = kept.to(weight.device)
        return Graph.from_edge_index(edge_index[:, kept], weight[kept], num_nodes=len(self.member))


def draw_random(count: int, nodes: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Conflicts:
    """Erdős-Rényi graphs; densities take turns, and fall with the size so that mean degrees are those of 100 nodes."""
    density = torch.tensor(DENSITIES).repeat(-(-count // len(DENSITIES)))[:count] * min(1.0, 100 / nodes)
    pairs = torch.rand(count, nodes, nodes, generator=generator).triu(1)
    graph, one, other = ((pairs > 0) & (pairs < density.view(-1, 1, 1))).nonzero().t()
    edges = torch.stack([graph * nodes + one, graph * nodes + other])
    return Conflicts.from_one_way(edges, torch.arange(count).repeat_interleave(nodes), device)


def draw_attached(count: int, nodes: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Conflicts:
    """Barabási-Albert graphs, in which a new node attaches itself to 2, 5 or 10 others, drawn by their degrees."""
    rng, drawn = numpy_generator(generator), []
    for number in range(count):
        size = ATTACHMENTS[number % len(ATTACHMENTS)]
        ends, edges = list(range(size)), list[tuple[int, int]]()  # every node stands as often as it has edges
        for node in range(size, nodes):
            chosen = set[int]()
            while len(chosen) < size:
                chosen.add(ends[rng.integers(len(ends))])
            edges += [(other, node) for other in sorted(chosen)]
            ends += [*sorted(chosen), *[node] * size]
        drawn.append(torch.tensor(edges).t())
    return Conflicts.from_edges(drawn, [nodes] * count, device)


def draw_geometric(count: int, nodes: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Conflicts:
    """Random geometric graphs: points of the unit square that are near each other, ten neighbours in its middle."""
    radius, drawn = math.sqrt(MEAN_DEGREE / (math.pi * nodes)), []
    for _ in range(count):
        place = torch.rand(nodes, 2, generator=generator)
        drawn.append((torch.cdist(place, place) < radius).triu(1).nonzero().t())
    return Conflicts.from_edges(drawn, [nodes] * count, device)


def draw_flows(count: int, nodes: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Conflicts:
    """Links that carry flows of a multi-hop network: the nodes are as many of them as shortest paths use.

    Stations lie in the unit square, and those within a radius can talk. Half as many flows as stations go between two
    of them along a shortest path. Two links conflict if they share a station or one has a station within the radius of
    one of the other.
    """
    from scipy.sparse.csgraph import shortest_path

    stations = max(4, nodes // 2)
    radius, drawn, sizes = math.sqrt(MEAN_DEGREE / (math.pi * stations)), list[Tensor](), list[int]()
    while len(drawn) < count:
        place = torch.rand(stations, 2, generator=generator)
        near = torch.cdist(place, place) < radius
        _, before = shortest_path(near.fill_diagonal_(False).numpy(), unweighted=True, return_predecessors=True)
        used = dict[tuple[int, int], None]()
        for start, end in torch.randint(stations, (stations // 2, 2), generator=generator).tolist():
            while end != start and before[start, end] >= 0:
                used[min(end, before[start, end]), max(end, before[start, end])] = None
                end = int(before[start, end])
        if not used:
            continue
        links = torch.tensor(list(used))
        reaches = near | torch.eye(stations, dtype=torch.bool)
        touched = reaches[links[:, 0]] | reaches[links[:, 1]]  # which stations hear a link
        disturbs = touched[:, links[:, 0]] | touched[:, links[:, 1]]
        drawn.append(disturbs.triu(1).nonzero().t())
        sizes.append(len(links))
    return Conflicts.from_edges(drawn, sizes, device)


Draw = Callable[..., Conflicts]
KINDS: dict[str, Draw] = {
    "random": draw_random,
    "attached": draw_attached,
    "geometric": draw_geometric,
    "flows": draw_flows,
}


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """A generator of NumPy that depends on one of torch."""
    return np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
