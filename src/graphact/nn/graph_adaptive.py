"""The paper's graph-adaptive activations as modules."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_positive
from graphact.functional import graph_adaptive
from graphact.functional.neighborhood import Operation, check_operation
from graphact.graph.protocol import GraphLike
from graphact.nn.activation import MixedActivation
from graphact.nn.base import check_features, resolve_graph


class GraphAdaptive(MixedActivation):
    """Graph-adaptive activation with any function of a neighbourhood.

    See :func:`graphact.functional.graph_adaptive` for the formula.

    Args:
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"`` (with gamma = 0.1), or a function of ``(neighbors)`` or of
            ``(own, neighbors)`` as :func:`graphact.functional.neighborhood_apply` takes it.
        hops: number K of shifts.
        features: number F of features to give each its own weights; None shares them among all.
        closed: count a node among its neighbours.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.9, 0.2)
        >>> span = graphact.nn.GraphAdaptive(lambda neighbors: neighbors.amax(-2) - neighbors.amin(-2), hops=2)
        >>> span(torch.randn(4, 10, 3), graph).shape
        torch.Size([4, 10, 3])
    """

    def __init__(self, op: Operation, hops: int = 1, features: int | None = None, closed: bool = False) -> None:
        super().__init__(hops, features, closed)
        self.op = check_operation(op)

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight)
        return graph_adaptive(x, graph, self.beta, self.weights, self.op, closed=self.closed)

    def config(self) -> dict[str, Any]:
        return {"op": self.op, **super().config()}


class GraphAdaptiveMax(GraphAdaptive):
    """Graph-adaptive max activation; the arguments are those of :class:`GraphAdaptive`."""

    def __init__(self, hops: int = 1, features: int | None = None, closed: bool = False) -> None:
        super().__init__("max", hops, features, closed)

    def config(self) -> dict[str, Any]:
        return MixedActivation.config(self)


class GraphAdaptiveMedian(GraphAdaptive):
    """Graph-adaptive median activation; the arguments are those of :class:`GraphAdaptive`."""

    def __init__(self, hops: int = 1, features: int | None = None, closed: bool = False) -> None:
        super().__init__("median", hops, features, closed)

    def config(self) -> dict[str, Any]:
        return MixedActivation.config(self)


class GraphAdaptiveKernel(MixedActivation):
    """Graph-adaptive Gaussian kernel activation.

    Args:
        hops: number K of shifts.
        features: number F of features to give each its own weights; None shares them among all.
        closed: accepted like everywhere; a node does not differ from itself, so it changes nothing.
        gamma: width of the Gaussian, above 0.
        learn_gamma: train gamma, through its logarithm, so that it stays above 0.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    def __init__(
        self,
        hops: int = 1,
        features: int | None = None,
        closed: bool = False,
        gamma: float = 0.1,
        learn_gamma: bool = False,
    ) -> None:
        super().__init__(hops, features, closed)
        self.initial_gamma = check_positive("gamma", gamma)
        self.log_gamma = nn.Parameter(torch.full((), math.log(self.initial_gamma))) if learn_gamma else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.log_gamma is not None:
            nn.init.constant_(self.log_gamma, math.log(self.initial_gamma))

    @property
    def gamma(self) -> float | Tensor:
        """The width of the Gaussian as it is now: a number, or a tensor when it is trained."""
        return self.initial_gamma if self.log_gamma is None else self.log_gamma.exp()

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight)
        return graph_adaptive(x, graph, self.beta, self.weights, "kernel", gamma=self.gamma, closed=self.closed)

    def config(self) -> dict[str, Any]:
        return {**super().config(), "gamma": self.initial_gamma, "learn_gamma": self.log_gamma is not None}
