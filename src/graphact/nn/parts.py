"""Parts of models: chains, residual blocks, and how torch's and PyG's own are described on a graph and called on it."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphact.graph import Graph
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.layers import Layer, LayerNorm, OnGraph, Sum, UnsupportedModelError
from graphact.nn.base import CURRENT, TORCH_LAYERS, GraphModule, ModelCall, describe, original_class, resolve_graph
from graphact.nn.passing import PassGraph, PerLayer

Edges = tuple[Tensor, Tensor | None]  # edge_index and edge_weight


class Sequential(GraphModule):
    """Parts one after the other, each called as it expects: with the graph, with its edges, or with the signal alone.

    Modules of graphact are called with the graph, PyG's convolutions with an edge_index (and edge_weight, where they
    take one), all others with ``x``. Called with an edge_index, convolutions take it as it is, and modules of graphact
    its normalised graph, as with :class:`PassGraph`; of a :class:`~graphact.Graph`, both take its edges and weights.

    Args:
        parts: modules.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`.

    Shapes:
        x: ``(..., N, F)``; result: what the last part gives.

    Example:
        >>> import torch, graphact
        >>> from graphact.nn import GraphAdaptiveMax, GraphFilter, Residual, Sequential
        >>> block = Residual(GraphFilter(4, 4, order=1), GraphAdaptiveMax(features=4))
        >>> model = Sequential(torch.nn.Linear(2, 4), block, torch.nn.Linear(4, 3))
        >>> model(torch.randn(3, 2), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 3])
    """

    def __init__(self, *parts: nn.Module, normalize: Normalization | None = "symmetric") -> None:
        super().__init__()
        for part in parts:
            if not isinstance(part, nn.Module):
                raise TypeError(f"parts must be torch.nn.Modules, got {type(part).__name__}")
        self.parts = nn.ModuleList(parts)
        self.normalize = check_normalize(normalize)

    def reset_parameters(self) -> None:
        for part in self.parts:
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()

    def forward(
        self,
        x: Tensor,
        graph: GraphLike | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        is_edges = isinstance(graph, Tensor) and graph.layout == torch.strided
        resolved = resolve_graph(x, graph, edge_weight, self.normalize, batch)
        for part in self.parts:
            x = call_on_graph(part, x, resolved, (graph, edge_weight) if is_edges else None)  # type: ignore[arg-type]
        return x

    def describe(self) -> tuple[Layer, ...]:
        return tuple(
            layer for number, part in enumerate(self.parts) for layer in describe_part(part, f"parts.{number}")
        )

    def extra_repr(self) -> str:
        return "" if self.normalize == "symmetric" else f"normalize={self.normalize!r}"


class Residual(Sequential):
    """The input plus what a chain of parts makes of it; see :class:`Sequential`."""

    def forward(
        self,
        x: Tensor,
        graph: GraphLike | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        return x + super().forward(x, graph, edge_weight, batch)

    def describe(self) -> tuple[Layer, ...]:
        return (Sum(((), super().describe())),)


def describe_part(module: nn.Module, part: str = "") -> tuple[Layer, ...]:
    """The layers of a module that a chain may hold, on the edges for which the model is described.

    More than :func:`~graphact.nn.base.describe` knows: containers, dropout, LayerNorm, and PyG's modules.
    """
    return describe(module, part, known_parts(module))


def describe_on(module: nn.Module, graph: Graph) -> tuple[Layer, ...]:
    """What a model computes on a graph, whose edges and weights its convolutions take."""
    around, CURRENT.described = CURRENT.described, ModelCall(graph)
    try:
        return describe_part(module)
    finally:
        CURRENT.described = around


def described_edges() -> Graph:
    """The graph whose edges a model is described for."""
    if CURRENT.described is None or not isinstance(CURRENT.described.graph, Graph):
        raise UnsupportedModelError("", "its operator comes from edges, and there is no graph to describe it on")
    return CURRENT.described.graph


def call_on_graph(module: nn.Module, x: Tensor, graph: GraphLike, edges: Edges | None = None) -> Tensor:
    """Call a module as it expects; convolutions take the edges as given, or else those of the graph."""
    if isinstance(module, GraphModule):
        return module(x, graph)
    if isinstance(module, PassGraph) or is_of_pyg(module):
        from graphact.nn.pyg import takes_weights

        inner = module.model if isinstance(module, PassGraph) else module
        if edges is None:
            if not hasattr(graph, "to_edge_index"):
                raise UnsupportedModelError("", f"a {type(module).__name__} takes an edge_index, which a part has not")
            edges = graph.to_edge_index()
        edge_index, edge_weight = edges
        if is_signal_only(inner):
            return module(x)
        weights = (edge_weight,) if takes_weights(inner) else ()
        options = {"batch": graph.whole.batch} if isinstance(module, PassGraph) and graph.whole is not None else {}
        return module(x, edge_index, *weights, **options)
    around, CURRENT.call = CURRENT.call, ModelCall(graph)
    try:
        return module(x)
    finally:
        CURRENT.call = around


def is_of_pyg(module: nn.Module) -> bool:
    """Whether PyG defines the class of a module."""
    return type(module).__module__.startswith("torch_geometric.")


def is_signal_only(module: nn.Module) -> bool:
    """Whether a module of PyG takes no edges, as its linear maps."""
    return type(module).__module__.startswith(("torch_geometric.nn.dense.linear", "torch_geometric.nn.models.mlp"))


def known_parts(module: nn.Module) -> dict[type[nn.Module], Callable[[Any], tuple[Layer, ...]]]:
    """What the class of a module computes, by class; those of PyG join where it is in use."""
    if is_of_pyg(module):
        importlib.import_module("graphact.nn.pyg")  # it adds its own
    return PARTS


def is_called_by_kind(module: Any) -> bool:
    """Whether a model is none of graphact's, but known, and so called as its kind expects."""
    if not isinstance(module, nn.Module) or isinstance(module, GraphModule):
        return False
    return original_class(module) in known_parts(module)


def describe_dropout(module: nn.Dropout) -> tuple[Layer, ...]:
    """Nothing happens in evaluation mode."""
    if module.training and module.p > 0:
        raise UnsupportedModelError("", "dropout in training mode draws at random: call eval() of the model first")
    return ()


def describe_layer_norm(module: nn.LayerNorm) -> tuple[Layer, ...]:
    """Over the features of each node, with an epsilon that bounds its slopes."""
    if len(module.normalized_shape) != 1:
        raise UnsupportedModelError("", f"it normalizes over {len(module.normalized_shape)} dimensions: it mixes nodes")
    if not module.eps > 0:
        raise UnsupportedModelError("", f"without eps > 0 its slopes have no bound, got eps = {module.eps}")
    return (LayerNorm(module.normalized_shape[0], module.eps, module.weight, module.bias),)


def describe_chain(module: nn.Sequential) -> tuple[Layer, ...]:
    """One part after the other, each called with the signal alone."""
    return tuple(layer for name, part in module.named_children() for layer in describe_part(part, name))


def describe_pass_graph(module: PassGraph) -> tuple[Layer, ...]:
    """Convolutions on the edges as they are, activations on their normalised graph."""
    graph = described_edges()
    around = CURRENT.described
    CURRENT.described = ModelCall(graph)  # a call of its own counts the uses of PerLayer anew
    try:
        layers = describe_part(module.model, "model")
    finally:
        CURRENT.described = around
    return (OnGraph((layers,), graph if module.normalize is None else graph.normalize(module.normalize)),)


def describe_per_layer(module: PerLayer) -> tuple[Layer, ...]:
    """The copy whose turn it is."""
    if CURRENT.described is None:
        raise UnsupportedModelError("", "PerLayer counts the layers of a call, and there is no model around it")
    uses = CURRENT.described.uses
    layer = uses.get(id(module), 0)
    uses[id(module)] = layer + 1
    if layer >= len(module):
        raise UnsupportedModelError("", f"it is called more often than it has layers, {len(module)}")
    return describe_part(module[layer], f"copies.{layer}")


PARTS: dict[type[nn.Module], Callable[[Any], tuple[Layer, ...]]] = {
    **TORCH_LAYERS,
    nn.Dropout: describe_dropout,
    nn.LayerNorm: describe_layer_norm,
    nn.Sequential: describe_chain,
    PassGraph: describe_pass_graph,
    PerLayer: describe_per_layer,
}
