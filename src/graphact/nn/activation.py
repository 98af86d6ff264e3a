"""The trained coefficients that localized and graph-adaptive activations share, and the pointwise activation."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_integer
from graphact.graph.protocol import GraphLike
from graphact.nn.base import GraphModule


class ReLU(GraphModule):
    """The pointwise activation, called like the others; it does not look at the graph."""

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        return torch.relu(x)

    def config(self) -> dict[str, Any]:
        return {}


class MixedActivation(GraphModule):
    r"""Coefficients of :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,(\cdot)_k`.

    ``beta`` starts at 1, so that an activation that replaces a ReLU begins near it; the weights h start uniform within
    :math:`\pm 1/\sqrt{K}`.

    Args:
        hops: number K of terms, k = 1..K.
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        closed: count a node among its neighbours.
    """

    def __init__(self, hops: int = 1, features: int | None = None, closed: bool = False) -> None:
        super().__init__()
        self.hops = check_integer("hops", hops, minimum=1)
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.closed = bool(closed)
        self.beta = nn.Parameter(torch.empty(()))
        shape = (self.hops,) if self.features is None else (self.hops, self.features)
        self.weights = nn.Parameter(torch.empty(shape))
        self._draw_coefficients()

    def reset_parameters(self) -> None:
        """Set beta to 1 and draw new weights."""
        self._draw_coefficients()

    def _draw_coefficients(self) -> None:
        bound = 1 / math.sqrt(self.hops)
        nn.init.ones_(self.beta)
        nn.init.uniform_(self.weights, -bound, bound)

    def config(self) -> dict[str, Any]:
        return {"hops": self.hops, "features": self.features, "closed": self.closed}
