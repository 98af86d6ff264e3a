"""Networks for node classification: convolutions with any activation between them.

A network is called as ``network(x, graph, masks)``, as :class:`graphact_lab.fleets.nodes.NodeFleet` asks.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer
from graphact.functional import shift
from graphact.graph import Graph
from graphact.nn import make_activation
from graphact_lab.experiments.node_classification.convolutions import (
    CONVOLUTIONS,
    GINConvolution,
    Linear,
    NodeGraph,
    Signal,
)
from graphact_lab.fleets.features import DroppedFeatures, SparseFeatures

GAMMA = 1.0  # from which the width of the kernel activation is learned
NORMS = ("none", "layer", "batch")
SKIPS = ("none", "linear", "block")


class HopsAndReLU(nn.Module):
    """``relu(S^k x)``: a control that spends exchanges as activations of neighbourhoods do, on a linear shift."""

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.hops = check_integer("hops", hops, minimum=1)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        for _ in range(self.hops):
            x = shift(x, graph)
        return torch.relu(x)


def exchanges_of(activation: Any) -> int:
    """How often neighbours exchange for an activation."""
    if isinstance(activation, HopsAndReLU):
        return activation.hops
    return int(sum(layer.exchanges for layer in activation.layers()))


class NodeNetwork(nn.Module):
    """Convolutions with an activation behind each, and dropout behind that.

    Args:
        in_features, width, classes: sizes.
        convolution: a name of ``CONVOLUTIONS``.
        layers: convolutions; without ``readout`` the last one gives the logits.
        activation, hops: a name of :data:`graphact.nn.ACTIVATIONS`, and its hops; or "relu-hops", a ReLU behind as many
            further shifts.
        norm: "layer" or "batch", between convolution and activation.
        skip: "linear" adds a linear map of what a convolution reads to what it gives (Luo et al. 2024); "block" makes
            layers ``x + linear(act(conv(norm(x))))`` of a signal that a linear map has made.
        readout: give the logits by a linear map, rather than by the last convolution.
        feature_dropout: drop features, too.
        biases: whether convolutions have them.
        linear_start: how linear maps beside convolutions are drawn; see :class:`Linear`.
    """

    def __init__(
        self,
        in_features: int,
        width: int,
        classes: int,
        *,
        convolution: str = "gcn",
        layers: int = 2,
        activation: str = "relu",
        hops: int = 1,
        norm: str = "none",
        skip: str = "none",
        readout: bool = False,
        feature_dropout: bool = False,
        biases: bool = True,
        linear_start: str = "glorot",
        start: str = "zero",
    ) -> None:
        super().__init__()
        check_choice("norm", norm, NORMS)
        kind = CONVOLUTIONS[check_choice("convolution", convolution, tuple(CONVOLUTIONS))]
        self.skip, self.readout = check_choice("skip", skip, SKIPS), readout or skip == "block"
        hidden = check_integer("layers", layers, minimum=1) - (0 if self.readout else 1)

        def make() -> Any:
            options: dict[str, Any] = {"gamma": GAMMA, "learn_gamma": True, "start": start}
            if activation == "relu-hops":
                return HopsAndReLU(hops)
            return make_activation(activation, hops=hops, features=width, **options)

        def linear(inputs: int, outputs: int) -> Linear:
            return Linear(inputs, outputs, start=linear_start)

        self.first = linear(in_features, width) if skip == "block" else None
        widths = [width if skip == "block" else in_features, *[width] * hidden]
        self.activations = nn.ModuleList(make() for _ in range(hidden))
        inner = [make() if kind is GINConvolution else self.activations[number] for number in range(hidden)]
        shape: dict[str, Any] = {"hidden": width, "bias": biases}  # maps are the same for all activations
        self.convolutions = nn.ModuleList(kind(widths[i], width, activation=inner[i], **shape) for i in range(hidden))
        if not self.readout:
            last = make() if kind is GINConvolution else None
            self.convolutions.append(kind(widths[hidden], classes, activation=last, **shape))
        norms = {"none": nn.Identity, "layer": nn.LayerNorm, "batch": BatchNorm}
        self.norms = nn.ModuleList(norms[norm](width) for _ in range(hidden))
        added, within = ([linear(size, width) for size in sizes] for sizes in (widths[:hidden], [width] * hidden))
        self.skips = nn.ModuleList({"none": [], "linear": added, "block": within}[skip])
        self.last = linear(width, classes) if self.readout else None
        self.feature_dropout = feature_dropout
        self.dropout_widths = (*([None] if feature_dropout else []), *[width] * hidden)
        self.dropped_last = hidden == 1 and norm != "batch" and not feature_dropout and skip != "block"

    @property
    def exchanges(self) -> int:
        """How often neighbours exchange for an answer."""
        convolutions: list[Any] = list(self.convolutions)
        inner = [each.activation for each in convolutions if isinstance(each, GINConvolution)]
        activations = sum(map(exchanges_of, [*self.activations, *inner]))
        return activations + int(sum(each.exchanges for each in convolutions))

    def forward(
        self, x: Tensor | SparseFeatures, graph: NodeGraph, masks: Sequence[Tensor] = (), both: bool = False
    ) -> Any:
        masks = list(masks)
        signal: Any = x
        if self.feature_dropout and masks:
            mask = masks.pop(0)
            signal = DroppedFeatures(x, mask) if isinstance(x, SparseFeatures) else x * mask
        if self.first is not None:
            signal = self.first(signal)
        for number, activation in enumerate(self.activations):
            if self.skip == "block":
                read = self.convolutions[number](self.norms[number](signal), graph)
                out = self.dropped(activation(read, graph.activation), masks, number)
                signal = signal + self.skips[number](out)
                continue
            made = self.convolutions[number](signal, graph)
            if self.skip == "linear":
                made = made + self.skips[number](signal)
            signal = activation(self.norms[number](made), graph.activation)
            if both and number == len(self.activations) - 1:
                with torch.no_grad():
                    evaluated = self.finish(signal.detach(), graph)
                return self.finish(self.dropped(signal, masks, number), graph), evaluated
            signal = self.dropped(signal, masks, number)
        return self.finish(signal, graph)

    def finish(self, signal: Signal, graph: NodeGraph) -> Tensor:
        """The logits from the last hidden signal."""
        return self.convolutions[-1](signal, graph) if self.last is None else self.last(signal)

    @staticmethod
    def dropped(x: Tensor, masks: Sequence[Tensor], number: int) -> Tensor:
        return x * masks[number] if masks else x


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the nodes, ``(..., N, F)``, which moves its buffers as a function, so that it can be vmapped."""

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            mean, variance = x.mean(-2), x.var(-2, correction=0)
            unbiased = variance.detach() * (x.size(-2) / (x.size(-2) - 1))
            share = self.momentum or 0.0  # torch.lerp would round it to float32 under vmap
            self.running_mean = (1 - share) * self.running_mean + share * mean.detach()
            self.running_var = (1 - share) * self.running_var + share * unbiased
        else:
            mean, variance = self.running_mean, self.running_var
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias
