r"""Certified Lipschitz constants of filters, activations and whole networks.

Of one layer they come from its coefficients; of a network from the product of its layers and from affine forms of
differences (:mod:`graphact.guarantees.forms`). The proofs are in docs/guarantees.md.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, reduce

import torch
from torch import Tensor, nn

from graphact.graph import Graph
from graphact.graph.graph import check_graph
from graphact.guarantees.description import Block, Blocks, branches_of, graph_of, hops_of, split_readout, widths
from graphact.guarantees.forms import is_affordable, output_norms
from graphact.guarantees.magnitudes import magnitude_behind, magnitudes
from graphact.guarantees.models import read_model
from graphact.guarantees.pointwise import layer_norm_slope, rule_of
from graphact.guarantees.powers import MAX_NORM_WORK, PowerRows, Spend, WorkLimitError, bank_norms, limit_work
from graphact.guarantees.rules import MOST_ENTRIES, OPERATIONS
from graphact.spec import Filter, HopMixture, Layer, LayerNorm, Linear, Pointwise, Sum
from graphact.spec.operations import MAX

LABELS: dict[type[Layer], str] = {
    Filter: "filter",
    Linear: "linear",
    Pointwise: "activation",
    HopMixture: "activation",
    LayerNorm: "norm",
    Sum: "sum",
}


@dataclass(frozen=True, eq=False)
class LipschitzBound:
    r"""A constant L with :math:`\|f(x) - f(x')\|_\infty \le L \|x - x'\|_\infty` for all signals, and its origin.

    Attributes:
        value: the tightest certified constant.
        paper: the constant of the paper's Proposition 2; None for all but the graph-adaptive max activation.
        per_node: ``(N,)``, the same for the output of each node; ``value`` is the largest.
        composed: the product of the constants of the layers.
        layers: name and constant of each layer, from input to output.
        uses_forms: True if affine forms were used; False if they need too much memory, and ``value`` is the smaller of
            the product of the layers and the sum over all paths, which holds as well and is larger.
    """

    value: float
    paper: float | None
    per_node: Tensor
    composed: float
    layers: tuple[tuple[str, float], ...]
    uses_forms: bool = True

    def __repr__(self) -> str:
        paper = "" if self.paper is None else f", paper={self.paper:.6g}"
        return f"LipschitzBound(value={self.value:.6g}{paper}, composed={self.composed:.6g})"


@torch.no_grad()
def lipschitz_bound(module: nn.Module, graph: Graph, norm: float = math.inf) -> LipschitzBound:
    r"""Certify a Lipschitz constant of a module on a graph, in the infinity norm over nodes and features.

    - A filter bank or an FIR: its induced norm, exactly.
    - An activation: Proposition 2's constant as ``paper`` (graph-adaptive max), and a certificate for each node.
    - A network: the product of its layers as ``composed``, and a tighter one from affine forms of differences over the
      actual graph (see :mod:`graphact.guarantees.forms`), where these have at most 20 million coefficients; otherwise
      the sum of the magnitudes of all paths. ``uses_forms`` says which.

    Everything is computed in float64, and constants of networks are moved up by what that may lose; rounding errors of
    the module itself are not part of the statement.

    Args:
        module: a module of :mod:`graphact.nn` or one that describes itself, a chain or residual block of these and of
            torch's, or a model or convolution of PyG that docs/guarantees.md lists.
        graph: the graph.
        norm: only infinity.

    Raises:
        UnsupportedModelError: nothing is known about a part, such as a function of your own as the activation.
        ValueError: another norm.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).normalize("spectral")
        >>> activation = graphact.nn.GraphAdaptiveMax(hops=1)
        >>> _ = torch.nn.init.constant_(activation.weights, 0.5)
        >>> graphact.guarantees.lipschitz_bound(activation, path)
        LipschitzBound(value=1.70711, paper=1.70711, composed=1.70711)
        >>> graphact.guarantees.lipschitz_bound(activation, path).per_node
        tensor([1.7071, 1.3536, 1.7071], dtype=torch.float64)
    """
    if norm != math.inf:
        raise ValueError(f"norm must be inf: the certificates are for the infinity norm, got {norm!r}")
    graph = check_graph("graph", graph).to("cpu", torch.float64)
    layers, features = read_model(module, graph)
    every = layer_norms(layers, features, graph, limit_work(MAX_NORM_WORK))
    constants, lost = [norms.max().item() for norms in every], rounding(layers, features, graph)
    outputs, uses_forms = tightest_norms(layers, features, graph, every)
    per_node = (outputs + lost).amax(-1)
    return LipschitzBound(
        value=per_node.max().item(),
        paper=paper_constant(layers, graph),
        per_node=per_node,
        composed=math.prod(constants) + lost.max().item(),
        layers=tuple(zip(layer_names(layers), constants, strict=True)),
        uses_forms=uses_forms,
    )


def tightest_norms(layers: Blocks, features: int, graph: Graph, every: list[Tensor]) -> tuple[Tensor, bool]:
    """Return the constant of every output ``(N, O)``, and whether affine forms were small enough to be used."""
    composed = torch.minimum(composed_norms(every, features, graph), magnitudes(layers, features, graph)[0])
    if not is_affordable(layers, features, graph):
        return composed, False
    return torch.minimum(composed, output_norms(layers, features, graph)), True


def rounding(layers: Blocks, features: int, graph: Graph) -> Tensor:
    """More than float64 can lose in the constants of a network, ``(N, O)``; one activation is rounded to nearest.

    Every number is a sum of products along paths through the network. Its error is at most the number of roundings on
    the longest path times epsilon times the sum of the magnitudes, which the layers bound by their coefficients without
    signs; behind an activation forms and unknowns together are at most three times what it reads. Without graph and
    fractions nothing is lost.
    """
    total, longest = magnitudes(layers, features, graph, 3.0)
    only_one = len(layers) < 2 and all(isinstance(layer, HopMixture | Pointwise) for layer in layers)
    is_local = all(isinstance(layer, Linear | Pointwise | Filter) and not layer.exchanges for layer in layers)
    is_whole = all((array % 1 == 0).all() for layer in layers for array in layer.arrays().values())
    is_exact = only_one or (is_local and is_whole and bool(longest * total.max() < 2**52))
    return 0 * total if is_exact else longest * torch.finfo(torch.float64).eps * total


def paper_constant(layers: Blocks, graph: Graph) -> float | None:
    r"""Proposition 2 of the paper, :math:`|\beta| + K C \max_k \|S^k\|_\infty` with :math:`C = \max_k |h_k|`.

    None for what it does not speak of: anything but one graph-adaptive max.
    """
    only = layers[0] if len(layers) == 1 else None
    if not isinstance(only, HopMixture) or only.operation is not MAX or only.reads != "shifted":
        return None
    graph = graph_of(only, graph)
    largest = max(PowerRows(graph, hop + 1).norms.max().item() for hop in range(only.hops))
    return only.beta.abs().item() + only.hops * only.weights.abs().max().item() * largest


def layer_names(layers: Blocks) -> Iterator[str]:
    """What the layers are called in tables: filters and activations by their number, and the readout."""
    counts: Counter[str] = Counter()
    body, readout = split_readout(layers)
    for layer in body:
        label = label_of(layer)
        counts[label] += 1
        yield f"{label} {counts[label]}"
    if readout is not None:
        yield "readout"


def label_of(layer: Layer) -> str:
    """The kind of a layer, as tables call it."""
    return next(label for kind, label in LABELS.items() if isinstance(layer, kind))


def certified_norms(layers: Blocks, features: int, graph: Graph, *, thorough: bool = True) -> Tensor:
    """The tightest certified constant of every output, ``(N, O)``; differentiable, where the arrays are."""
    return reduce(torch.minimum, valid_norms(layers, features, graph, thorough))


def valid_norms(layers: Blocks, features: int, graph: Graph, thorough: bool) -> list[Tensor]:
    """Certified constants of every output, ``(N, O)`` each, of which the smallest counts.

    Beyond what is affordable: the sum of all coefficients in magnitude and the product of the layers, the latter where
    no filter bank has so many entries that a step of training would take seconds and gigabytes.
    """
    if is_affordable(layers, features, graph):
        composed = composed_norms(layer_norms(layers, features, graph), features, graph)
        return [composed, output_norms(layers, features, graph, thorough=thorough)]
    paths, entries = magnitudes(layers, features, graph)[0], graph.num_nodes + graph.num_edges
    if any(isinstance(layer, Filter) and layer.taps[0].numel() * entries > MOST_ENTRIES for layer in layers):
        return [paths]
    return [paths, composed_norms(layer_norms(layers, features, graph), features, graph)]


def composed_norms(every: list[Tensor], features: int, graph: Graph) -> Tensor:
    """The product of the constants of all layers but the last, times those of the last one, ``(N, O)``."""
    unit = torch.ones(graph.num_nodes, features, dtype=torch.float64)
    *before, last = [unit, *every]
    return math.prod((norms.max() for norms in before), start=unit.new_ones(())) * last


# Layer by layer


def layer_norms(layers: Blocks, features: int, graph: Graph, spend: Spend = lambda _: None) -> list[Tensor]:
    """The constants of every output of every layer, ``(N, F)`` each; from magnitudes where the work is too much."""
    pairs = zip(layers, widths(layers, features), strict=True)
    return [norms_within(spend, layer, width, graph) for layer, width in pairs]


def norms_within(spend: Spend, layer: Block, width: int, graph: Graph) -> Tensor:
    """The constants of a layer, ``(N, F)``: exact or, where that is too much work, without signs."""
    try:
        return norms_of(layer, width, graph, spend)
    except WorkLimitError:
        unit = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
        return magnitude_behind(layer, unit, graph)[0].expand(-1, width)


def norms_of(layer: Block, width: int, graph: Graph, spend: Spend) -> Tensor:
    r"""The Lipschitz constant of a layer of that width at every node and feature, ``(N, F)``.

    Of a filter bank, the largest is its induced infinity norm, exactly:

    .. math:: \sum_{j, g} \Big| \Big[\sum_k h_k^{fg} S^k\Big]_{ij} \Big|

    Max, min and median: :math:`|\beta| + \sum_k |h_k| \max_{j \in \mathcal{N}_i} \|e_j^\top S^k\|_1`. The first hop
    and the pointwise term are taken together, since they may read the same input with opposite signs. Kernel: the slope
    of the Gaussian times the largest differences of rows. Localized activations have the identity for :math:`S^k`.

    Raise WorkLimitError where ``spend`` allows no more operations.
    """
    spend(0.0)
    match layer:
        case Filter():
            return bank_norms(layer.taps, graph_of(layer, graph), spend)
        case Linear():
            return layer.weight.abs().sum(1).expand(graph.num_nodes, -1)
        case Pointwise():
            return torch.full((graph.num_nodes, width), rule_of(layer).steepest, dtype=torch.float64)
        case LayerNorm():
            slope = layer_norm_slope(layer.features, layer.epsilon).expand(graph.num_nodes, width)
            return slope if layer.weight is None else slope * layer.weight.abs()
        case Sum():
            start, total = layer.in_features or width, torch.zeros(())
            for branch in branches_of(layer):
                total = total + composed_norms(layer_norms(branch, start, graph, spend), start, graph)
            return total
        case HopMixture():
            rule, total = OPERATIONS[layer.operation], layer.beta.abs().expand(graph.num_nodes, width)
            for hop in hops_of(layer, graph):
                rows = PowerRows(graph_of(layer, graph), hop.number + 1 if layer.reads == "shifted" else 0, spend)
                total = total + hop.reduce_one(partial(rule.constants, layer, hop.number, rows), rows.entries_at_once)
            return total
