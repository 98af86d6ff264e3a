"""Localized activations (Ruiz et al.) as modules."""

from torch import Tensor

from graphact.functional import localized
from graphact.graph.protocol import GraphLike
from graphact.nn.activation import MixedActivation
from graphact.nn.base import check_features, resolve_graph


class LocalizedMax(MixedActivation):
    """Localized max activation: maxima over the k-hop neighbours, k = 1..hops.

    See :func:`graphact.functional.localized` for the formula and :class:`~graphact.nn.activation.MixedActivation` for
    the arguments.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight)
        return localized(x, graph, self.beta, self.weights, "max", closed=self.closed)


class LocalizedMedian(MixedActivation):
    """Localized median activation: lower medians over the k-hop neighbours; otherwise as :class:`LocalizedMax`."""

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight)
        return localized(x, graph, self.beta, self.weights, "median", closed=self.closed)
