"""Activations of many models side by side, at all nodes or only where it counts. Shapes as in ``stacked.py``."""

import torch
from torch import Tensor

from graphact.functional.neighborhood import evaluate_kernel
from graphact.graph import Graph
from graphact.kernels import gradients
from graphact.kernels.mixing import mix_terms
from graphact.training.stacked import StackedGraphs


def stacked_activation(
    z: Tensor,
    where: "Everywhere | AtOneNode",
    op: str,
    shifted: bool,
    beta: Tensor,
    weights: Tensor,
    gamma: Tensor | None,
    closed: bool,
) -> Tensor:
    """Localized (one hop) or graph-adaptive activation of each replica.

    Args:
        z: ``(R, N, B, F)``.
        where: the nodes whose values are wanted.
        op: "max", "min", "median" or "kernel".
        shifted: graph-adaptive (the signal is shifted before each hop) rather than localized.
        beta: ``(R,)``.
        weights: ``(R, K)`` or ``(R, K, F)``.
        gamma: widths of the kernel, ``(R,)``; None for other functions.
        closed: count nodes among their neighbours.
    """
    values = where.hops(z, weights.size(1), op, shifted, closed, gamma)
    return mix_terms(where.own(z), values, beta, weights)


class Everywhere:
    """All nodes of all replicas."""

    def __init__(self, graphs: StackedGraphs) -> None:
        self.graphs = graphs

    def own(self, z: Tensor) -> Tensor:
        """The values of the nodes themselves."""
        return z

    def hops(self, z: Tensor, count: int, op: str, shifted: bool, closed: bool, gamma: Tensor | None) -> list[Tensor]:
        """The function over the neighbourhoods, after 1..count shifts."""
        values = []
        for _ in range(count):
            z = self.graphs.shift(z) if shifted else z
            rows = (z if gamma is None else z / gamma.view(-1, 1, 1, 1)).flatten(0, 1).flatten(1)
            values.append(evaluate(rows, self.graphs.union, op, closed).view(z.shape))
        return values


class AtOneNode:
    """One node of each replica, all that the last layer needs where one node counts.

    Only the values of that node and its neighbours are computed: D rows of the powers of S, from which on the graph of
    a replica is a star. The slots of a star are filled with nodes in ascending order.
    """

    def __init__(self, graphs: StackedGraphs, nodes: Tensor) -> None:
        self.graphs = graphs
        self.nodes = nodes + torch.arange(len(nodes), device=nodes.device) * graphs.num_nodes
        pointers, members = graphs.union.incoming.pointers, graphs.union.incoming.members
        counts = pointers[self.nodes + 1] - pointers[self.nodes]
        hearer = torch.arange(len(nodes), device=nodes.device).repeat_interleave(counts)
        offset = torch.arange(len(hearer), device=nodes.device) - (counts.cumsum(0) - counts)[hearer]
        heard = members[pointers[self.nodes][hearer] + offset]
        self.rows = torch.unique(torch.cat([heard, self.nodes]))
        self.owner = self.rows // graphs.num_nodes
        sizes = counts + 1
        self.slot = torch.arange(len(self.rows), device=nodes.device) - (sizes.cumsum(0) - sizes)[self.owner]
        self.width = int(sizes.max())
        slot_of_row = self.owner * self.width + self.slot
        self.centers = slot_of_row[torch.searchsorted(self.rows, self.nodes)]
        self.leaves = slot_of_row[torch.searchsorted(self.rows, heard)]
        self.hearer = hearer
        self._stars: dict[int, tuple[Graph, Tensor]] = {}
        self._rows_of_powers: dict[tuple[int, bool], Tensor] = {}

    def own(self, z: Tensor) -> Tensor:
        """The values of the nodes themselves, ``(R, 1, B, F)``."""
        return z.flatten(0, 1)[self.nodes].unsqueeze(1)

    def hops(self, z: Tensor, count: int, op: str, shifted: bool, closed: bool, gamma: Tensor | None) -> list[Tensor]:
        """The function over the neighbourhood of the node, after 1..count shifts; each ``(R, 1, B, F)``."""
        values = self.around(z, count, shifted)
        if gamma is not None:
            values = values / gamma.view(-1, 1, 1)
        stars, centers = self.stars(count)
        chosen = evaluate(values.flatten(0, 1), stars, op, closed)[centers]
        return [term.unsqueeze(1) for term in chosen.view(len(self.nodes), count, *z.shape[2:]).unbind(1)]

    def around(self, z: Tensor, count: int, shifted: bool) -> Tensor:
        """The shifted signals at the slots of the star, ``(R, count * D, B * F)``."""
        if self.graphs.dense is not None:
            return torch.bmm(self.rows_of_powers(count, shifted), z.flatten(2))
        slots = torch.zeros(len(self.nodes) * self.width, dtype=torch.int64, device=z.device)
        slots[self.owner * self.width + self.slot] = self.rows
        hops = []
        for _ in range(count):
            z = self.graphs.shift(z) if shifted else z
            hops.append(z.flatten(0, 1).flatten(1).index_select(0, slots).view(len(self.nodes), self.width, -1))
        return torch.cat(hops, dim=1)

    def rows_of_powers(self, count: int, shifted: bool) -> Tensor:
        """The rows of S, S^2, ... (or of the identity) at the slots, ``(R, count * D, N)``; computed once."""
        if (count, shifted) not in self._rows_of_powers:
            matrices = self.graphs.dense
            assert matrices is not None
            power = torch.eye(self.graphs.num_nodes, dtype=matrices.dtype, device=matrices.device).expand_as(matrices)
            parts = []
            for _ in range(count):
                power = torch.bmm(matrices, power) if shifted else power
                part = matrices.new_zeros(len(self.nodes), self.width, self.graphs.num_nodes)
                part[self.owner, self.slot] = power[self.owner, self.rows % self.graphs.num_nodes]
                parts.append(part)
            self._rows_of_powers[count, shifted] = torch.cat(parts, dim=1)
        return self._rows_of_powers[count, shifted]

    def stars(self, count: int) -> tuple[Graph, Tensor]:
        """The stars of all replicas and hops as one graph, and their centers."""
        if count not in self._stars:
            replica, hop = (torch.arange(size, device=self.nodes.device) for size in (len(self.nodes), count))
            start = ((replica.unsqueeze(1) * count + hop) - replica.unsqueeze(1)) * self.width
            centers = self.centers.unsqueeze(1) + start
            sources, targets = self.leaves.unsqueeze(1) + start[self.hearer], centers[self.hearer]
            edge_index = torch.stack([sources.flatten(), targets.flatten()])
            graph = Graph.from_edge_index(edge_index, num_nodes=len(self.nodes) * count * self.width)
            self._stars[count] = graph, centers.flatten()
        return self._stars[count]


def evaluate(rows: Tensor, graph: Graph, op: str, closed: bool) -> Tensor:
    """A neighbourhood function by name; the kernel has the width 1."""
    if op == "kernel":
        return evaluate_kernel(rows, graph.incoming, graph.outgoing, 1.0)
    return gradients.select(rows, None, graph.incoming, op, closed)[0]
