"""The neighbour lists of all nodes, laid out so that a forward pass only reads them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphact.graph.transfer import map_tensors


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """For every node the sorted list of its neighbours, as rows of a CSR matrix and grouped by degree.

    Nodes of equal degree d form a group, and the lists of a group of n nodes are a rectangular ``(n, d)`` table. Any
    function of a neighbourhood then runs on dense tensors, without padding, once for each distinct degree.

    Attributes:
        rowptr: ``(N + 1,)``; the list of node i is ``col[rowptr[i]:rowptr[i + 1]]``.
        col: ``(E,)``; the neighbours, ascending within each list.
        order: ``(N,)``; the nodes by ascending degree.
        rank: ``(N,)``; where node i stands in ``order``.
        edge_order: ``(E,)``; positions in ``col``, list after list, in the order of ``order``.
        sizes: ``(G, 2)`` on the CPU; degree and number of nodes of each group.
        groups: ``sizes`` as Python integers.
    """

    rowptr: Tensor
    col: Tensor
    order: Tensor
    rank: Tensor
    edge_order: Tensor
    sizes: Tensor
    groups: tuple[tuple[int, int], ...]

    @classmethod
    def from_sorted(cls, rows: Tensor, col: Tensor, num_nodes: int) -> "Neighborhoods":
        """Build the lists from edges sorted by row, then by column, without repetition."""
        degree = torch.bincount(rows, minlength=num_nodes)
        rowptr = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
        ascending, order = torch.sort(degree, stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(num_nodes, device=order.device)
        starts = rowptr[order] - (ascending.cumsum(0) - ascending)
        edge_order = torch.arange(col.numel(), device=col.device) + starts.repeat_interleave(ascending)
        sizes = torch.stack(torch.unique_consecutive(ascending, return_counts=True), dim=1).cpu()
        groups = tuple((degree, count) for degree, count in sizes.tolist())
        return cls(rowptr, col, order, rank, edge_order, sizes, groups)

    @property
    def num_nodes(self) -> int:
        return self.order.numel()

    @property
    def degree(self) -> Tensor:
        return self.rowptr.diff()

    @property
    def max_degree(self) -> int:
        return self.groups[-1][0]

    @property
    def pointers(self) -> Tensor:
        """``rowptr``, by its name in version 0.1."""
        return self.rowptr

    @property
    def members(self) -> Tensor:
        """``col``, by its name in version 0.1."""
        return self.col

    @property
    def rows(self) -> Tensor:
        """The node to whose list each entry of ``col`` belongs."""
        nodes = torch.arange(self.num_nodes, device=self.rowptr.device)
        return nodes.repeat_interleave(self.degree)

    def tables(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the nodes ``(n,)`` and the neighbour table ``(n, d)`` of each group, by ascending degree d."""
        for nodes, edges in degree_groups(self.order, self.edge_order, self.groups):
            yield nodes, self.col[edges]

    def to(self, device: torch.device | str) -> "Neighborhoods":
        """The same lists on another device."""
        return map_tensors(self, lambda part: part.to(device))


def degree_groups(
    order: Tensor, edge_order: Tensor, groups: tuple[tuple[int, int], ...] | list[tuple[int, int]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the nodes ``(n,)`` and the edge positions ``(n, d)`` of each group of nodes with equal degree d."""
    first_node = first_edge = 0
    for degree, count in groups:
        nodes = order[first_node : first_node + count]
        edges = edge_order[first_edge : first_edge + degree * count].view(count, degree)
        yield nodes, edges
        first_node += count
        first_edge += degree * count
