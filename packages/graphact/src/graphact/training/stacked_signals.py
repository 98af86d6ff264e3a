"""Filtered signals of a fleet, each in the form in which it is cheapest to shift and to read.

An activation asks a signal z for its shifts ``S^hop z``: ``everywhere``, ``(R, N, B, F)``, or ``around`` one node only,
at the slots of each ego graph, hop after hop, then z at its center, ``(R, H D + 1, B, F)``. What the answer costs
depends on where z comes from. Layout and graphs are those of :mod:`graphact.training.stacked`.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphact.functional.adaptive_filter import columns_of, stack_taps
from graphact.functional.neighborhood import functions_pass
from graphact.kernels.dispatch import implementation
from graphact.spec import AdaptiveFilter, Filter
from graphact.training.stacked import EgoGraphs, StackedGraphs

Bank = Filter | AdaptiveFilter


def all_shifts(x: Tensor, graphs: StackedGraphs, count: int) -> Tensor:
    """The shifts 0..count - 1 of a signal side by side, ``(R, N, B, count * F)``."""
    shifts = [x]
    for _ in range(count - 1):
        shifts.append(graphs.shift(shifts[-1]))
    return torch.cat(shifts, dim=-1)


def adaptive_columns(x: Tensor, graphs: StackedGraphs, bank: AdaptiveFilter, order: int) -> Tensor:
    """Return what ``order`` exchanges give side by side: shifts, then functions of neighbourhoods."""
    shifts, found = [x], []
    for _ in range(order):
        rows = shifts[-1].flatten(0, 1).flatten(1)
        *values, _ = functions_pass(rows, graphs.union, bank.functions, bank.closed, False)
        found.append([value.view(x.shape) for value in values])
        shifts.append(graphs.shift(shifts[-1]))
    return torch.cat(columns_of(shifts, found), dim=-1)


def matrix_of(bank: Bank) -> Tensor:
    """The coefficients of all columns, ``(R, C, F_out)``."""
    if isinstance(bank, AdaptiveFilter):
        return stack_taps(bank.taps, bank.function_taps)
    weights: Tensor = bank.taps.flatten(1, 2)
    return weights


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

    def __init__(self, inputs: "ShiftedInputs", samples: Tensor, graphs: StackedGraphs, bank: Bank) -> None:
        self.inputs, self.samples, self.graphs, self.bank = inputs, samples, graphs, bank

    @cached_property
    def _everywhere(self) -> tuple[Tensor, KnownSignal]:
        """The columns that the bank sums, and the signal from the last known shift on."""
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
        return _FilterBank.apply(columns, self.inputs.weights(self.bank, hop))


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

    ``owner`` ``(R,)`` is the task of each replica; ``bank`` is the first filter bank, whose result is shifted ``hops``
    times; its bias, if there is one, is shifted too. For an adaptive bank, functions of neighbourhoods are among them.
    """

    def __init__(self, inputs: Tensor, graphs: StackedGraphs, owner: Tensor, bank: Bank, hops: int) -> None:
        num_tasks, self.num_samples, self.num_nodes, self.features = inputs.shape
        self.owner, self.hops = owner, hops
        by_nodes = inputs.transpose(1, 2).contiguous()
        if isinstance(bank, AdaptiveFilter):
            table = adaptive_columns(by_nodes, graphs, bank, bank.exchanges)
        else:
            table = all_shifts(by_nodes, graphs, bank.exchanges + 1 + hops)
        if bank.bias is not None:
            constants = all_shifts(inputs.new_ones(num_tasks, self.num_nodes, 1, 1), graphs, 1 + hops)
            table = torch.cat([table, constants.expand(-1, -1, self.num_samples, -1)], dim=-1)
        self.table = table.flatten(0, 2)

    def columns(self, nodes: Tensor, samples: Tensor) -> Tensor:
        """Columns of a filter bank at nodes ``(R, n)`` for samples ``(R, B)``: ``(R, n, B, C)``."""
        rows = self.owner.unsqueeze(1) * self.num_nodes + nodes
        index = rows.unsqueeze(2) * self.num_samples + samples.unsqueeze(1)
        return implementation(self.table).gather_rows(self.table, index)

    def weights(self, bank: Bank, hop: int) -> Tensor:
        """The weights of the columns for ``S^hop z``, ``(R, C, F_out)``."""
        before, after = hop, self.hops - hop
        weights = F.pad(matrix_of(bank), (0, 0, before * self.features, after * self.features))
        if bank.bias is None:
            return weights
        return torch.cat([weights, F.pad(bank.bias.unsqueeze(1), (0, 0, before, after))], dim=1)


def product(matrices: Tensor, signal: Tensor) -> Tensor:
    """A matrix ``(R, M, N)`` for each replica times a signal ``(R, N, B, F)``."""
    return torch.bmm(matrices, signal.flatten(2)).view(*matrices.shape[:2], *signal.shape[2:])


StackedSignal = KnownSignal | SpectralSignal | FilteredInputs


def stacked_filter(x: Tensor, graphs: StackedGraphs, bank: Bank) -> StackedSignal:
    """A filter bank with taps ``(R, K + 1, F_in, F_out)`` and a bias ``(R, F_out)``, adaptive or linear."""
    taps, bias = bank.taps, bank.bias
    if isinstance(bank, AdaptiveFilter):
        columns = adaptive_columns(x, graphs, bank, bank.taps.size(1) - 1)
        filtered = torch.bmm(columns.flatten(1, 2), matrix_of(bank)).view(*x.shape[:3], -1)
        return KnownSignal(filtered if bias is None else filtered + bias.view(len(bias), 1, 1, -1), graphs)
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
