"""Parts of models: chains, residual blocks, and how torch's and PyG's own are described on a graph and called on it."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphact.graph import Graph
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.base import CURRENT, TORCH_LAYERS, GraphModule, ModelCall, describe, original_class, resolve_graph
from graphact.nn.passing import PassGraph, PerLayer
from graphact.spec import Layer, LayerNorm, Linear, OnGraph, Pointwise, Sum, UnsupportedModelError

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
    """The input plus what a chain of parts makes of it, each called as in :class:`Sequential`.

    Args:
        parts: modules, of which the last gives as many features as the first takes.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> block = graphact.nn.Residual(graphact.nn.GraphFilter(4, 4, order=1), graphact.nn.GraphAdaptiveMax(4))
        >>> block(torch.randn(3, 4), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])).shape
        torch.Size([3, 4])
    """

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
        inner = module.model if isinstance(module, PassGraph) else module
        if edges is None:
            if not hasattr(graph, "to_edge_index"):
                raise UnsupportedModelError("", f"a {type(module).__name__} takes an edge_index, which a part has not")
            edges = graph.to_edge_index()
        edge_index, edge_weight = edges
        if is_signal_only(inner):
            return module(x)
        weights = (edge_weight,) if is_called_with_weights(inner) else ()
        options = {"batch": graph.whole.batch} if isinstance(module, PassGraph) and graph.whole is not None else {}
        return module(x, edge_index, *weights, **options)
    return ModelCall(graph).run(module, x)


def is_of_pyg(module: nn.Module) -> bool:
    """Whether PyG defines the class of a module."""
    return type(module).__module__.startswith("torch_geometric.")


def is_called_with_weights(module: nn.Module) -> bool:
    """Whether a model of PyG is called with edge_weight behind edge_index."""
    from graphact.nn.pyg import takes_weights

    return takes_weights(module)


def is_signal_only(module: nn.Module) -> bool:
    """Whether a module of PyG takes no edges, as its linear maps and norms."""
    return type(module).__module__.startswith(
        ("torch_geometric.nn.dense.linear", "torch_geometric.nn.models.mlp", "torch_geometric.nn.norm.")
    )


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


def describe_batch_norm(module: nn.BatchNorm1d) -> tuple[Layer, ...]:
    """In evaluation mode an affine map of every feature on its own, for signals ``(N, F)``."""
    if module.running_mean is None or module.running_var is None:
        raise UnsupportedModelError("", "a BatchNorm1d without running statistics computes with those of all nodes")
    if module.training:
        reason = "a BatchNorm1d in training mode computes with the mean of all nodes: call eval() of the model first"
        raise UnsupportedModelError("", reason)
    gain = (module.running_var.double() + module.eps).rsqrt()
    gain = gain if module.weight is None else gain * module.weight
    offset = -gain * module.running_mean
    return (Linear(torch.diag(gain), offset if module.bias is None else offset + module.bias),)


def describe_prelu(module: nn.PReLU) -> tuple[Layer, ...]:
    """One slope for all features, or one for each."""
    return (Pointwise("prelu", module.weight[0] if module.num_parameters == 1 else module.weight),)


def describe_layer_norm(module: nn.LayerNorm) -> tuple[Layer, ...]:
    """Over the features of each node, with an epsilon that bounds its slopes."""
    if len(module.normalized_shape) != 1:
        raise UnsupportedModelError("", f"it normalizes over {len(module.normalized_shape)} dimensions: it mixes nodes")
    if not module.eps > 0:
        raise UnsupportedModelError("", f"without eps > 0 its slopes have no bound, got eps = {module.eps}")
    return (LayerNorm(module.normalized_shape[0], module.eps, module.weight, module.bias),)


def describe_chain(module: nn.Sequential) -> tuple[Layer, ...]:
    """One part after the other, each called with the signal alone."""
    parts = module._modules.items()  # named_children leaves out a module that stands there for the second time
    return tuple(layer for name, part in parts if part is not None for layer in describe_part(part, name))


def describe_pass_graph(module: PassGraph) -> tuple[Layer, ...]:
    """Convolutions on the edges as they are, activations on their normalised graph.

    Its weights are 1 around a model of PyG that takes none: it is called without.
    """
    graph = described_edges()
    around = CURRENT.described
    CURRENT.described = ModelCall(graph)  # a call of its own counts the uses of PerLayer anew
    try:
        layers = describe_part(module.model, "model")
    finally:
        CURRENT.described = around
    if is_of_pyg(module.model) and not is_called_with_weights(module.model):
        edge_index, weight = graph.to_edge_index()
        graph = Graph.from_edge_index(edge_index, torch.ones_like(weight), graph.num_nodes)
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


DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout)
PARTS: dict[type[nn.Module], Callable[[Any], tuple[Layer, ...]]] = {
    **TORCH_LAYERS,
    **dict.fromkeys(DROPOUTS, describe_dropout),
    nn.BatchNorm1d: describe_batch_norm,
    nn.PReLU: describe_prelu,
    nn.LayerNorm: describe_layer_norm,
    nn.Sequential: describe_chain,
    PassGraph: describe_pass_graph,
    PerLayer: describe_per_layer,
}
