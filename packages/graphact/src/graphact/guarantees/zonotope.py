r"""Zonotopes: affine forms that contain all values of signals in a box, propagated soundly through a network.

A form is :math:`c + \sum_m g_m \varepsilon_m + s\,\varepsilon` with every :math:`\varepsilon` in [-1, 1]: a centre,
generators that nodes share, and a slack of its own for every node and feature. Filters act on forms exactly; each
nonlinearity is replaced by a form that contains it. The proofs are in docs/guarantees.md.
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.guarantees.layers import Block, Blocks, get_branches, iterate_hops, resolve_graph
from graphact.guarantees.norms import EPSILON, propagate_error
from graphact.guarantees.rules import OPERATIONS, POINTWISE, PointwiseRule, find_rule, layer_norm_box
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum


@dataclass(frozen=True)
class Zonotope:
    """Forms of a batch of signals."""

    centre: Tensor  # (B, N, F)
    generators: Tensor  # (B, M, N, F)
    slack: Tensor  # (B, N, F), not negative

    @classmethod
    def point(cls, x: Tensor) -> "Zonotope":
        """Return the forms of single signals ``(B, N, F)``: without generators, so that every step is exact."""
        return cls(x, x.new_zeros(x.size(0), 0, *x.shape[1:]), torch.zeros_like(x))

    @classmethod
    def box(cls, x: Tensor, radius: float) -> "Zonotope":
        """Return the forms of all signals that differ from ``x`` ``(B, N, F)`` by at most the radius."""
        inputs = x.size(-2) * x.size(-1)
        generators = radius * torch.eye(inputs, dtype=x.dtype).view(-1, *x.shape[-2:])
        return cls(x, generators.expand(x.size(0), -1, -1, -1), torch.zeros_like(x))

    @property
    def radius(self) -> Tensor:
        return self.generators.abs().sum(1) + self.slack

    @property
    def size(self) -> Tensor:
        """A bound on the magnitude of every value, and on the sum of all coefficients of a form."""
        return self.centre.abs() + self.radius

    def settle(self) -> "Zonotope":
        """Turn every slack into a generator, as maps that mix nodes or features need it."""
        if not self.slack.any():
            return self
        fresh = torch.diag_embed(self.slack.flatten(1)).unflatten(-1, self.slack.shape[1:])
        return Zonotope(self.centre, torch.cat([self.generators, fresh], 1), torch.zeros_like(self.slack))

    def scale(self, factor: Tensor) -> "Zonotope":
        return Zonotope(self.centre * factor, self.generators * factor, self.slack * factor.abs())

    def add(self, other: "Zonotope") -> "Zonotope":
        return Zonotope(self.centre + other.centre, self.generators + other.generators, self.slack + other.slack)

    def read_out(self, readout: Linear | None) -> "Zonotope":
        """Apply a linear map that mixes no nodes, without settling: the slack of a node's features adds up."""
        if readout is None:
            return self
        centre = self.centre @ readout.weight.T
        return Zonotope(
            centre if readout.bias is None else centre + readout.bias,
            self.generators @ readout.weight.T,
            self.slack @ readout.weight.abs().T,
        )

    def apply(self, rule: PointwiseRule) -> "Zonotope":
        """Apply a pointwise function, by a band that encloses it."""
        slope, offset, half = rule.band(self.centre - self.radius, self.centre + self.radius)
        return Zonotope(
            slope * self.centre + offset, slope.unsqueeze(1) * self.generators, slope.abs() * self.slack + half
        )

    def normalize(self, layer: LayerNorm) -> "Zonotope":
        """Apply a LayerNorm: its value at the centre, with the steepest slopes of the box around it."""
        value, slack = layer_norm_box(layer, self.centre, self.radius)
        return Zonotope(value, 0 * self.generators, slack)


def through_layers(forms: Zonotope, layers: Blocks, graph: Graph) -> Zonotope:
    """Propagate forms through all layers."""
    for layer in layers:
        forms = propagate_forms(layer, forms.settle(), graph)
    return forms


def with_errors(forms: Zonotope, layers: Blocks, graph: Graph, error: Tensor | None = None) -> tuple[Zonotope, Tensor]:
    """Propagate forms and their rounding errors ``(B, N, F)`` through all layers; see :func:`propagate_error`."""
    error = torch.zeros_like(forms.centre) if error is None else error
    for layer in layers:
        forms = forms.settle()
        if isinstance(layer, Sum):
            branches = [with_errors(forms, branch, graph, error) for branch in get_branches(layer)]
            sizes = torch.stack([branch.size for branch, _ in branches]).sum(0)
            error = torch.stack([lost for _, lost in branches]).sum(0) + 2 * len(branches) * EPSILON * sizes
            forms = add_branches([branch for branch, _ in branches], forms)
        else:
            error = propagate_error(layer, forms.size, error, graph, forms.generators.size(1))
            forms = propagate_forms(layer, forms, graph)
    return forms, error


def propagate_forms(layer: Block, forms: Zonotope, graph: Graph) -> Zonotope:
    """Propagate forms without slack through a layer."""
    match layer:
        case Filter():
            graph = resolve_graph(layer, graph)
            centre, generators = (graph_filter(x, graph, layer.taps) for x in (forms.centre, forms.generators))
            return Zonotope(centre if layer.bias is None else centre + layer.bias, generators, torch.zeros_like(centre))
        case Linear():
            return forms.read_out(layer)
        case Pointwise():
            return forms.apply(find_rule(layer))
        case LayerNorm():
            return forms.normalize(layer)
        case Sum():
            return add_branches([through_layers(forms, branch, graph) for branch in get_branches(layer)], forms)
        case HopMixture():
            rule = OPERATIONS[layer.operation]
            total = forms.apply(POINTWISE["relu"]).scale(layer.beta)
            for hop in iterate_hops(layer, graph, forms.centre, forms.generators):
                samples, shared, _, features = hop.signals[1].shape
                term = Zonotope(*hop.reduce(partial(rule.enclose, layer, *hop.signals), samples * shared * features))
                total = total.add(term.scale(layer.weights[hop.number]))
            return total


def add_branches(branches: list[Zonotope], before: Zonotope) -> Zonotope:
    """Add forms of branches that share the generators before them and have others of their own."""
    shared = before.generators.size(1)
    own = [branch.generators[:, shared:] for branch in branches]
    total = torch.stack([branch.generators[:, :shared] for branch in branches]).sum(0)
    centre, slack = (torch.stack(parts).sum(0) for parts in zip(*((b.centre, b.slack) for b in branches), strict=True))
    return Zonotope(centre, torch.cat([total, *own], 1), slack)
