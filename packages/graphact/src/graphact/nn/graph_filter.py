"""A bank of graph filters as a module."""

from typing import Any

from torch import Tensor

from graphact._checks import check_companion, check_integer
from graphact.functional import graph_filter
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.module import UniformModule
from graphact.spec import Filter, Layer


class GraphFilter(UniformModule):
    """A bank of polynomial graph filters, one for each pair of an input and an output feature.

    See :func:`graphact.functional.graph_filter`. Taps and bias start uniform within one over the square root of the
    number of terms in the sum, ``in_features * (order + 1)``.

    Args:
        in_features: features of the input.
        out_features: features of the output.
        order: the order K; the filter has the K + 1 taps k = 0..K and reaches K hops.
        bias: add a trained constant to each output feature.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.

    Shapes:
        x: ``(..., N, in_features)``; result: ``(..., N, out_features)``; ``taps``: ``(K + 1, in_features,
        out_features)``; ``bias``: ``(out_features,)``.
    """

    taps: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        order: int,
        bias: bool = False,
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__()
        self.in_features = check_integer("in_features", in_features, minimum=1)
        self.out_features = check_integer("out_features", out_features, minimum=1)
        self.order = check_integer("order", order, minimum=0)
        self.normalize = check_normalize(normalize)
        terms = self.in_features * (self.order + 1)
        self.add_uniform("taps", terms, self.order + 1, self.in_features, self.out_features)
        self.add_bias(bias, terms, self.out_features)
        self.reset_parameters()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = check_features(x, "in_features", self.in_features)
        filtered = graph_filter(x, resolve_graph(x, graph, edge_weight, self.normalize), self.taps)
        return filtered if self.bias is None else filtered + check_companion("bias", self.bias, filtered)

    def describe(self) -> tuple[Layer, ...]:
        return (Filter(self.taps, self.bias),)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "bias": self.bias is not None}
