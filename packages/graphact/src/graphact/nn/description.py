"""Descriptions of models whose parts are graphact's, torch's, or those of packages that register their classes here."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from graphact.graph import Graph
from graphact.graph.protocol import GraphLike
from graphact.nn.call import CURRENT, ModelCall
from graphact.nn.module import TORCH_LAYERS, Describer, GraphModule, describe
from graphact.nn.unchanged import original_class
from graphact.registry import PACKAGES
from graphact.spec import Layer, LayerNorm, Linear, Pointwise, UnsupportedModelError

Edges = tuple[Tensor, Tensor | None]  # edge_index and edge_weight
Caller = Callable[[Any, Tensor, GraphLike, Edges | None], Tensor]


def register_kinds(kinds: Mapping[type[nn.Module], Describer], call: Caller | None = None, package: str = "") -> None:
    """Register how modules of other classes are described and called.

    Args:
        kinds: for each class the function that describes a module of it.
        call: calls a module on a graph, with the edges that the model was given or None; without it, they are called
            with the signal alone.
        package: the package, such as ``"torch_geometric"``, all of whose modules ``call`` is for; without it, it is for
            those of ``kinds``.
    """
    PARTS.update(kinds)
    if call is not None:
        CALLERS.update({package: call} if package else dict.fromkeys(kinds, call))


def package_of(module: nn.Module) -> str:
    """Return the name of the package that defines the class of a module; import what registers its classes."""
    name = type(module).__module__.partition(".")[0]
    if name in PACKAGES:
        importlib.import_module(PACKAGES[name])
    return name


def call_on_graph(module: nn.Module, x: Tensor, graph: GraphLike, edges: Edges | None = None) -> Tensor:
    """Call a module as it expects; convolutions take the edges as given, or else those of the graph."""
    if isinstance(module, GraphModule):
        return module(x, graph)
    package = package_of(module)
    caller = CALLERS.get(type(module)) or CALLERS.get(package)
    return ModelCall(graph).run(module, x) if caller is None else caller(module, x, graph, edges)


def is_called_by_kind(module: Any) -> bool:
    """Return whether a model is not graphact's, but of a known class, and so called as its class expects."""
    if not isinstance(module, nn.Module) or isinstance(module, GraphModule):
        return False
    package_of(module)
    return original_class(module) in PARTS


def describe_part(module: nn.Module, part: str = "") -> tuple[Layer, ...]:
    """Return the layers of a module that a chain may hold, on the edges for which the model is described.

    This knows more classes than :func:`~graphact.nn.module.describe`: containers, dropout, norms, and PyG's modules. A
    description may hold values that were computed from parameters, so that it is true but cannot be trained.
    """
    package_of(module)
    return describe(module, part, PARTS)


def describe_on(module: nn.Module, graph: Graph) -> tuple[Layer, ...]:
    """Return what a model computes on a graph, whose edges and weights its convolutions take."""
    return ModelCall(graph).describe(describe_part, module)


def described_edges() -> Graph:
    """Return the graph whose edges a model is described for."""
    if CURRENT.described is None or not isinstance(CURRENT.described.graph, Graph):
        raise UnsupportedModelError("", "its operator comes from edges, and there is no graph to describe it on")
    return CURRENT.described.graph


def describe_dropout(module: nn.Dropout) -> tuple[Layer, ...]:
    """Return no layer; raise in training mode."""
    check_dropout(module, module.p)
    return ()


def check_dropout(module: nn.Module, p: float) -> None:
    """Raise if values are dropped at random, with probability ``p``."""
    if module.training and p > 0:
        raise UnsupportedModelError("", "dropout in training mode draws at random: call eval() of the model first")


def describe_batch_norm(module: nn.BatchNorm1d) -> tuple[Layer, ...]:
    """Return the affine map of each feature in evaluation mode, for signals ``(N, F)``."""
    if module.running_mean is None or module.running_var is None:
        raise UnsupportedModelError("", "a BatchNorm1d without running statistics computes with those of all nodes")
    if module.training:
        reason = "a BatchNorm1d in training mode computes with the mean of all nodes: call eval() of the model first"
        raise UnsupportedModelError("", reason)
    gain = (module.running_var.double() + module.eps).rsqrt()
    gain = gain if module.weight is None else gain * module.weight
    offset = -gain * module.running_mean
    return (Linear(torch.diag(gain), offset if module.bias is None else offset + module.bias),)


def describe_layer_norm(module: nn.LayerNorm) -> tuple[Layer, ...]:
    """Return the norm over the features of each node."""
    if len(module.normalized_shape) != 1:
        raise UnsupportedModelError("", f"it normalizes over {len(module.normalized_shape)} dimensions: it mixes nodes")
    return (layer_norm(module, module.normalized_shape[0]),)


def layer_norm(module: Any, features: int) -> LayerNorm:
    """Return the description of a norm whose epsilon bounds its slopes."""
    if not module.eps > 0:
        raise UnsupportedModelError("", f"without eps > 0 its slopes have no bound, got eps = {module.eps}")
    return LayerNorm(features, module.eps, module.weight, module.bias)


def describe_chain(module: nn.Sequential) -> tuple[Layer, ...]:
    """Return the layers of one part after the other, each called with the signal alone."""
    parts = module._modules.items()  # named_children leaves out a module that appears a second time
    return tuple(layer for name, part in parts if part is not None for layer in describe_part(part, name))


DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout)
PARTS: dict[type[nn.Module], Describer] = {
    **TORCH_LAYERS,
    **dict.fromkeys(DROPOUTS, describe_dropout),
    nn.BatchNorm1d: describe_batch_norm,
    nn.PReLU: lambda module: (Pointwise("prelu", module.weight if len(module.weight) > 1 else module.weight[0]),),
    nn.LayerNorm: describe_layer_norm,
    nn.Sequential: describe_chain,
}
"""Functions that describe modules, by class; :func:`register_kinds` adds to it."""
CALLERS: dict[type[nn.Module] | str, Caller] = {}
"""Functions that call modules on a graph, by class or package, where the signal alone is not enough."""
