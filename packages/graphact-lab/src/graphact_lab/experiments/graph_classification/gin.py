"""Networks for graph classification: GIN with any activation between its layers.

A network is called as ``network(x, batch, masks)``, as :class:`graphact_lab.fleets.graphs.GraphFleet` asks.
"""

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphact._checks import check_integer
from graphact.functional import shift
from graphact.nn import make_activation
from graphact_lab.classifiers.stacked_layers import BatchNorm, StackedLinear
from graphact_lab.data.graph_sets import GraphBatch


class TrainingNodes(NamedTuple):
    """The nodes of the graphs that a model trains on: shares ``(N,)``, which sum to 1, and their number."""

    shares: Tensor
    number: Tensor

    @classmethod
    def of(cls, trained: Tensor, batch: GraphBatch) -> "TrainingNodes":
        """From 1 for graphs that are trained on, else 0."""
        nodes = trained.index_select(-1, batch.member)
        number = nodes.sum(-1)
        return cls(nodes / number.clamp(min=1), number)


class TrainedBatchNorm(BatchNorm):
    """Batch norm whose statistics are those of some of the nodes."""

    def forward(self, x: Tensor, trained: TrainingNodes | None = None) -> Tensor:
        if trained is None:
            mean, variance = self.running_mean, self.running_var
            centered = x - mean
        else:
            mean = trained.shares @ x
            centered = x - mean
            variance = trained.shares @ centered.square()
            share = (self.momentum or 0.0) * trained.number.clamp(max=1)  # no node, no news
            unbiased = variance.detach() * (trained.number / (trained.number - 1).clamp(min=1))
            self.running_mean = (1 - share) * self.running_mean + share * mean.detach()
            self.running_var = (1 - share) * self.running_var + share * unbiased
        return torch.addcmul(self.bias, centered, (variance + self.eps).rsqrt() * self.weight)


class GINLayer(nn.Module):
    """``norm(MLP((1 + eps) x + sum_j x_j))``, the MLP of two maps with batch norm and ReLU between (Xu et al. 2019).

    Maps have no bias, which the following norm would cancel.
    """

    def __init__(self, in_features: int, width: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(
            [StackedLinear(in_features, width, bias=False), StackedLinear(width, width, bias=False)]
        )
        self.norms = nn.ModuleList(TrainedBatchNorm(width) for _ in range(2))
        self.eps = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, batch: GraphBatch, trained: TrainingNodes | None) -> Tensor:
        mapped = self.maps[0](x)
        summed = torch.addcmul(shift(mapped, batch.graph), mapped, 1 + self.eps)
        hidden = torch.relu(self.norms[0](summed, trained))
        normed: Tensor = self.norms[1](self.maps[1](hidden), trained)
        return normed


class GINNetwork(nn.Module):
    """GIN with an activation after each layer; logits from the sums over the nodes of all layers (Xu et al. 2018).

    Dropout stands before the map from these sums to the logits.

    Args:
        in_features, width, classes: sizes.
        layers: number of layers.
        activation, hops: a name of :data:`graphact.nn.ACTIVATIONS`, and its hops.
        start: where its weights start.
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        classes: int,
        *,
        layers: int = 4,
        activation: str = "relu",
        hops: int = 1,
        start: str = "zero",
    ) -> None:
        super().__init__()
        check_integer("layers", layers, minimum=1)
        options: dict[str, Any] = {"gamma": 1.0, "learn_gamma": True, "start": start}
        self.layers = nn.ModuleList(GINLayer(in_features if i == 0 else width, width) for i in range(layers))
        self.activations = nn.ModuleList(
            make_activation(activation, hops=hops, features=width, **options) for _ in range(layers)
        )
        # those that read means over a graph ask to which graph a node belongs
        self.reads_members = "batch" in inspect.signature(type(self.activations[0]).forward).parameters
        self.last = StackedLinear(layers * width, classes)
        self.dropout_widths, self.dropped_last = (layers * width,), False

    @property
    def exchanges(self) -> int:
        """The number of exchanges between neighbours for an answer."""
        activations: list[Any] = list(self.activations)
        return len(self.layers) + int(sum(layer.exchanges for each in activations for layer in each.layers()))

    def forward(self, x: Tensor, batch: GraphBatch, masks: Sequence[Tensor] = ()) -> Tensor:
        trained = TrainingNodes.of(masks[-1], batch) if masks else None
        options = {"batch": batch.member} if self.reads_members else {}
        sums = []
        for layer, activation in zip(self.layers, self.activations, strict=True):
            x = activation(layer(x, batch, trained), batch.shift, **options)
            sums.append(batch.sum(x))
        pooled = torch.cat(sums, -1)
        logits: Tensor = self.last(pooled * masks[0] if masks else pooled)
        return logits
