r"""All values that signals of a box can take: affine forms, carried soundly through a network.

A form is :math:`c + \sum_m g_m \varepsilon_m + s\,\varepsilon` with every :math:`\varepsilon` in [-1, 1]: a centre,
generators that nodes share, and a slack of its own for every node and feature. Filters act on forms exactly; each
nonlinearity is replaced by a form that contains it. The proofs are in docs/guarantees.md.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from graphact.analysis.neighbors import gather, reduce_tables, terms
from graphact.analysis.parts import Network, Nonlinearity, Stage
from graphact.functional import graph_filter
from graphact.graph import Graph

GREATEST_CURVATURE = 2 * math.exp(-1.5)  # of the Gaussian exp(-t^2 / 2), above; below it is -1


@dataclass(frozen=True)
class Zonotope:
    """Forms of a batch of signals.

    Attributes:
        centre: ``(B, N, F)``.
        generators: ``(B, M, N, F)``.
        slack: ``(B, N, F)``, not negative.
    """

    centre: Tensor
    generators: Tensor
    slack: Tensor

    @classmethod
    def point(cls, x: Tensor) -> "Zonotope":
        """The signals ``x`` ``(B, N, F)`` and no others: without generators, so that every step is exact."""
        return cls(x, x.new_zeros(x.size(0), 0, *x.shape[1:]), torch.zeros_like(x))

    @classmethod
    def box(cls, x: Tensor, radius: float) -> "Zonotope":
        """All signals that differ from ``x`` ``(B, N, F)`` by at most the radius at every node and feature."""
        inputs = x.size(-2) * x.size(-1)
        generators = radius * torch.eye(inputs, dtype=x.dtype).view(-1, *x.shape[-2:])
        return cls(x, generators.expand(x.size(0), -1, -1, -1), torch.zeros_like(x))

    @property
    def radius(self) -> Tensor:
        """How far values can be from the centre."""
        return self.generators.abs().sum(1) + self.slack

    def settle(self) -> "Zonotope":
        """The same forms with every slack as a generator, as a linear map needs them."""
        fresh = torch.diag_embed(self.slack.flatten(1)).unflatten(-1, self.slack.shape[1:])
        return Zonotope(self.centre, torch.cat([self.generators, fresh], 1), torch.zeros_like(self.slack))


def through_network(forms: Zonotope, network: Network, graph: Graph) -> Zonotope:
    """Forms of the features in front of the readout."""
    for stage in network.stages:
        forms = through_stage(forms, stage, graph)
    return forms


def through_stage(forms: Zonotope, stage: Stage, graph: Graph) -> Zonotope:
    """Forms behind a filter bank and an activation."""
    forms = forms.settle() if forms.slack.any() else forms
    if stage.taps is not None:
        centre = graph_filter(forms.centre, graph, stage.taps)
        generators = graph_filter(forms.generators, graph, stage.taps)
        forms = Zonotope(centre if stage.bias is None else centre + stage.bias, generators, torch.zeros_like(centre))
    return forms if stage.nonlinearity is None else through_activation(forms, stage.nonlinearity, graph)


def through_activation(forms: Zonotope, nonlinearity: Nonlinearity, graph: Graph) -> Zonotope:
    """Forms behind an activation; those in front must have no slack."""
    total = scale(rectify(forms), nonlinearity.beta)
    centres = terms(forms.centre, graph, nonlinearity)
    generators = terms(forms.generators, graph, nonlinearity)
    for (hop, centre, neighborhoods, closed), (_, shared, _, _) in zip(centres, generators, strict=True):
        read = partial(_read, nonlinearity, centre, shared)
        entries = shared.size(0) * shared.size(1) * shared.size(-1)
        term = Zonotope(*reduce_tables(read, neighborhoods, closed, entries))
        total = add(total, scale(term, nonlinearity.weights[hop]))
    return total


def _read(
    nonlinearity: Nonlinearity, centre: Tensor, generators: Tensor, nodes: Tensor, table: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The term of some nodes: centre, generators, slack."""
    if nonlinearity.op == "kernel":
        return gaussian(centre, generators, nodes, table, nonlinearity.gamma)
    return order_statistic(gather(centre, table), gather(generators, table), nonlinearity.op)


