"""Many graphs side by side, one for each model of a fleet, and the neighbourhood of one node in each of them.

Signals have the shape ``(R, N, B, F)``: replica, node, sample, feature. With the nodes before the samples, a shift is
one matrix product for each replica, mixing features is another, and the neighbourhoods of all replicas are those of
one disjoint union whose rows are long and contiguous.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.kernels import autograd
from graphact.kernels.reference import own_term

DENSE_UP_TO = 256


class StackedGraphs:
    """R graphs of N nodes each, of which several may be the same one.

    Attributes:
        graphs: the graphs.
        num_nodes: N.
        groups: the positions of each distinct graph.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        sizes = {graph.num_nodes for graph in graphs}
        if len(sizes) != 1:
            raise ValueError(f"graphs of a fleet must have equally many nodes, got {sorted(sizes)}")
        self.graphs, self.num_nodes = list(graphs), sizes.pop()
        members: dict[int, list[int]] = {}
        for number, graph in enumerate(graphs):
            members.setdefault(id(graph), []).append(number)
        self.groups = list(members.values())
        self._distinct = [graphs[group[0]] for group in self.groups]
        place = {key: number for number, key in enumerate(members)}
        self._replica = torch.tensor([place[id(graph)] for graph in graphs], device=graphs[0].device)
        self._powers: dict[int, Tensor] = {}
        self._scaled_vectors: dict[int, Tensor] = {}

    @cached_property
    def union(self) -> Graph:
        return Graph.union(self.graphs)

    @cached_property
    def dense(self) -> Tensor | None:
        """The shift operators as matrices ``(R, N, N)``, where N is small; None otherwise."""
        return None if self.num_nodes > DENSE_UP_TO else self._matrices()[self._replica]

    @cached_property
    def spectra(self) -> tuple[Tensor, Tensor] | None:
        """Eigenvalues ``(R, N)`` and eigenvectors ``(R, N, N)`` of small symmetric operators; None otherwise."""
        if self.num_nodes > DENSE_UP_TO or any(graph.is_directed for graph in self._distinct):
            return None
        matrices = self._matrices()
        values, vectors = torch.linalg.eigh(matrices.double())
        return values.to(matrices.dtype)[self._replica], vectors.to(matrices.dtype)[self._replica]

    def _matrices(self) -> Tensor:
        return torch.stack([graph.to_dense() for graph in self._distinct])

    def power(self, hop: int) -> Tensor:
        """``S^hop`` where the operators are matrices, ``(R, N, N)``."""
        assert self.dense is not None
        return torch.linalg.matrix_power(self.dense.double(), hop).to(self.dense.dtype)

    def powers_of_eigenvalues(self, count: int) -> Tensor:
        """The powers 0..count - 1 of the eigenvalues, ``(R, N, count)``; computed once."""
        assert self.spectra is not None
        if count not in self._powers:
            self._powers[count] = torch.linalg.vander(self.spectra[0], N=count)
        return self._powers[count]

    def scaled_vectors(self, hop: int) -> Tensor:
        """The eigenvectors times their eigenvalues to the power of ``hop``, ``(R, N, N)``; computed once."""
        assert self.spectra is not None
        values, vectors = self.spectra
        if hop == 0:
            return vectors
        if hop not in self._scaled_vectors:
            self._scaled_vectors[hop] = vectors * values.pow(hop).unsqueeze(1)
        return self._scaled_vectors[hop]

    def shift(self, x: Tensor) -> Tensor:
        """``S x`` for each replica."""
        if self.dense is not None:
            return torch.bmm(self.dense, x.flatten(2)).view(x.shape)
        shifted = autograd.shift(x.flatten(0, 1).flatten(1), self.union).view(x.shape)
        if self.union.diagonal is None:
            return shifted
        return shifted + own_term(self.union.diagonal.view(*x.shape[:2], 1, 1), x)


