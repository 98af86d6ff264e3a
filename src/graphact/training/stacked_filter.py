"""Filter banks with coefficients of their own for each replica. Shapes as in ``stacked.py``."""

import torch
from torch import Tensor

from graphact.training.stacked import StackedGraphs, all_shifts
from graphact.training.stacked_signal import KnownSignal, SpectralSignal, StackedSignal


def stacked_filter(x: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None) -> StackedSignal:
    """:func:`graphact.functional.graph_filter` with taps ``(R, K + 1, F_in, F_out)``, plus a bias ``(R, F_out)``."""
    if prefers_eigenbasis(x, graphs, taps):
        return SpectralSignal(in_eigenbasis(x, graphs, taps, bias), graphs)
    if x.size(3) <= taps.size(3):
        filtered = mix_shifts(all_shifts(x, graphs, taps.size(1)), taps)
    else:
        filtered = through_horner(x, graphs, taps)
    return KnownSignal(filtered if bias is None else filtered + bias.view(len(bias), 1, 1, -1), graphs)


def prefers_eigenbasis(x: Tensor, graphs: StackedGraphs, taps: Tensor) -> bool:
    """Count the multiplications for each sample of both ways."""
    if graphs.spectra is None:
        return False
    nodes, (inputs, outputs), order = graphs.num_nodes, taps.shape[2:], taps.size(1) - 1
    shifts = order * nodes**2 * min(inputs, outputs) + nodes * (order + 1) * inputs * outputs
    eigenbasis = nodes**2 * (inputs + outputs) + nodes * inputs * outputs
    return eigenbasis + nodes * (order + 1) * inputs * outputs / x.size(2) < shifts


def mix_shifts(shifts: Tensor, taps: Tensor) -> Tensor:
    """A filter bank on the shifts of its input."""
    replicas, nodes, samples, _ = shifts.shape
    mixed = torch.bmm(shifts.reshape(replicas, nodes * samples, -1), taps.flatten(1, 2))
    return mixed.view(replicas, nodes, samples, -1)


def through_horner(x: Tensor, graphs: StackedGraphs, taps: Tensor) -> Tensor:
    """One matrix product, then Horner's scheme on the few output features."""
    replicas, nodes, samples, inputs = x.shape
    mixed = torch.bmm(x.reshape(replicas, nodes * samples, inputs), taps.transpose(1, 2).flatten(2))
    *lower, out = mixed.view(replicas, nodes, samples, -1).split(taps.size(3), dim=-1)
    out = out.contiguous()
    for term in reversed(lower):
        out = term + graphs.shift(out)
    return out


def in_eigenbasis(x: Tensor, graphs: StackedGraphs, taps: Tensor, bias: Tensor | None) -> Tensor:
    """In the eigenbasis of S, a filter bank is one small matrix for each eigenvalue: the polynomial at that point."""
    assert graphs.spectra is not None
    _, vectors = graphs.spectra
    replicas, nodes, samples, inputs = x.shape
    response = torch.bmm(graphs.powers(taps.size(1)), taps.flatten(2)).view(replicas * nodes, inputs, -1)
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