def scale(forms: Zonotope, factor: Tensor) -> Zonotope:
    """Forms times a number, or one for each feature."""
    return Zonotope(forms.centre * factor, forms.generators * factor, forms.slack * factor.abs())


def add(one: Zonotope, other: Zonotope) -> Zonotope:
    """The sum of two forms with the same generators."""
    return Zonotope(one.centre + other.centre, one.generators + other.generators, one.slack + other.slack)


def rectify(forms: Zonotope) -> Zonotope:
    """ReLU: exact where the sign is known, otherwise the band of least height around it."""
    lower, upper = forms.centre - forms.radius, forms.centre + forms.radius
    crossing = (lower < 0) & (upper > 0)
    slope = torch.where(crossing, upper / (upper - lower).clamp_min(1e-300), (lower >= 0).to(lower))
    half = torch.where(crossing, -slope * lower / 2, 0.0)
    return Zonotope(slope * forms.centre + half, slope.unsqueeze(1) * forms.generators, slope * forms.slack + half)


def order_statistic(centre: Tensor, generators: Tensor, op: str) -> tuple[Tensor, Tensor, Tensor]:
    """Max, min or lower median of forms ``(B, n, d, F)``, ``(B, M, n, d, F)``.

    With the mean m of all forms that may be the selected one, f(y) = m + f(y - m), and f is monotone: it lies between f
    of the lower and f of the upper ends of y - m.
    """
    if centre.size(-2) == 0:
        empty = centre.sum(-2)
        return empty, generators.sum(-2), empty.clone()
    radius = generators.abs().sum(1)
    least, most = select(centre - radius, op), select(centre + radius, op)
    possible = (centre + radius >= least.unsqueeze(-2)) & (centre - radius <= most.unsqueeze(-2))
    share = possible / possible.sum(-2, keepdim=True)
    middle, shared = (share * centre).sum(-2), (share.unsqueeze(1) * generators).sum(-2)
    apart = (generators - shared.unsqueeze(-2)).abs().sum(1)
    offset = centre - middle.unsqueeze(-2)
    lower, upper = select(offset - apart, op), select(offset + apart, op)
    return middle + (lower + upper) / 2, shared, (upper - lower) / 2


def select(values: Tensor, op: str) -> Tensor:
    """The operation over the second last dimension."""
    if op == "median":
        return values.median(-2).values
    return values.amax(-2) if op == "max" else values.amin(-2)


def gaussian(
    centre: Tensor, generators: Tensor, nodes: Tensor, table: Tensor, gamma: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernel of nodes and their neighbours, by its range or by its tangent plane, whichever is narrower."""
    offset = gather(centre, table) - centre[..., nodes, None, :]
    apart = gather(generators, table) - generators[..., nodes, None, :]
    radius = apart.abs().sum(1)
    nearest = (offset.abs() - radius).clamp_min(0).square().sum(-2)
    farthest = (offset.abs() + radius).square().sum(-2)
    least, most = (torch.exp(-spread / (2 * gamma**2)) for spread in (farthest, nearest))
    half = (most - least) / 2

    value = torch.exp(-offset.square().sum(-2) / (2 * gamma**2))
    tangent = -(apart * (offset * value.unsqueeze(-2)).unsqueeze(1)).sum(-2) / gamma**2
    bend = radius.square().sum(-2) / (2 * gamma**2)
    bent_half = bend * (1 + GREATEST_CURVATURE) / 2
    bent_value = value + bend * (GREATEST_CURVATURE - 1) / 2

    straight = tangent.abs().sum(1) + bent_half < half
    return (
        torch.where(straight, bent_value, least + half),
        torch.where(straight.unsqueeze(1), tangent, 0.0),
        torch.where(straight, bent_half, half),
    )


def read_out(forms: Zonotope, network: Network) -> Zonotope:
    """Forms of the outputs; the slack of a node's features adds up."""
    if network.readout is None:
        return forms
    centre = forms.centre @ network.readout.T
    return replace(
        forms,
        centre=centre if network.readout_bias is None else centre + network.readout_bias,
        generators=forms.generators @ network.readout.T,
        slack=forms.slack @ network.readout.abs().T,
    )
