"""Certified Lipschitz constants of filters, activations and whole networks."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphact.analysis.layers import activation_norms, bank_norms, paper_constant
from graphact.analysis.neighbors import MOST_ENTRIES
from graphact.analysis.parts import Network, take_apart
from graphact.analysis.sensitivity import output_norms
from graphact.graph import Graph
from graphact.graph.graph import check_graph


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
    - A GCNN: the product of its layers as ``composed``, and a tighter one from affine forms of differences over the
      actual graph (see :mod:`graphact.analysis.sensitivity`). Networks too large for that (more than 20 million
      coefficients in a layer) get the product.

    Everything is computed in float64; rounding errors of the module itself are not part of the statement.

    Args:
        module: a GCNN, an FIR, a filter bank or an activation of :mod:`graphact.nn`.
        graph: the graph.
        norm: only infinity.

    Raises:
        TypeError: nothing is known about the module, such as a function of your own as the activation.
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
    graph = check_norm_and_graph(graph, norm)
    with torch.no_grad():
        return bound_of(take_apart(module), graph)


def check_norm_and_graph(graph: Graph, norm: float) -> Graph:
    """The graph as bounds need it, if the norm is the one they are in."""
    if norm != math.inf:
        raise ValueError(f"norm must be inf: the certificates are for the infinity norm, got {norm!r}")
    return check_graph("graph", graph).to("cpu", torch.float64)


def bound_of(network: Network, graph: Graph) -> LipschitzBound:
    """The bound of a network taken apart."""
    layers = layer_norms(network, graph)
    constants = tuple((name, norms.max().item()) for name, norms in layers)
    per_node = certified_norms(network, graph).amax(-1)
    only, paper = network.stages[0], None
    if only.taps is None and only.nonlinearity is not None:
        paper = paper_constant(only.nonlinearity, graph)
    composed = math.prod(constant for _, constant in constants)
    return LipschitzBound(per_node.max().item(), paper, per_node, composed, constants)


def certified_norms(network: Network, graph: Graph, *, thorough: bool = True) -> Tensor:
    """The tightest certified constant of every output, ``(N, O)``; differentiable, where the parts are."""
    composed = compose(layer_norms(network, graph))
    if not is_affordable(network, graph):
        return composed
    return torch.minimum(composed, output_norms(network, graph, thorough=thorough))


def layer_norms(network: Network, graph: Graph) -> list[tuple[str, Tensor]]:
    """Name and constants of all layers: ``(N, F)`` for filters and activations, the sums of rows for the readout."""
    layers = []
    for number, stage in enumerate(network.stages, start=1):
        if stage.taps is not None:
            layers.append((f"filter {number}", bank_norms(stage.taps, graph)))
        if stage.nonlinearity is not None:
            layers.append((f"activation {number}", activation_norms(stage.nonlinearity, graph)))
    if network.readout is not None:
        layers.append(("readout", network.readout.abs().sum(1).expand(graph.num_nodes, -1)))
    return layers


def compose(layers: list[tuple[str, Tensor]]) -> Tensor:
    """The constants of the outputs: those of the last layer times the largest of each layer before."""
    *before, (_, last) = layers
    return math.prod((norms.max() for _, norms in before), start=torch.ones((), dtype=torch.float64)) * last


def is_affordable(network: Network, graph: Graph) -> bool:
    """Whether the affine forms of all layers fit into memory."""
    width, columns = network.in_features, graph.num_nodes * network.in_features
    for stage in network.stages:
        width = width if stage.taps is None else stage.taps.size(2)
        if columns * graph.num_nodes * width > MOST_ENTRIES:
            return False
        columns += graph.num_nodes * width
    return True
