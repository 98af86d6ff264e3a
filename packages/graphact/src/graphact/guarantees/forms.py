r"""Affine forms of the differences that a network makes of two inputs, all of them held at once.

For two inputs :math:`x, x'` the difference at any point of a network is a matrix times :math:`x - x'`, and every row of
that matrix is an *affine form*: known coefficients of the inputs, plus known coefficients of unknown row vectors whose
1-norm is at most 1. The forms of all nodes and features are kept as a batch of signals ``(M, N, F)``, one for each of
the M inputs and unknowns; filters and shifts act on it as on any batch. The 1-norm over M bounds what the output can
move when every input moves by at most 1. The proofs are in docs/guarantees.md.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.guarantees.description import Block, Blocks, branches_of, graph_of, hops_of, split_readout, widths
from graphact.guarantees.pointwise import POINTWISE, layer_norm_slope, rule_of
from graphact.guarantees.rules import MOST_ENTRIES, OPERATIONS
from graphact.spec import Filter, HopMixture, Layer, LayerNorm, Linear, Pointwise, Sum

MOST_COEFFICIENTS = MOST_ENTRIES  # of the forms of a layer that are held at once; above, they come in blocks
MOST_ENUMERATED = 8  # ReLUs of a node whose signs are all tried
MOST_TRIED = 300_000_000  # coefficients times combinations of signs, some seconds
IN_CACHE = 1 << 19  # numbers; larger tables take several times longer for each


def output_norms(layers: Blocks, features: int, graph: Graph, *, thorough: bool = True) -> Tensor:
    """How far each output ``(N, O)`` moves, at most, when every input moves by at most 1.

    The readout may hold any rows, such as differences of classes. A thorough search tries all signs of up to 8 of a
    node's last ReLUs, as many as a fixed number of operations allows, and compares all pairs of columns for the kernel;
    otherwise the result is larger and comes sooner.
    """
    body, readout = split_readout(layers)
    weight = None if readout is None else readout.weight
    behind: Tensor | Differences = unit_forms(graph.num_nodes, features)
    for layer in body:
        behind = differences_behind(layer, settled(behind), graph, thorough)
    return behind.norms(weight, thorough) if isinstance(behind, Differences) else row_norms(read_out(behind, weight))


def unit_forms(num_nodes: int, features: int) -> Tensor:
    """The forms of the inputs themselves: one signal for each of the N F inputs."""
    return torch.eye(num_nodes * features, dtype=torch.float64).view(-1, num_nodes, features)


def row_norms(forms: Tensor) -> Tensor:
    """The 1-norm of each form, ``(M, N, F)`` to ``(N, F)``."""
    return forms.abs().sum(0)


@dataclass(frozen=True)
class Differences:
    """Forms behind an activation: ``forms + d * rectified``, up to ``spread``, with any d between the slopes."""

    forms: Tensor  # (M, N, F)
    spread: Tensor  # (N, F), the size of a further unknown at every node and feature
    rectified: Tensor  # (M, N, F), what a pointwise function reads
    slopes: tuple[float, float]  # the least and the largest of that function

    def settle(self) -> Tensor:
        """Forms with a fresh unknown at every node and feature, for the spread and for the slope."""
        forms, spread = self.halfway()
        return torch.cat([forms, torch.diag(spread.flatten()).view(-1, *spread.shape)])

    def norms(self, readout: Tensor | None, thorough: bool) -> Tensor:
        """The largest 1-norm of every form, ``(N, F)``, or behind a readout ``(O, F)``, ``(N, O)``."""
        size = None if readout is None else readout.abs()
        if thorough:
            return self.over_slopes(readout) + read_out(self.spread, size)
        forms, spread = self.halfway()
        return row_norms(read_out(forms, readout)) + read_out(spread, size)

    def halfway(self) -> tuple[Tensor, Tensor]:
        """The forms for the slope in the middle, and the spread with what other slopes make of it."""
        low, high = self.slopes
        forms = self.forms + (low + high) / 2 * self.rectified
        return forms, self.spread + (high - low) / 2 * row_norms(self.rectified)

    def over_slopes(self, readout: Tensor | None) -> Tensor:
        """The largest 1-norm over slopes of a node's features: it is convex in them, each least or largest.

        Behind a readout only the features that weigh most are tried, as many as :func:`slopes_tried` allows.
        """
        if readout is None:
            return torch.maximum(*(row_norms(self.forms + slope * self.rectified) for slope in self.slopes))
        low, high = self.slopes
        norms, count = row_norms(self.rectified), slopes_tried(readout, self.forms[..., 0].numel())
        choices = torch.tensor(list(itertools.product(self.slopes, repeat=count)), dtype=torch.float64)
        step = max(1, IN_CACHE // max(1, self.forms.size(0) * len(choices)))
        best = []
        for row in readout:
            chosen = (row.abs() * norms.amax(0)).topk(count).indices
            rest = row.scatter(0, chosen, 0.0)
            fixed = self.forms @ row + self.rectified @ rest * ((low + high) / 2)
            scaled = choices * row[chosen]
            parts = zip(fixed.split(step, 1), self.rectified[..., chosen].split(step, 1), strict=True)
            largest = [(part.unsqueeze(-1) + free @ scaled.T).abs().sum(0).amax(-1) for part, free in parts]
            best.append(torch.cat(largest) + (high - low) / 2 * (norms @ rest.abs()))
        return torch.stack(best, -1)


def slopes_tried(readout: Tensor, coefficients: int) -> int:
    """For how many of a node's features all combinations of slopes are tried, for each output of a readout ``(O, F)``.

    ``coefficients`` is the number of forms of a feature times that of their columns.
    """
    if readout.numel() == 0:
        return 0
    most = int(math.log2(max(1, MOST_TRIED // max(1, coefficients * len(readout)))))
    return min(most, MOST_ENUMERATED, int((readout != 0).sum(1).max()))


def settled(behind: Tensor | Differences) -> Tensor:
    """Forms of differences, with the unknowns of the last layer among them."""
    return behind.settle() if isinstance(behind, Differences) else behind


def read_out(forms: Tensor, readout: Tensor | None) -> Tensor:
    """Forms behind the linear map that all nodes share."""
    return forms if readout is None else forms @ readout.T


def differences_behind(layer: Block, forms: Tensor, graph: Graph, thorough: bool) -> Tensor | Differences:
    """Differences behind a layer, from the forms ``(M, N, F)`` in front of it."""
    centre, spread = torch.zeros_like(forms), torch.zeros_like(forms[0])
    match layer:
        case Filter():
            return graph_filter(forms, graph_of(layer, graph), layer.taps)
        case Linear():
            return read_out(forms, layer.weight)
        case Pointwise():
            return Differences(centre, spread, forms, rule_of(layer).slopes)
        case LayerNorm():  # nothing is known of the direction
            moved = row_norms(forms).amax(-1, keepdim=True) * layer_norm_slope(layer.features, layer.epsilon)
            moved = moved.expand_as(spread) if layer.weight is None else moved * layer.weight.abs()
            return Differences(centre, moved, centre, (0.0, 0.0))
        case Sum():
            branches = []
            for branch in branches_of(layer):
                behind: Tensor | Differences = forms
                for inner in branch:
                    behind = differences_behind(inner, settled(behind), graph, thorough)
                branches.append(settled(behind))
            shared = forms.size(0)  # then come the unknowns of each branch
            total = torch.stack([branch[:shared] for branch in branches]).sum(0)
            return torch.cat([total, *(branch[shared:] for branch in branches)])
        case HopMixture():
            rule = OPERATIONS[layer.operation]
            for hop in hops_of(layer, graph, forms):
                select = partial(rule.differences, layer, hop.signals[0], thorough)
                middle, deviation = hop.reduce(select, forms.size(0) * forms.size(-1))
                weight = layer.weights[hop.number]
                centre, spread = centre + weight * middle, spread + weight.abs() * deviation
            return Differences(centre, spread, forms * layer.beta, POINTWISE["relu"].slopes)


def form_sizes(layers: Blocks, features: int, graph: Graph) -> Iterator[tuple[int, int]]:
    """For each layer in front of the readout: coefficients of the forms behind it, without and with its unknowns."""
    columns = graph.num_nodes * features
    body, _ = split_readout(layers)
    before = features
    for layer, width in zip(body, widths(body, features), strict=True):
        unknowns, widest = unknowns_of(layer, before, width)
        outputs, unknowns = graph.num_nodes * widest, graph.num_nodes * unknowns
        if isinstance(layer, Sum):  # its branches hold their unknowns before they are added
            columns, unknowns = columns + unknowns, 0
        yield columns * outputs, (columns + unknowns) * outputs
        columns, before = columns + unknowns, width


def unknowns_of(layer: Layer, before: int, width: int) -> tuple[int, int]:
    """How many unknowns a node has behind a layer, and the most features on the way."""
    if not isinstance(layer, Sum):
        return (width if isinstance(layer, Pointwise | HopMixture | LayerNorm) else 0), width
    unknowns, widest = 0, width
    for branch in branches_of(layer):
        inner = before
        for part, behind in zip(branch, widths(branch, before), strict=True):
            more, wide = unknowns_of(part, inner, behind)
            unknowns, widest, inner = unknowns + more, max(widest, wide), behind
    return unknowns, widest


def is_affordable(layers: Blocks, features: int, graph: Graph) -> bool:
    """Whether the affine forms of all layers fit into memory."""
    return all(size <= MOST_COEFFICIENTS for size, _ in form_sizes(layers, features, graph))
