"""What all modules share: how they are called, and how they describe themselves."""

from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import HALF_PRECISION, check_tensor
from graphact.graph import Graph
from graphact.graph.protocol import GraphLike


class GraphModule(nn.Module):
    """A module called as ``module(x, graph)`` or, as in PyG, ``module(x, edge_index, edge_weight)``.

    A :class:`~graphact.Graph` is sorted and checked once, when it is built. An edge_index is sorted and checked in
    every call, so build the graph once where it does not change.
    """

    def reset_parameters(self) -> None:
        """Draw all parameters anew; a module without parameters has nothing to draw."""

    def config(self) -> dict[str, Any]:
        """The arguments that construct a module like this one, as JSON values."""
        raise TypeError(f"{type(self).__name__} has no configuration of its own")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.config().items())


def resolve_graph(x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None) -> GraphLike:
    """The graph of a module call, built from an edge list where one was given."""
    if isinstance(graph, Tensor):
        return _build_graph(check_tensor("x", x), graph, edge_weight)
    if not hasattr(graph, "one_hop"):
        raise TypeError(f"graph must be a graphact.Graph or an edge_index tensor, got {type(graph).__name__}")
    if edge_weight is not None:
        raise TypeError("edge_weight goes with an edge_index; a Graph holds its own weights")
    return graph


def check_features(x: Tensor, name: str, features: int | None) -> Tensor:
    """Say so if a signal has not the features that a module was made for; None stands for any number."""
    if features is not None and isinstance(x, Tensor) and x.dim() >= 2 and x.size(-1) != features:
        raise ValueError(
            f"x must have the shape (..., N, F) with F = {features}, the {name} of this module, got {tuple(x.shape)}"
        )
    return x


def _build_graph(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Graph:
    if x.dim() < 2:
        raise ValueError(f"x must have the shape (..., N, F), got {tuple(x.shape)}")
    if edge_weight is None:
        dtype = torch.float32 if x.dtype in HALF_PRECISION or not x.is_floating_point() else x.dtype
        edge_weight = torch.ones(edge_index.shape[-1:], dtype=dtype, device=edge_index.device)
    return Graph.from_edge_index(edge_index, edge_weight, num_nodes=x.size(-2))


# What torch.compiler.disable sets, without the second that importing the compiler takes
_build_graph._torchdynamo_disable = True  # type: ignore[attr-defined]
_build_graph._torchdynamo_disable_msg = (  # type: ignore[attr-defined]
    "an edge_index is sorted in every call: build a graphact.Graph once and compile with it"
)
