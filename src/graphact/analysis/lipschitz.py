"""Certified Lipschitz constants of filters, activations and whole networks."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial, singledispatch

import torch
from torch import Tensor, nn

from graphact.analysis.description import Layers, hops_of, read_layers, split_readout, widths
from graphact.analysis.rules import MOST_ENTRIES, OPERATIONS, POINTWISE, row_norms
from graphact.analysis.sensitivity import bank_rows, output_norms, unit_forms
from graphact.functional import shift
from graphact.graph import Graph
from graphact.graph.graph import check_graph
from graphact.layers import Filter, HopMixture, Layer, Linear, Pointwise
from graphact.operations import MAX

LABELS: dict[type[Layer], str] = {Filter: "filter", Linear: "linear", Pointwise: "activation", HopMixture: "activation"}


@dataclass(frozen=True, eq=False)
class LipschitzBound:
    r"""A constant L with :math:`\|f(x) - f(x')\|_\infty \le L \|x - x'\|_\infty` for all signals, and its origin.

    Attributes:
        value: the tightest certified constant.
        paper: the constant of the paper's Proposition 2; None for all but the graph-adaptive max activation.
        per_node: ``(N,)``, the same for the output of each node; ``value`` is the largest.
        composed: the product of the constants of the layers.
        layers: name and constant of each layer, from input to output.
    """

    value: float
    paper: float | None
    per_node: Tensor
    composed: float
    layers: tuple[tuple[str, float], ...]

    def __repr__(self) -> str:
        paper = "" if self.paper is None else f", paper={self.paper:.6g}"
        return f"LipschitzBound(value={self.value:.6g}{paper}, composed={self.composed:.6g})"


def lipschitz_bound(module: nn.Module, graph: Graph, norm: float = math.inf) -> LipschitzBound:
    r"""Certify a Lipschitz constant of a module on a graph, in the infinity norm over nodes and features.

    - A filter bank or an FIR: its induced norm, exactly.
    - An activation: Proposition 2's constant as ``paper`` (graph-adaptive max), and a certificate for each node.
    - A network: the product of its layers as ``composed``, and a tighter one from affine forms of differences over the
      actual graph (see :mod:`graphact.analysis.sensitivity`). Networks too large for that (more than 20 million
      coefficients in a layer) get the product.

    Everything is computed in float64; rounding errors of the module itself are not part of the statement.

    Args:
        module: a GCNN, an FIR, a filter bank or an activation of :mod:`graphact.nn`, or a module that describes itself.
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
        >>> graphact.analysis.lipschitz_bound(activation, path)
        LipschitzBound(value=1.70711, paper=1.70711, composed=1.70711)
        >>> graphact.analysis.lipschitz_bound(activation, path).per_node
        tensor([1.7071, 1.3536, 1.7071], dtype=torch.float64)
    """
    if norm != math.inf:
        raise ValueError(f"norm must be inf: the certificates are for the infinity norm, got {norm!r}")
    graph = check_graph("graph", graph).to("cpu", torch.float64)
    with torch.no_grad():
        layers, features = read_layers(module)
        constants = [norms.max().item() for norms in layer_norms(layers, features, graph)]
        per_node = certified_norms(layers, features, graph).amax(-1)
        return LipschitzBound(
            value=per_node.max().item(),
            paper=paper_constant(layers, graph),
            per_node=per_node,
            composed=math.prod(constants),
            layers=tuple(zip(layer_names(layers), constants, strict=True)),
        )


def certified_norms(layers: Layers, features: int, graph: Graph, *, thorough: bool = True) -> Tensor:
    """The tightest certified constant of every output, ``(N, O)``; differentiable, where the arrays are."""
    unit = torch.ones(graph.num_nodes, features, dtype=torch.float64)
    *before, last = [unit, *layer_norms(layers, features, graph)]
    composed = math.prod((norms.max() for norms in before), start=unit.new_ones(())) * last
    if not is_affordable(layers, features, graph):
        return composed
    return torch.minimum(composed, output_norms(layers, features, graph, thorough=thorough))


def layer_norms(layers: Layers, features: int, graph: Graph) -> list[Tensor]:
    """The constants of every output of every layer, ``(N, F)`` each."""
    return [constants(layer, width, graph) for layer, width in zip(layers, widths(layers, features), strict=True)]


def layer_names(layers: Layers) -> Iterator[str]:
    """What the layers are called in tables: filters and activations by their number, and the readout."""
    counts: Counter[str] = Counter()
    body, readout = split_readout(layers)
    for layer in body:
        label = LABELS[type(layer)]
        counts[label] += 1
        yield f"{label} {counts[label]}"
    yield from [] if readout is None else ["readout"]


def form_sizes(layers: Layers, features: int, graph: Graph) -> Iterator[tuple[int, int]]:
    """For each layer in front of the readout: coefficients of the forms behind it, without and with its unknowns."""
    columns = graph.num_nodes * features
    body, _ = split_readout(layers)
    for layer, width in zip(body, widths(body, features), strict=True):
        outputs = graph.num_nodes * width
        unknowns = outputs if LABELS[type(layer)] == "activation" else 0
        yield columns * outputs, (columns + unknowns) * outputs
        columns += unknowns


def is_affordable(layers: Layers, features: int, graph: Graph) -> bool:
    """Whether the affine forms of all layers fit into memory."""
    return all(size <= MOST_ENTRIES for size, _ in form_sizes(layers, features, graph))


@singledispatch
def constants(layer: Layer, _width: int, _graph: Graph) -> Tensor:
    """The Lipschitz constant of a layer at every node and feature, ``(N, F)``."""
    raise NotImplementedError(layer.kind)


@constants.register
def _(layer: Filter, _width: int, graph: Graph) -> Tensor:
    r"""The 1-norm of every row of a filter bank; the largest is its induced infinity norm, exactly.

    .. math:: \sum_{j, g} \Big| \Big[\sum_k h_k^{fg} S^k\Big]_{ij} \Big|
    """
    return torch.stack([row_norms(rows) for rows in bank_rows(layer.taps, graph)]).sum(0)


@constants.register
def _(layer: Linear, _width: int, graph: Graph) -> Tensor:
    return layer.weight.abs().sum(1).expand(graph.num_nodes, -1)


@constants.register
def _(layer: Pointwise, width: int, graph: Graph) -> Tensor:
    return torch.full((graph.num_nodes, width), POINTWISE[layer.function].steepest, dtype=torch.float64)


@constants.register
def _(layer: HopMixture, width: int, graph: Graph) -> Tensor:
    r"""Max, min and median: :math:`|\beta| + \sum_k |h_k| \max_{j \in \mathcal{N}_i} \|e_j^\top S^k\|_1`.

    The first hop and the pointwise term are taken together, since they may read the same input with opposite signs.
    Kernel: the slope of the Gaussian times the largest differences of rows. Localized activations have the identity
    for :math:`S^k`.
    """
    rule = OPERATIONS[layer.operation]
    total = layer.beta.abs().expand(graph.num_nodes, width)
    for hop in hops_of(layer, graph, unit_forms(graph.num_nodes, 1)):
        total = total + hop.reduce_one(partial(rule.constants, layer, hop.number, *hop.signals), graph.num_nodes)
    return total


def paper_constant(layers: Layers, graph: Graph) -> float | None:
    r"""Proposition 2 of the paper, :math:`|\beta| + K C \max_k \|S^k\|_\infty` with :math:`C = \max_k |h_k|`.

    None for what it does not speak of: anything but one graph-adaptive max.
    """
    only = layers[0] if len(layers) == 1 else None
    if not isinstance(only, HopMixture) or only.operation is not MAX or only.reads != "shifted":
        return None
    power, largest = unit_forms(graph.num_nodes, 1), 0.0
    for _ in range(only.hops):
        power = shift(power, graph)
        largest = max(largest, row_norms(power).max().item())
    return only.beta.abs().item() + only.hops * only.weights.abs().max().item() * largest
