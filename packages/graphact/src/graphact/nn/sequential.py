"""Chains of modules and residual blocks."""

import torch
from torch import Tensor, nn

from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.call import resolve_graph
from graphact.nn.description import call_on_graph, describe_part
from graphact.nn.module import GraphModule
from graphact.spec import Layer, Sum


class Sequential(GraphModule):
    """Parts one after the other, each called as it expects: with the graph, with its edges, or with the signal alone.

    Modules of graphact are called with the graph, PyG's convolutions with an edge_index (and edge_weight, where they
    take one), all others with ``x``. Called with an edge_index, convolutions take it unchanged, and modules of graphact
    its normalised graph, as with :class:`graphact.pyg.PassGraph`; of a :class:`~graphact.Graph`, both take its edges
    and weights.

    Args:
        parts: modules.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.

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
    """The input plus the output of a chain of parts, each called as in :class:`Sequential`.

    Args:
        parts: modules, of which the last gives as many features as the first takes.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.

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
