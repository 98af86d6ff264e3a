r"""Certify decisions and output intervals for all signals within a radius of given ones.

Affine forms contain all values of signals in a box. A form is :math:`c + \sum_m g_m \varepsilon_m + s\,\varepsilon`
with every :math:`\varepsilon` in [-1, 1]: a centre, generators that nodes share, and a slack of its own for every node
and feature. Filters act on forms exactly; each nonlinearity is replaced by a form that contains it. The proofs are in
docs/guarantees.md.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_number
from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal
from graphact.guarantees.layers import (
    EPSILON,
    Block,
    Blocks,
    evaluate_with_error,
    get_branches,
    iterate_hops,
    propagate_rounding_error,
    read_model,
    read_signals,
    resolve_graph,
    split_readout,
    widths,
)
from graphact.guarantees.lipschitz import (
    MAX_NORM_WORK,
    form_sizes,
    layer_constants,
    limit_work,
    rounding,
    tightest_norms,
    unless_nan,
)
from graphact.guarantees.rules import MAX_ENTRIES, OPERATIONS, POINTWISE, PointwiseRule, find_rule, layer_norm_box
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum

ROUNDING = 1e-9  # of the outputs, by which bounds are moved outward beside the bounds of rounding errors
MAX_GENERATORS = 5 * MAX_ENTRIES  # coefficients of the forms of one signal, 800 MB
Kind = Literal["auto", "classifier", "regressor"]
Constants = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Certificate:
    """Statements that hold for every signal within the radius of the given ones.

    Attributes:
        radius: the largest change of any input.
        outputs: ``(..., N, O)``, the outputs for the given signals.
        lower: ``(..., N, O)``; no output falls below.
        upper: ``(..., N, O)``; no output rises above.
        decisions: ``(..., N)``, the class with the largest output; None for a regressor.
        margins: ``(..., N)``, by how much that class stays ahead of every other, at least; None for a regressor.
    """

    radius: float
    outputs: Tensor
    lower: Tensor
    upper: Tensor
    decisions: Tensor | None
    margins: Tensor | None

    @property
    def certified(self) -> Tensor:
        """``(..., N)``: the nodes whose decision provably does not change.

        Raises:
            TypeError: a regressor makes no decisions; look at ``lower`` and ``upper``.
        """
        if self.margins is None:
            raise TypeError("a regressor makes no decisions; lower and upper hold its certified interval")
        return self.margins > 0


@torch.no_grad()
def certify(model: nn.Module, graph: Graph, x: Tensor, radius: float, *, kind: Kind = "auto") -> Certificate:
    r"""Certify the answers of a network for all :math:`x'` with :math:`\|x' - x\|_\infty \le` radius.

    Two certificates are computed and the better one is used for every output: affine forms over the box around x,
    and the answer at x plus or minus the radius times the certified Lipschitz constant of that output, or of that
    difference of two classes. Where the forms of one signal have more than 100 million coefficients (about 2,000 nodes
    with 4 features), there is only the second one.

    Args:
        model: any model that :func:`lipschitz_bound` accepts.
        graph: the graph.
        x: signals.
        radius: largest change of any input, not negative.
        kind: "classifier" decides for the largest output of a node; "auto" takes a model with several outputs for one.

    Shapes:
        x: ``(..., N, F)``.

    Raises:
        UnsupportedModelError: nothing is known about a part of the model.
        ValueError: radius is negative or not finite, or a classifier has one output.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2).normalize("spectral")
        >>> model = graphact.nn.GCNN([1, 4], activation="max-ga", out_features=3)
        >>> certificate = graphact.guarantees.certify(model, graph, torch.randn(2, 10, 1), radius=1e-4)
        >>> certificate.certified.shape
        torch.Size([2, 10])
        >>> bool((certificate.lower <= certificate.upper).all())
        True
    """
    check_choice("kind", kind, ("auto", "classifier", "regressor"))
    radius = check_radius(radius)
    shape = check_signal(x, check_graph("graph", graph)).shape
    layers, features = read_model(model, graph, x.size(-1))
    x = read_signals(x)
    graph = graph.to("cpu", torch.float64)
    constants = _constants(layers, features, graph)
    largest = max((size for _, size in form_sizes(layers, features, graph)), default=1)
    batch = max(1, MAX_ENTRIES // largest)
    parts = [
        _certify(layers, graph, part, radius, kind, constants, largest <= MAX_GENERATORS) for part in x.split(batch)
    ]
    columns = [torch.cat(column).reshape(*shape[:-2], *column[0].shape[1:]) for column in zip(*parts, strict=True)]
    outputs, lower, upper, *decided = columns
    return Certificate(radius, outputs, lower, upper, *(decided or (None, None)))


def check_radius(radius: Any) -> float:
    """Return a radius as a finite float, at least 0."""
    if not 0 <= check_number("radius", radius) < float("inf"):
        raise ValueError(f"radius must be a finite number, at least 0, got {radius}")
    return float(radius)


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


def with_errors(forms: Zonotope, layers: Blocks, graph: Graph, error: Tensor | None = None) -> tuple[Zonotope, Tensor]:
    """Propagate forms and their rounding errors ``(B, N, F)`` through all layers."""
    error = torch.zeros_like(forms.centre) if error is None else error
    for layer in layers:
        forms = forms.settle()
        if isinstance(layer, Sum):
            branches = [with_errors(forms, branch, graph, error) for branch in get_branches(layer)]
            sizes = torch.stack([branch.size for branch, _ in branches]).sum(0)
            error = torch.stack([each for _, each in branches]).sum(0) + 2 * len(branches) * EPSILON * sizes
            forms = add_branches([branch for branch, _ in branches], forms)
        else:
            error = propagate_rounding_error(layer, forms.size, error, graph, forms.generators.size(1))
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
            raise AssertionError("the branches of a sum are walked through one by one")
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


def _constants(layers: Blocks, features: int, graph: Graph) -> Constants:
    """Return the certified constants of all outputs, ``(N, O)``, and of all differences of two, ``(N, O, O)``."""
    body, readout = split_readout(layers)
    count = [features, *widths(layers, features)][-1]
    rows = torch.eye(count, dtype=torch.float64) if readout is None else readout.weight
    first, second = torch.triu_indices(count, count, 1)
    every = (*body, Linear(torch.cat([rows, rows[first] - rows[second]])))
    limited = layer_constants(every, features, graph, limit_work(MAX_NORM_WORK))
    norms, _ = tightest_norms(every, features, graph, limited)
    outputs, pairs = (norms + rounding(every, features, graph)).split([count, len(first)], -1)
    between = outputs.new_zeros(graph.num_nodes, count, count)
    between[:, first, second] = between[:, second, first] = pairs
    return outputs, between


def _certify(
    layers: Blocks, graph: Graph, x: Tensor, radius: float, kind: str, constants: Constants, with_forms: bool
) -> tuple[Tensor, ...]:
    """Return outputs, their bounds and, for a classifier, decisions and margins."""
    body, readout = split_readout(layers)
    outputs, rounding_error = evaluate_with_error(layers, x, graph)
    if kind == "classifier" and outputs.size(-1) == 1:
        raise ValueError("kind must be 'regressor' or 'auto' for a model with one output a node, got 'classifier'")
    size, reach = outputs.abs().amax() + radius, radius * constants[0] + rounding_error
    lower, upper = outputs - reach, outputs + reach
    if with_forms:
        features, error = with_errors(Zonotope.box(x, radius), body, graph)
        forms = features.read_out(readout)
        if readout is not None:
            error = propagate_rounding_error(readout, features.size, error, graph, features.generators.size(1))
        error = error + 2 * features.generators.size(1) * EPSILON * forms.size
        width = forms.radius + error
        lower, upper = torch.fmax(lower, forms.centre - width), torch.fmin(upper, forms.centre + width)
    lower, upper = unless_nan(lower - ROUNDING * size, -torch.inf), unless_nan(upper + ROUNDING * size, torch.inf)
    if kind == "regressor" or (kind == "auto" and outputs.size(-1) == 1):
        return outputs, lower, upper
    decisions = outputs.argmax(-1)
    chosen = decisions.unsqueeze(-1)
    apart = constants[1][torch.arange(graph.num_nodes), decisions]
    margins = outputs.gather(-1, chosen) - outputs - radius * apart - error_of_differences(rounding_error, chosen)
    if with_forms:
        margins = torch.fmax(
            margins, _margins(features, forms, readout, decisions) - error_of_differences(error, chosen)
        )
    margin = margins.scatter(-1, chosen, torch.inf).amin(-1) - ROUNDING * size
    return outputs, lower, upper, decisions, unless_nan(margin, -torch.inf)


def error_of_differences(error: Tensor, chosen: Tensor) -> Tensor:
    """Return the errors of the differences between one output and each, from those of the outputs."""
    return error + error.gather(-1, chosen)


def _margins(features: Zonotope, forms: Zonotope, readout: Linear | None, decisions: Tensor) -> Tensor:
    """Bound the lead of the decided class over each, from forms of the outputs and those before the readout."""
    chosen = decisions.unsqueeze(-1)
    columns = chosen.unsqueeze(1).expand(-1, forms.generators.size(1), -1, -1)
    margins = forms.centre.gather(-1, chosen) - forms.centre
    margins = margins - (forms.generators.gather(-1, columns) - forms.generators).abs().sum(1)
    if readout is None:
        return margins - forms.slack.gather(-1, chosen) - forms.slack
    differences = (readout.weight[decisions].unsqueeze(-2) - readout.weight).abs()
    return margins - (differences * features.slack.unsqueeze(-2)).sum(-1)
