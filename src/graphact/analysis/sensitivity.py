r"""How far outputs can differ when inputs do: differences of signals in affine form, carried through a network.

For two inputs :math:`x, x'` the difference at any point of the network is a matrix times :math:`x - x'`, and every row
of that matrix is an *affine form*: known coefficients of the inputs, plus known coefficients of unknown row vectors
whose 1-norm is at most 1. The forms of all nodes and features are kept as a batch of signals ``(M, N, F)``, one for
each of the M inputs and unknowns; filters and shifts act on it as on any batch. The 1-norm over M bounds what the
output can move when every input moves by at most 1. The proofs are in docs/guarantees.md.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, singledispatch

import torch
from torch import Tensor

from graphact.analysis.description import Layers, hops_of, split_readout
from graphact.analysis.rules import MOST_ENTRIES, OPERATIONS, POINTWISE, row_norms
from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.layers import Filter, HopMixture, Layer, Linear, Pointwise

MOST_ENUMERATED = 8


def unit_forms(num_nodes: int, features: int) -> Tensor:
    """The forms of the inputs themselves: one signal for each of the N F inputs."""
    return torch.eye(num_nodes * features, dtype=torch.float64).view(-1, num_nodes, features)


def bank_rows(taps: Tensor, graph: Graph) -> Iterator[Tensor]:
    """The rows of a filter bank, ``(m, N, F_out)`` for as many of its N F_in inputs at a time as fit into memory."""
    nodes, features = graph.num_nodes, taps.size(1)
    step = max(1, MOST_ENTRIES // (nodes * max(taps.shape[1:])))
    for columns in torch.eye(nodes * features, dtype=torch.float64).split(step):
        yield graph_filter(columns.view(-1, nodes, features), graph, taps)


@dataclass(frozen=True)
class Differences:
    """Forms, before slopes are settled: ``forms + d * rectified``, up to ``spread``, with any d between the slopes.

    Attributes:
        forms: ``(M, N, F)``.
        spread: ``(N, F)``, the size of a further unknown at every node and feature; None behind a linear layer.
        rectified: ``(M, N, F)``, what a pointwise function reads; None behind a linear layer.
        slopes: the least and largest slope of that function.
    """

    forms: Tensor
    spread: Tensor | None = None
    rectified: Tensor | None = None
    slopes: tuple[float, float] = (0.0, 0.0)

    def settle(self) -> Tensor:
        """Forms with a fresh unknown at every node and feature, for the spread and for the slope."""
        if self.spread is None or self.rectified is None:
            return self.forms
        forms, spread = self._halfway(self.spread, self.rectified)
        return torch.cat([forms, torch.diag(spread.flatten()).view(-1, *spread.shape)])

    def norms(self, readout: Tensor | None, thorough: bool) -> Tensor:
        """The largest 1-norm of every form, ``(N, F)``, or behind a readout ``(O, F)``, ``(N, O)``."""
        if self.spread is None or self.rectified is None:
            return row_norms(_read_out(self.forms, readout))
        size = None if readout is None else readout.abs()
        if thorough and (readout is None or self.rectified.size(-1) <= MOST_ENUMERATED):
            return self._over_all_slopes(self.rectified, readout) + _read_out(self.spread, size)
        forms, spread = self._halfway(self.spread, self.rectified)
        return row_norms(_read_out(forms, readout)) + _read_out(spread, size)

    def _halfway(self, spread: Tensor, rectified: Tensor) -> tuple[Tensor, Tensor]:
        """The forms for the slope in the middle, and the spread with what other slopes make of it."""
        low, high = self.slopes
        return self.forms + (low + high) / 2 * rectified, spread + (high - low) / 2 * row_norms(rectified)

    def _over_all_slopes(self, rectified: Tensor, readout: Tensor | None) -> Tensor:
        """The largest 1-norm over all slopes of a node's features: it is convex in them, so each is least or largest.

        For ReLUs that are all ways in which they may be on or off.
        """
        if readout is None:
            return torch.maximum(*(row_norms(self.forms + slope * rectified) for slope in self.slopes))
        choices = torch.tensor(list(itertools.product(self.slopes, repeat=rectified.size(-1))), dtype=torch.float64)
        best = []
        step = max(1, MOST_ENTRIES // (self.forms.size(0) * len(choices)))
        fixed_parts = _read_out(self.forms, readout).split(step, 1)
        for fixed, free in zip(fixed_parts, rectified.split(step, 1), strict=True):
            outputs = [
                (fixed[..., number, None] + free @ (choices * row).T).abs().sum(0).amax(-1)
                for number, row in enumerate(readout)
            ]
            best.append(torch.stack(outputs, -1))
        return torch.cat(best)


def _read_out(forms: Tensor, readout: Tensor | None) -> Tensor:
    """Forms behind the linear map that all nodes share."""
    return forms if readout is None else forms @ readout.T


@singledispatch
def differences_behind(layer: Layer, _forms: Tensor, _graph: Graph, _thorough: bool) -> Differences:
    """Differences behind a layer, from the forms ``(M, N, F)`` in front of it."""
    raise NotImplementedError(layer.kind)


@differences_behind.register
def _(layer: Filter, forms: Tensor, graph: Graph, _thorough: bool) -> Differences:
    return Differences(graph_filter(forms, graph, layer.taps))


@differences_behind.register
def _(layer: Linear, forms: Tensor, _graph: Graph, _thorough: bool) -> Differences:
    return Differences(_read_out(forms, layer.weight))


@differences_behind.register
def _(layer: Pointwise, forms: Tensor, _graph: Graph, _thorough: bool) -> Differences:
    return Differences(torch.zeros_like(forms), torch.zeros_like(forms[0]), forms, POINTWISE[layer.function].slopes)


@differences_behind.register
def _(layer: HopMixture, forms: Tensor, graph: Graph, thorough: bool) -> Differences:
    rule = OPERATIONS[layer.operation]
    centre, spread = torch.zeros_like(forms), torch.zeros_like(forms[0])
    for hop in hops_of(layer, graph, forms):
        (values,) = hop.signals
        select = partial(rule.differences, layer, values, thorough)
        middle, deviation = hop.reduce(select, values.size(0) * values.size(-1))
        weight = layer.weights[hop.number]
        centre, spread = centre + weight * middle, spread + weight.abs() * deviation
    return Differences(centre, spread, forms * layer.beta, POINTWISE["relu"].slopes)


def output_norms(layers: Layers, features: int, graph: Graph, *, thorough: bool = True) -> Tensor:
    r"""How far each output moves, at most, when every input moves by at most 1.

    Args:
        layers: a network; its readout may hold any rows, such as differences of classes.
        features: features of the input.
        graph: the graph, in float64.
        thorough: try all signs of the last ReLUs where a node has at most 8 of them, and compare all pairs of columns
            for the kernel; otherwise the result is larger and comes sooner.

    Shapes:
        result: ``(N, O)``.
    """
    body, readout = split_readout(layers)
    differences = Differences(unit_forms(graph.num_nodes, features))
    for layer in body:
        differences = differences_behind(layer, differences.settle(), graph, thorough)
    return differences.norms(None if readout is None else readout.weight, thorough)
