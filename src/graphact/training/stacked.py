"""Many graphs side by side, and filtered signals on them in the form in which they are cheapest to shift and to read.

Signals have the shape ``(R, N, B, F)``: replica, node, sample, feature. With the nodes before the samples, a shift is
one matrix product for each replica, mixing features is another, and the neighbourhoods of all replicas are those of
one disjoint union whose rows are long and contiguous.

An activation asks a signal z for its shifts ``S^hop z``: ``everywhere``, ``(R, N, B, F)``, or ``around`` one node only,
at the slots of each ego graph, hop after hop, then z at its center, ``(R, H D + 1, B, F)``. What the answer costs
depends on where z comes from.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphact.graph import Graph, Neighborhoods
from graphact.kernels import autograd
from graphact.kernels.backends import implementation
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


def all_shifts(x: Tensor, graphs: StackedGraphs, count: int) -> Tensor:
    """The shifts 0..count - 1 of a signal side by side, ``(R, N, B, count * F)``."""
    shifts = [x]
    for _ in range(count - 1):
        shifts.append(graphs.shift(shifts[-1]))
    return torch.cat(shifts, dim=-1)


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
        :meth:`KnownSignal.around`.
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


class KnownSignal:
    """A signal given by its values ``(R, N, B, F)``; each shift is one step from the last."""

    def __init__(self, values: Tensor, graphs: StackedGraphs) -> None:
        self.shifts, self.graphs = [values], graphs

    def everywhere(self, hop: int) -> Tensor:
        while len(self.shifts) <= hop:
            self.shifts.append(self.graphs.shift(self.shifts[-1]))
        return self.shifts[hop]

    def around(self, ego: EgoGraphs, hops: Sequence[int]) -> Tensor:
        if self.graphs.dense is not None:
            return product(ego.rows(tuple(hops), in_eigenbasis=False), self.shifts[0])
        rows = [self.everywhere(hop).flatten(0, 1).index_select(0, ego.slots.flatten()) for hop in hops]
        centers = self.everywhere(0).flatten(0, 1).index_select(0, ego.nodes)
        parts = [row.unflatten(0, ego.slots.shape) for row in rows]
        return torch.cat([*parts, centers.unsqueeze(1)], dim=1)


class SpectralSignal:
    """A signal given by its coefficients ``(R, N, B, F)`` in the eigenbasis of S, where a shift is a scaling."""

    def __init__(self, coefficients: Tensor, graphs: StackedGraphs) -> None:
        self.coefficients, self.graphs = coefficients, graphs

    def everywhere(self, hop: int) -> Tensor:
        return product(self.graphs.scaled_vectors(hop), self.coefficients)

    def around(self, ego: EgoGraphs, hops: Sequence[int]) -> Tensor:
        return product(ego.rows(tuple(hops), in_eigenbasis=True), self.coefficients)


class FilteredInputs:
    """A filter bank on inputs whose shifts are known: its shifts are other sums of the same columns.

    ``S^hop z = sum_k h_k S^(k + hop) x + b S^hop 1``: no shift remains to be made, as far as the inputs were shifted.
    """

    def __init__(
        self, inputs: "ShiftedInputs", samples: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None
    ) -> None:
        self.inputs, self.samples, self.graphs, self.taps, self.bias = inputs, samples, graphs, taps, bias

    @cached_property
    def _everywhere(self) -> tuple[Tensor, KnownSignal]:
        """What the bank sums, and the signal from the last known shift on."""
        nodes = torch.arange(self.inputs.num_nodes, device=self.samples.device)
        columns = self.inputs.columns(nodes.expand(len(self.samples), -1), self.samples)
        return columns, KnownSignal(self._mix(columns, self.inputs.hops), self.graphs)

    def everywhere(self, hop: int) -> Tensor:
        columns, onwards = self._everywhere
        if hop < self.inputs.hops:
            return self._mix(columns, hop)
        return onwards.everywhere(hop - self.inputs.hops)

    def around(self, ego: EgoGraphs, hops: Sequence[int]) -> Tensor:
        if any(hop > self.inputs.hops for hop in hops):
            return KnownSignal(self.everywhere(0), self.graphs).around(ego, hops)
        slots = ego.slots % self.inputs.num_nodes
        columns = self.inputs.columns(slots, self.samples)
        center = self.inputs.columns((ego.nodes % self.inputs.num_nodes).unsqueeze(1), self.samples)
        return torch.cat([*(self._mix(columns, hop) for hop in hops), self._mix(center, 0)], dim=1)

    def _mix(self, columns: Tensor, hop: int) -> Tensor:
        return _FilterBank.apply(columns, self.inputs.bank(self.taps, self.bias, hop))


class _FilterBank(torch.autograd.Function):
    """Columns ``(R, n, B, C)``, which are given, times a bank ``(R, C, F)``.

    Its gradient sums over all nodes and samples. On a GPU that is one product for each node and then a sum over them:
    a product for each replica alone keeps few programs busy for long.
    """

    @staticmethod
    def forward(ctx: Any, columns: Tensor, bank: Tensor) -> Tensor:
        ctx.save_for_backward(columns)
        return torch.bmm(columns.flatten(1, 2), bank).view(*columns.shape[:3], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (columns,) = ctx.saved_tensors
        joined = (0, 1) if grad.is_cuda else (1, 2)
        parts = torch.bmm(columns.flatten(*joined).transpose(1, 2), grad.flatten(*joined))
        return None, parts.unflatten(0, grad.shape[:2]).sum(1) if grad.is_cuda else parts


class ShiftedInputs:
    """The inputs ``(G, S, N, F_in)`` of all distinct tasks and their shifts, computed once: inputs never change.

    ``owner`` ``(R,)`` is the task of each replica, ``order`` that of the first filter bank, whose result is shifted
    ``hops`` times; its bias, if there is one, is shifted too.
    """

    def __init__(
        self, inputs: Tensor, graphs: StackedGraphs, owner: Tensor, order: int, hops: int, with_bias: bool
    ) -> None:
        num_tasks, self.num_samples, self.num_nodes, self.features = inputs.shape
        self.owner, self.hops = owner, hops
        table = all_shifts(inputs.transpose(1, 2).contiguous(), graphs, order + 1 + hops)
        if with_bias:
            constants = all_shifts(inputs.new_ones(num_tasks, self.num_nodes, 1, 1), graphs, 1 + hops)
            table = torch.cat([table, constants.expand(-1, -1, self.num_samples, -1)], dim=-1)
        self.table = table.flatten(0, 2)

    def columns(self, nodes: Tensor, samples: Tensor) -> Tensor:
        """What a filter bank sums, at the given nodes ``(R, n)`` for the given samples ``(R, B)``: ``(R, n, B, C)``."""
        rows = self.owner.unsqueeze(1) * self.num_nodes + nodes
        index = rows.unsqueeze(2) * self.num_samples + samples.unsqueeze(1)
        return implementation(self.table).gather_rows(self.table, index)

    def bank(self, taps: Tensor, bias: Tensor | None, hop: int) -> Tensor:
        """The weights of the columns for ``S^hop z``, ``(R, C, F_out)``."""
        before, after = hop, self.hops - hop
        weights = F.pad(taps.flatten(1, 2), (0, 0, before * self.features, after * self.features))
        if bias is None:
            return weights
        return torch.cat([weights, F.pad(bias.unsqueeze(1), (0, 0, before, after))], dim=1)


def product(matrices: Tensor, signal: Tensor) -> Tensor:
    """A matrix ``(R, M, N)`` for each replica times a signal ``(R, N, B, F)``."""
    return torch.bmm(matrices, signal.flatten(2)).view(*matrices.shape[:2], *signal.shape[2:])


StackedSignal = KnownSignal | SpectralSignal | FilteredInputs


def stacked_filter(x: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None) -> StackedSignal:
    """:func:`graphact.functional.graph_filter` with taps ``(R, K + 1, F_in, F_out)``, plus a bias ``(R, F_out)``."""
    if prefers_eigenbasis(x, graphs, taps):
        return SpectralSignal(in_eigenbasis(x, graphs, taps, bias), graphs)
    if x.size(3) <= taps.size(3):
        shifts = all_shifts(x, graphs, taps.size(1))
        filtered = torch.bmm(shifts.flatten(1, 2), taps.flatten(1, 2)).view(*x.shape[:3], -1)
    else:  # one matrix product, then Horner's scheme on the few output features
        mixed = torch.bmm(x.flatten(1, 2), taps.transpose(1, 2).flatten(2)).view(*x.shape[:3], -1)
        *lower, filtered = mixed.split(taps.size(3), dim=-1)
        filtered = filtered.contiguous()
        for term in reversed(lower):
            filtered = term + graphs.shift(filtered)
    return KnownSignal(filtered if bias is None else filtered + bias.view(len(bias), 1, 1, -1), graphs)


def prefers_eigenbasis(x: Tensor, graphs: StackedGraphs, taps: Tensor) -> bool:
    """Count the multiplications for each sample of both ways."""
    if graphs.spectra is None:
        return False
    nodes, (inputs, outputs), order = graphs.num_nodes, taps.shape[2:], taps.size(1) - 1
    shifts = order * nodes**2 * min(inputs, outputs) + nodes * (order + 1) * inputs * outputs
    eigenbasis = nodes**2 * (inputs + outputs) + nodes * inputs * outputs
    return eigenbasis + nodes * (order + 1) * inputs * outputs / x.size(2) < shifts


def in_eigenbasis(x: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None) -> Tensor:
    """In the eigenbasis of S, a filter bank is one small matrix for each eigenvalue: the polynomial at that point."""
    assert graphs.spectra is not None
    _, vectors = graphs.spectra
    replicas, nodes, samples, inputs = x.shape
    response = torch.bmm(graphs.powers_of_eigenvalues(taps.size(1)), taps.flatten(2)).view(replicas * nodes, inputs, -1)
    transformed = torch.bmm(vectors.transpose(1, 2), x.flatten(2)).view(replicas * nodes, samples, inputs)
    if bias is None:
        filtered = torch.bmm(transformed, response)
    else:
        constant = (vectors.sum(1).unsqueeze(-1) * bias.unsqueeze(1)).view(replicas * nodes, 1, -1)
        if x.is_cuda:
            filtered = torch.baddbmm(constant, transformed, response)
        else:  # torch would repeat the constant for every sample first
            filtered = torch.bmm(transformed, response).add_(constant)
    return filtered.view(replicas, nodes, samples, -1)
