"""Many graphs side by side, and shifts on them.

Signals have the shape ``(R, N, B, F)``: replica, node, sample, feature. With the nodes before the samples, a shift is
one matrix product for each replica, mixing features is another, and the neighbourhoods of all replicas are those of
one disjoint union whose rows are long and contiguous.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.kernels import autograd

DENSE_UP_TO = 256


class StackedGraphs:
    """R graphs of N nodes each, of which several may be the same one.

    Attributes:
        graphs: the graphs.
        num_nodes: N.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        sizes = {graph.num_nodes for graph in graphs}
        if len(sizes) != 1:
            raise ValueError(f"graphs of a fleet must have equally many nodes, got {sorted(sizes)}")
        self.graphs, self.num_nodes = list(graphs), sizes.pop()
        self._distinct = list({id(graph): graph for graph in graphs}.values())
        place = {id(graph): number for number, graph in enumerate(self._distinct)}
        self._replica = torch.tensor([place[id(graph)] for graph in graphs], device=graphs[0].device)
        self._powers: dict[int, Tensor] = {}
        self._scaled_vectors: dict[int, Tensor] = {}

    @cached_property
    def union(self) -> Graph:
        """The disjoint union of all R graphs."""
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
        """The shift operators of the distinct graphs."""
        return torch.stack([graph.to_dense() for graph in self._distinct])

    def powers(self, count: int) -> Tensor:
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
        return shifted + self.union.diagonal.view(*x.shape[:2], 1, 1) * x


def all_shifts(x: Tensor, graphs: StackedGraphs, count: int) -> Tensor:
    """The shifts 0..count - 1 of a signal side by side, ``(R, N, B, count * F)``."""
    shifts = [x]
    for _ in range(count - 1):
        shifts.append(graphs.shift(shifts[-1]))
    return torch.cat(shifts, dim=-1)
