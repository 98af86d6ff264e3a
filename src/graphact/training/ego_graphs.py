"""The ego graph of one node of each replica: all that the last layer needs where one node is read."""

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.training.stacked import StackedGraphs


class EgoGraphs:
    """A node of each replica, its center, and the center's neighbours.

    The members of an ego graph are put into D slots in ascending order, the center among them; smaller ones leave
    slots over.

    Args:
        graphs: one for each replica.
        nodes: ``(R,)``, the center of each.

    Attributes:
        nodes: ``(R,)``, the centers, counted through the union of all graphs.
        slots: ``(R, D)``, the member in each slot, counted likewise; slots left over repeat the center.
        filled: ``(R, D)``, whether a slot is taken.
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
        self._rows: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def union(self, hops: int) -> tuple[Graph, Tensor]:
        """The ego graphs of all replicas and hops, and the positions ``(R * hops,)`` of their centers.

        Each replica has D nodes a hop, then its center once more without an edge: the layout of
        :meth:`~graphact.training.stacked_signals.StackedSignal.around`.
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

    def rows_of_powers(self, hops: tuple[int, ...]) -> Tensor:
        """The rows of ``S^hop`` at the slots, hop after hop, then the center's row of the identity."""
        if ("powers", hops) not in self._rows:
            matrices = self.graphs.dense
            assert matrices is not None
            powers = [torch.linalg.matrix_power(matrices.double(), hop).to(matrices.dtype) for hop in hops]
            identity = torch.eye(self.graphs.num_nodes, dtype=matrices.dtype, device=matrices.device)
            self._rows["powers", hops] = self._gather_rows(powers, identity.expand_as(matrices))
        return self._rows["powers", hops]

    def rows_in_eigenbasis(self, hops: tuple[int, ...]) -> Tensor:
        """The same rows, for signals that are given in the eigenbasis."""
        if ("eigenbasis", hops) not in self._rows:
            scaled = [self.graphs.scaled_vectors(hop) for hop in hops]
            self._rows["eigenbasis", hops] = self._gather_rows(scaled, self.graphs.scaled_vectors(0))
        return self._rows["eigenbasis", hops]

    def _gather_rows(self, matrices: list[Tensor], identity: Tensor) -> Tensor:
        rows = [matrix.flatten(0, 1)[self.slots] * self.filled.unsqueeze(2) for matrix in matrices]
        return torch.cat([*rows, identity.flatten(0, 1)[self.nodes].unsqueeze(1)], dim=1)
