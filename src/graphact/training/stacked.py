"""Many graphs side by side, and filters with one set of coefficients for each.

Signals have the shape ``(R, N, B, F)``: replica, node, sample, feature. With the nodes before the samples, a shift is
one matrix product for each replica, mixing features is another, and the neighbourhoods of all replicas are those of
one disjoint union whose rows are long and contiguous.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.kernels import gradients

DENSE_UP_TO = 256


class StackedGraphs:
    """R graphs of N nodes each, of which several may be the same one.

    Attributes:
        union: the disjoint union of all R graphs.
        dense: ``(R, N, N)``, the shift operators as matrices, where N is small; None otherwise.
        spectra: eigenvalues ``(R, N)`` and eigenvectors ``(R, N, N)`` of small symmetric operators; None otherwise.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        sizes = {graph.num_nodes for graph in graphs}
        if len(sizes) != 1:
            raise ValueError(f"graphs of a fleet must have equally many nodes, got {sorted(sizes)}")
        self.num_nodes = sizes.pop()
        self.union = Graph.union(graphs)
        self._powers: dict[int, Tensor] = {}
        self.dense: Tensor | None = None
        self.spectra: tuple[Tensor, Tensor] | None = None
        if self.num_nodes <= DENSE_UP_TO:
            distinct = list({id(graph): graph for graph in graphs}.values())
            place = {id(graph): number for number, graph in enumerate(distinct)}
            replica = torch.tensor([place[id(graph)] for graph in graphs], device=graphs[0].device)
            matrices = torch.stack([graph.to_dense() for graph in distinct])
            self.dense = matrices[replica]
            if not any(graph.is_directed for graph in distinct):
                values, vectors = torch.linalg.eigh(matrices.double())
                self.spectra = values.to(matrices.dtype)[replica], vectors.to(matrices.dtype)[replica]

    def powers(self, count: int) -> Tensor:
        """The powers 0..count - 1 of the eigenvalues, ``(R, N, count)``; computed once."""
        assert self.spectra is not None
        if count not in self._powers:
            self._powers[count] = torch.linalg.vander(self.spectra[0], N=count)
        return self._powers[count]

    def shift(self, x: Tensor) -> Tensor:
        """``S x`` for each replica."""
        if self.dense is not None:
            return torch.bmm(self.dense, x.flatten(2)).view(x.shape)
        shifted = gradients.shift(x.flatten(0, 1).flatten(1), self.union).view(x.shape)
        if self.union.diagonal is None:
            return shifted
        return shifted + self.union.diagonal.view(*x.shape[:2], 1, 1) * x


def stacked_filter(x: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None) -> Tensor:
    """:func:`graphact.functional.graph_filter` with taps ``(R, K + 1, F_in, F_out)``, plus a bias ``(R, F_out)``."""
    if _prefers_eigenbasis(x, graphs, taps):
        return _through_eigenbasis(x, graphs, taps, bias)
    if x.size(3) <= taps.size(3):
        return mix_shifts(all_shifts(x, graphs, taps.size(1)), taps, bias)
    filtered = _through_horner(x, graphs, taps)
    return filtered if bias is None else filtered + bias.view(len(bias), 1, 1, -1)


def all_shifts(x: Tensor, graphs: StackedGraphs, count: int) -> Tensor:
    """The shifts 0..count - 1 of a signal side by side, ``(R, N, B, count * F)``."""
    shifts = [x]
    for _ in range(count - 1):
        shifts.append(graphs.shift(shifts[-1]))
    return torch.cat(shifts, dim=-1)


def mix_shifts(shifts: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
    """A filter bank on the shifts of its input."""
    replicas, nodes, samples, _ = shifts.shape
    flat, bank = shifts.reshape(replicas, nodes * samples, -1), taps.flatten(1, 2)
    mixed = torch.bmm(flat, bank) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, bank)
    return mixed.view(replicas, nodes, samples, -1)


def _prefers_eigenbasis(x: Tensor, graphs: StackedGraphs, taps: Tensor) -> bool:
    """Count the multiplications for each sample of both ways."""
    if graphs.spectra is None:
        return False
    nodes, (inputs, outputs), order = graphs.num_nodes, taps.shape[2:], taps.size(1) - 1
    shifts = order * nodes**2 * min(inputs, outputs) + nodes * (order + 1) * inputs * outputs
    eigenbasis = nodes**2 * (inputs + outputs) + nodes * inputs * outputs
    return eigenbasis + nodes * (order + 1) * inputs * outputs / x.size(2) < shifts


def _through_horner(x: Tensor, graphs: StackedGraphs, taps: Tensor) -> Tensor:
    """One matrix product, then Horner's scheme on the few output features."""
    replicas, nodes, samples, inputs = x.shape
    mixed = torch.bmm(x.reshape(replicas, nodes * samples, inputs), taps.transpose(1, 2).flatten(2))
    *lower, out = mixed.view(replicas, nodes, samples, -1).split(taps.size(3), dim=-1)
    out = out.contiguous()
    for term in reversed(lower):
        out = term + graphs.shift(out)
    return out


def _through_eigenbasis(x: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None) -> Tensor:
    """In the eigenbasis of S, a filter bank is one small matrix for each eigenvalue: the polynomial at that point."""
    assert graphs.spectra is not None
    _, vectors = graphs.spectra
    replicas, nodes, samples, inputs = x.shape
    response = torch.bmm(graphs.powers(taps.size(1)), taps.flatten(2)).view(replicas * nodes, inputs, -1)
    transformed = torch.bmm(vectors.transpose(1, 2), x.flatten(2)).view(replicas * nodes, samples, inputs)
    if bias is None:
        filtered = torch.bmm(transformed, response)
    else:
        constant = vectors.sum(1).unsqueeze(-1) * bias.unsqueeze(1)
        filtered = torch.baddbmm(constant.view(replicas * nodes, 1, -1), transformed, response)
    return torch.bmm(vectors, filtered.view(replicas, nodes, -1)).view(replicas, nodes, samples, -1)
