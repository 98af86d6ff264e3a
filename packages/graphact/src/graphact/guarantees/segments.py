"""What a block of columns does at each part of a network: how layers carry it on, and what is summed up of it there."""

import math
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from graphact.guarantees.description import Block, Blocks, widths
from graphact.guarantees.forms import slopes_tried
from graphact.guarantees.pointwise import POINTWISE, layer_norm_slope, rule_of
from graphact.guarantees.rules import OPERATIONS, GaussianKernel
from graphact.guarantees.windows import Array, Lists, Surroundings, Window, is_compiled
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum, map_arrays

MOST_CHOICES = 64  # combinations of slopes times outputs that are tried for every node, however large a network is


@dataclass
class Segment:
    """Linear layers and the activation behind them, and what was summed up there over all columns so far."""

    layers: Blocks
    activation: HopMixture | Pointwise | LayerNorm
    norms: Tensor  # of what the pointwise function reads, (N, F)
    apart: list[Tensor]  # for each hop the norms of differences of what is read, (E, F)
    merged: Tensor = field(init=False)  # coefficients of the columns that were given up behind it, (N, F)

    def __post_init__(self) -> None:
        self.merged = torch.zeros_like(self.norms)

    @property
    def slopes(self) -> tuple[float, float]:
        if isinstance(self.activation, LayerNorm):  # nothing is known of its direction
            return 0.0, 0.0
        rule = rule_of(self.activation) if isinstance(self.activation, Pointwise) else POINTWISE["relu"]
        return rule.slopes

    @property
    def beta(self) -> Tensor:
        one = torch.ones((), dtype=torch.float64, device=self.norms.device)
        return self.activation.beta if isinstance(self.activation, HopMixture) else one

    def advance(self, x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
        """Sum up what the activation reads; the middle of its hops, and what its pointwise function is applied to."""
        window.add(self.norms, x)
        layer, hops, y = self.activation, torch.zeros_like(x), x
        for number, apart in enumerate(self.apart):
            assert isinstance(layer, HopMixture)
            read = window.reads(layer, number)
            y = window.shift(layer) @ y if layer.reads == "shifted" else y
            is_kernel = isinstance(OPERATIONS[layer.operation], GaussianKernel)
            mean, sizes = read.read(y, is_kernel)
            if window is window.graph.all:
                apart += sizes
            else:
                apart.index_add_(0, read.entries, sizes)
            if not is_kernel:
                hops += mean.mul_(layer.weights[number])
        return hops, x * self.beta

    def spread(self, graph: Surroundings) -> tuple[Tensor, Tensor]:
        """How far the hops can be from their middle, and the pointwise function from its own, ``(N, F)`` each."""
        low, high = self.slopes
        total, layer = torch.zeros_like(self.norms), self.activation
        if isinstance(layer, LayerNorm):
            total += layer_norm_slope(layer.features, layer.epsilon).to(total) * self.norms.amax(-1, keepdim=True)
            total = total if layer.weight is None else total * layer.weight.abs().to(total)
        for number, apart in enumerate(self.apart):
            assert isinstance(layer, HopMixture)
            rows = torch.from_numpy(graph.reads[graph.key(layer, number)].rows).to(apart.device)
            size = OPERATIONS[layer.operation].size_of(layer, apart, rows, graph.num_nodes)
            total += layer.weights[number].abs() * size
        return total, (high - low) / 2 * self.beta.abs() * self.norms


def on_device(layers: Blocks, device: torch.device) -> Blocks:
    """Layers with their coefficients where the blocks are; of pointwise functions only the slopes are read, numbers."""
    moved = map_arrays(layers, lambda array: array.to(device))
    pairs = zip(layers, moved, strict=True)
    return cast("Blocks", tuple(old if isinstance(old, Pointwise) else new for old, new in pairs))


def reach(layer: Block) -> int:
    """How many hops a layer carries a value on, at most."""
    match layer:
        case Filter():
            return layer.exchanges
        case HopMixture():
            return layer.hops + 1 if layer.reads == "shifted" else 1
        case _:
            return 0


def hops_of_step(linear: Blocks, segment: Segment | None) -> int:
    """How many hops linear layers and the activation behind them carry a value on."""
    return sum(reach(layer) for layer in linear) + (0 if segment is None else reach(segment.activation))


def pass_linear(layer: Block, x: Tensor, window: Window) -> Tensor:
    """Signals ``(n, m, F)`` behind a filter bank or a linear map."""
    if isinstance(layer, Linear):
        return x @ layer.weight.T
    assert isinstance(layer, Filter)
    total, y = x @ layer.taps[0], x
    for tap in layer.taps[1:]:
        y = window.shift(layer) @ y
        total += y @ tap
    return total


def unit_columns(
    layer: Block | None, nodes: Array, weights: Tensor, chosen: slice, width: int, window: Window
) -> Tensor:
    """Behind the first linear layer: the columns of some nodes and features, of the sizes ``weights`` ``(g, C)``.

    Without one they stay as they are, columns of signals of that width.
    """
    places = torch.from_numpy(window.place[nodes]).to(weights.device)
    unit = weights.new_zeros(len(window.nodes), len(nodes), 1)
    unit[places, torch.arange(len(nodes), device=weights.device)] = 1.0
    match layer:
        case Filter():
            rows = layer.taps
        case Linear():
            rows = layer.weight.T.unsqueeze(0)
        case _:
            rows = torch.eye(width, dtype=torch.float64, device=weights.device).unsqueeze(0)
    total = weights.new_zeros(len(window.nodes), len(nodes), weights.size(1), rows.size(2))
    for number, row in enumerate(rows[:, chosen]):
        unit = window.shift(layer) @ unit if number and layer is not None else unit
        total += unit.unsqueeze(-1) * (weights.unsqueeze(-1) * row)
    return total.flatten(1, 2)


class Outputs:
    """What the outputs can be, summed up over all columns, for choices of a few slopes of the last activation."""

    def __init__(
        self, num_nodes: int, weight: Tensor, tried: Tensor, last: Segment | None, device: torch.device
    ) -> None:
        self.weight, self.tried = weight.to(device), tried.to(device)
        low, high = (0.0, 0.0) if last is None else last.slopes
        self.middle, self.half, count = (low + high) / 2, (high - low) / 2, tried.size(1)
        signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * count) if count else torch.zeros(1, 0)
        self.choices = self.half * signs.view(2**count, count).to(self.weight)
        self.norms = self.weight.new_zeros(num_nodes, self.weight.size(0), len(self.choices))

    def add(self, window: Window, fixed: Tensor, rectified: Tensor | None = None) -> None:
        """Columns behind the network (without its readout), and what slopes multiply."""
        rows = len(window.rows)
        fixed = fixed[:rows] if rectified is None else fixed[:rows] + self.middle * rectified[:rows]
        outputs, index = fixed @ self.weight.T, window.index[:rows]
        if rectified is not None and is_compiled(fixed.device):
            from graphact.guarantees.compiled import add_choices

            add_choices(outputs, rectified, self.weight, self.tried, self.choices, self.norms, index)
            return
        for number, tried in enumerate(self.tried):
            values = outputs[..., number, None]
            if rectified is not None and len(tried):
                free = rectified[:rows].index_select(-1, tried) * self.weight[number, tried]
                values = values + free @ self.choices.T
            self.norms[:, number].index_add_(0, index, values.abs_().sum(1))

    def total(self, hops: Tensor, rectified: Tensor) -> Tensor:
        """The largest over all choices, with how far hops and pointwise functions can be from their middle."""
        size = self.weight.abs()
        untried = size.scatter(1, self.tried, 0.0)
        return self.norms.amax(-1) + hops @ size.T + rectified @ untried.T