class EgoGraphs:
    """A node of each replica, its center, and the center's neighbours: all that a last layer needs to read one node.

    The members of an ego graph are put into D ``slots`` ``(R, D)`` in ascending order, the center among them; smaller
    ones leave slots over, which repeat the center and are not ``filled``. ``nodes`` ``(R,)`` are the centers; both
    count through the union of all graphs.
    """

    def __init__(self, graphs: StackedGraphs, nodes: Tensor) -> None:
        self.graphs = graphs
        replicas = torch.arange(len(nodes), device=nodes.device)
        self.nodes = nodes + replicas * graphs.num_nodes
        rowptr, col = graphs.union.incoming.rowptr, graphs.union.incoming.col
        counts = rowptr[self.nodes + 1] - rowptr[self.nodes]
        replica_of_edge = replicas.repeat_interleave(counts)
        offset = torch.arange(len(replica_of_edge), device=nodes.device) - (counts.cumsum(0) - counts)[replica_of_edge]
        neighbors = col[rowptr[self.nodes][replica_of_edge] + offset]
        rows = torch.unique(torch.cat([neighbors, self.nodes]))
        owner, sizes = rows // graphs.num_nodes, counts + 1
        slot = torch.arange(len(rows), device=nodes.device) - (sizes.cumsum(0) - sizes)[owner]
        self.slots = self.nodes.unsqueeze(1).repeat(1, int(sizes.max()))
        self.slots[owner, slot] = rows
        self.filled = torch.zeros_like(self.slots, dtype=torch.bool)
        self.filled[owner, slot] = True
        self._replica_of_edge, self._neighbor_slot = replica_of_edge, slot[torch.searchsorted(rows, neighbors)]
        self._center_slot = slot[torch.searchsorted(rows, self.nodes)]
        self._unions: dict[int, tuple[Graph, Tensor]] = {}
        self._rows: dict[tuple[bool, tuple[int, ...]], Tensor] = {}
        self._hop_lists: dict[tuple[int, bool], list[Neighborhoods]] = {}

    def hop_lists(self, hops: int, closed: bool) -> list[Neighborhoods]:
        """The neighbours of the centers over 1..hops hops in the union of all graphs, where others have none."""
        if (hops, closed) not in self._hop_lists:
            made = []
            for hop in range(1, hops + 1):
                full = self.graphs.union.hop_pattern(hop, closed=closed)
                counts = torch.zeros_like(full.degree)
                counts[self.nodes] = full.degree[self.nodes]  # of ascending nodes, so the lists keep their order
                is_kept = counts.bool().repeat_interleave(full.degree)
                made.append(Neighborhoods.from_rowptr(F.pad(counts.cumsum(0), (1, 0)), full.col[is_kept]))
            self._hop_lists[hops, closed] = made
        return self._hop_lists[hops, closed]

    def union(self, hops: int) -> tuple[Graph, Tensor]:
        """The ego graphs of all replicas and hops, and the positions ``(R * hops,)`` of their centers.

        Each replica has D nodes a hop, then its center once more without an edge: the layout of
        :meth:`KnownSignal.around
        <graphact.training.stacked_signals.KnownSignal.around>`.
        """
        if hops not in self._unions:
            replicas, width = self.slots.shape
            device = self.slots.device
            starts = torch.arange(replicas, device=device).unsqueeze(1) * (hops * width + 1)
            starts = starts + torch.arange(hops, device=device) * width
            centers = starts + self._center_slot.unsqueeze(1)
            sources = starts[self._replica_of_edge] + self._neighbor_slot.unsqueeze(1)
            edge_index = torch.stack([sources.flatten(), centers[self._replica_of_edge].flatten()])
            graph = Graph.from_edge_index(edge_index, num_nodes=replicas * (hops * width + 1))
            self._unions[hops] = graph, centers.flatten()
        return self._unions[hops]

    def rows(self, hops: tuple[int, ...], in_eigenbasis: bool) -> Tensor:
        """The rows of ``S^hop`` at the slots, hop after hop, then the center's row of the identity; computed once.

        They are multiplied by the eigenvectors for signals that are given in the eigenbasis.
        """
        if (in_eigenbasis, hops) not in self._rows:
            power = self.graphs.scaled_vectors if in_eigenbasis else self.graphs.power
            parts = [power(hop).flatten(0, 1)[self.slots] * self.filled.unsqueeze(2) for hop in hops]
            center = power(0).flatten(0, 1)[self.nodes].unsqueeze(1)
            self._rows[in_eigenbasis, hops] = torch.cat([*parts, center], dim=1)
        return self._rows[in_eigenbasis, hops]
