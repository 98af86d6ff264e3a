"""Which decisions cannot change, and which values cannot be left, for any perturbation within a radius."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphact._checks import check_choice
from graphact.analysis.description import Layers, read_layers, read_signals, split_readout
from graphact.analysis.lipschitz import form_sizes, is_affordable, output_norms
from graphact.analysis.rules import MOST_ENTRIES
from graphact.analysis.zonotope import Zonotope, through_layers
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal
from graphact.layers import Linear
from graphact.nn import GraphModule

ROUNDING = 1e-9  # bounds are moved outward by this share of the numbers involved, far more than float64 loses
MOST_EXACT_CLASSES = 8  # above, the pairs are too many to try all signs of the last ReLUs
Kind = Literal["auto", "classifier", "regressor"]
Constants = tuple[Tensor, Tensor] | None


@dataclass(frozen=True, eq=False)
class Certificate:
    """What holds for every signal within the radius of the given ones.

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
def certify(model: GraphModule, graph: Graph, x: Tensor, radius: float, *, kind: Kind = "auto") -> Certificate:
    r"""Certify the answers of a network for all :math:`x'` with :math:`\|x' - x\|_\infty \le` radius.

    Two certificates are computed and the better one is used for every output: affine forms over the box around x
    (:mod:`graphact.analysis.zonotope`), and the answer at x plus or minus the radius times the certified Lipschitz
    constant of that output, or of that difference of two classes.

    Args:
        model: a GCNN, an FIR, a filter bank, an activation, or another module that describes itself.
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
        >>> certificate = graphact.analysis.certify(model, graph, torch.randn(2, 10, 1), radius=1e-4)
        >>> certificate.certified.shape
        torch.Size([2, 10])
        >>> bool((certificate.lower <= certificate.upper).all())
        True
    """
    check_choice("kind", kind, ("auto", "classifier", "regressor"))
    if not 0 <= float(radius) < float("inf"):
        raise ValueError(f"radius must be a finite number, at least 0, got {radius}")
    graph = check_graph("graph", graph)
    shape = check_signal(x, graph).shape
    layers, features = read_layers(model, x.size(-1))
    x = read_signals(x)
    graph = graph.to("cpu", torch.float64)
    constants = _constants(layers, features, graph)
    batch = max(1, MOST_ENTRIES // max((size for _, size in form_sizes(layers, features, graph)), default=1))
    parts = [_certify(layers, graph, part, float(radius), kind, constants) for part in x.split(batch)]
    columns = [torch.cat(column).reshape(*shape[:-2], *column[0].shape[1:]) for column in zip(*parts, strict=True)]
    outputs, lower, upper, *decided = columns
    return Certificate(float(radius), outputs, lower, upper, *(decided or (None, None)))


def _constants(layers: Layers, features: int, graph: Graph) -> Constants:
    """The certified constants of all outputs, ``(N, O)``, and of all differences of two, ``(N, O, O)``."""
    if not is_affordable(layers, features, graph):
        return None
    body, readout = split_readout(layers)
    outputs = output_norms(layers, features, graph)
    count = outputs.size(-1)
    rows = torch.eye(count, dtype=torch.float64) if readout is None else readout.weight
    pairs = Linear((rows.unsqueeze(1) - rows).flatten(0, 1))
    between = output_norms((*body, pairs), features, graph, thorough=count <= MOST_EXACT_CLASSES)
    return outputs, between.unflatten(-1, (count, -1))


def _certify(
    layers: Layers, graph: Graph, x: Tensor, radius: float, kind: str, constants: Constants
) -> tuple[Tensor, ...]:
    """Outputs, their bounds and, for a classifier, decisions and margins."""
    body, readout = split_readout(layers)
    outputs = through_layers(Zonotope.point(x), body, graph).read_out(readout).centre
    if kind == "classifier" and outputs.size(-1) == 1:
        raise ValueError("kind must be 'regressor' or 'auto' for a model with one output a node, got 'classifier'")
    features = through_layers(Zonotope.box(x, radius), body, graph)
    forms = features.read_out(readout)
    size = outputs.abs().amax() + radius
    reach = torch.full_like(outputs, torch.inf) if constants is None else radius * constants[0]
    lower = torch.maximum(forms.centre - forms.radius, outputs - reach) - ROUNDING * size
    upper = torch.minimum(forms.centre + forms.radius, outputs + reach) + ROUNDING * size
    if kind == "regressor" or (kind == "auto" and outputs.size(-1) == 1):
        return outputs, lower, upper
    decisions = outputs.argmax(-1)
    chosen = decisions.unsqueeze(-1)
    columns = chosen.unsqueeze(1).expand(-1, forms.generators.size(1), -1, -1)
    margins = forms.centre.gather(-1, chosen) - forms.centre
    margins = margins - (forms.generators.gather(-1, columns) - forms.generators).abs().sum(1)
    if readout is None:
        margins = margins - forms.slack.gather(-1, chosen) - forms.slack
    else:
        differences = (readout.weight[decisions].unsqueeze(-2) - readout.weight).abs()
        margins = margins - (differences * features.slack.unsqueeze(-2)).sum(-1)
    if constants is not None:
        apart = constants[1][torch.arange(graph.num_nodes), decisions]
        margins = margins.maximum(outputs.gather(-1, chosen) - outputs - radius * apart)
    margin = margins.scatter(-1, chosen, torch.inf).amin(-1) - ROUNDING * size
    return outputs, lower, upper, decisions, margin