def features_tried(weight: Tensor, sizes: Tensor, coefficients: int, is_unit: bool) -> Tensor:
    """The features whose slopes are tried, for each output of a readout ``(O, F)``, ``(O, e)``; those that weigh most.

    As many as where forms are held at once, and a few in networks that are much larger; where there is no readout, each
    output has the slope of its own feature.
    """
    few = int(math.log2(max(1, MOST_CHOICES / max(1, len(weight)))))
    used = int((weight != 0).sum(1).max()) if weight.numel() else 0
    count = 1 if is_unit else max(min(used, few), slopes_tried(weight, coefficients))
    return (weight.abs() * sizes).topk(min(count, weight.size(1)), dim=1).indices


def split_segments(body: Blocks, features: int, graph: Surroundings) -> tuple[list[Segment], Blocks]:
    """The layers up to each activation, and those behind the last one."""
    segments, linear = [], []
    for layer, width in zip(body, widths(body, features), strict=True):
        if isinstance(layer, Filter | Linear):
            linear.append(layer)
            continue
        assert not isinstance(layer, Sum)
        zeros = torch.zeros(graph.num_nodes, width, dtype=torch.float64, device=graph.device)
        reads: list[Lists] = []
        if isinstance(layer, HopMixture):
            reads = [graph.reads[graph.key(layer, hop)] for hop in range(layer.hops)]
        segments.append(Segment(tuple(linear), layer, zeros, [zeros.new_zeros(len(each.col), width) for each in reads]))
        linear = []
    return segments, tuple(linear)
