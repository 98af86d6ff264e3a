"""Networks for node classification: the usual convolutions with any activation between them.

Every convolution maps features first and then moves along edges, so that sparse features of many models are mapped by
one SpMM. A network is called as ``network(x, graph, masks)``, as :class:`graphact.training.nodes.NodeFleet` asks.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer
from graphact.data.features import DroppedFeatures, SparseFeatures
from graphact.functional import neighborhood_max, neighborhood_median, shift
from graphact.functional.convolution import attend
from graphact.functional.segments import Segments
from graphact.graph import Graph
from graphact.nn import make_activation

Signal = Tensor | SparseFeatures | DroppedFeatures
LINEAR_STARTS = ("glorot", "torch")


class NodeGraph(NamedTuple):
    """The shift operators of one graph."""

    convolution: Graph
    activation: Graph

    @property
    def num_edges(self) -> int:
        return self.convolution.num_edges

    def to(self, device: torch.device | str, dtype: torch.dtype) -> "NodeGraph":
        convolution = self.convolution.to(device, dtype)
        same = self.activation is self.convolution
        return NodeGraph(convolution, convolution if same else self.activation.to(device, dtype))


class Linear(nn.Module):
    """``x @ weight + bias`` for dense and sparse x.

    Drawn as Glorot and Bengio (2010) do, with a bias of 0, as convolutions are; or, with ``start="torch"``, weight and
    bias as :class:`torch.nn.Linear` draws them.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, start: str = "glorot") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        if check_choice("start", start, LINEAR_STARTS) == "glorot":
            bound = math.sqrt(6 / (in_features + out_features))
            nn.init.uniform_(self.weight, -bound, bound)
            return
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(in_features), 1 / math.sqrt(in_features))

    def forward(self, x: Signal) -> Tensor:
        mapped = x @ self.weight
        return mapped if self.bias is None else mapped + self.bias


class Convolution(nn.Module):
    """What convolutions share: maps to ``terms`` signals of ``out_features`` each, and a bias at the end.

    Args:
        in_features, out_features: sizes.
        hidden: features between the maps of a convolution that has two in a row.
        activation: the one between those maps, or behind a convolution that is not the last.
        bias: whether there is one.
    """

    normalization = "gcn"  # of the graph
    exchanges = 1
    terms = 1

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        activation: nn.Module | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        del activation, hidden
        self.maps = nn.ModuleList(Linear(in_features, out_features, bias=False) for _ in range(self.terms))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        return self.biased(self.propagate([each(x) for each in self.maps], graph.convolution))

    def biased(self, x: Tensor) -> Tensor:
        return x if self.bias is None else x + self.bias

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        """The result from the mapped signals."""
        return shift(terms[0], graph)


class GCNConvolution(Convolution):
    """``S x W`` with self-loops and symmetric normalisation (Kipf and Welling 2017)."""


class SAGEConvolution(Convolution):
    """``x V + mean_j x_j W`` (Hamilton et al. 2017)."""

    normalization, terms = "random_walk", 2

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return terms[0] + shift(terms[1], graph)


class SAGEMaxConvolution(Convolution):
    """``x V + max_j relu(x_j P + p) W``, the pooling of Hamilton et al. (2017): a maximum in the convolution.

    A control for activations that take one. Its inner ReLU stays, whatever the activation behind it is.
    """

    normalization, terms = "none", 1

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        activation: nn.Module | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features, activation=activation, bias=bias)
        self.pool = Linear(in_features, hidden or out_features)
        self.last = Linear(hidden or out_features, out_features, bias=False)

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        pooled = neighborhood_max(torch.relu(self.pool(x)), graph.convolution)
        return self.biased(self.maps[0](x) + self.last(pooled))


class PolynomialConvolution(Convolution):
    """``sum_k S^k x H_k`` of order 2, the filter bank of a GCNN."""

    normalization, terms, exchanges = "symmetric", 3, 2

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return terms[0] + shift(terms[1] + shift(terms[2], graph), graph)


class ChebyshevConvolution(PolynomialConvolution):
    """The same in the basis of Chebyshev polynomials (Defferrard et al. 2016): ``T_2(S) = 2 S^2 - I``."""

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return terms[0] - terms[2] + shift(terms[1] + 2 * shift(terms[2], graph), graph)


class GINConvolution(Convolution):
    """``MLP((1 + eps) x + sum_j x_j)`` (Xu et al. 2019), the activation inside of the MLP, too."""

    normalization = "none"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        activation: nn.Module | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, hidden or out_features, bias=bias)
        self.eps = nn.Parameter(torch.zeros(()))
        self.activation, self.last = activation, Linear(hidden or out_features, out_features, bias)

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        mapped = self.maps[0](x)
        summed = self.biased((1 + self.eps) * mapped + shift(mapped, graph.convolution))
        return self.last(summed if self.activation is None else self.activation(summed, graph.activation))


class GATConvolution(Convolution):
    """Graph attention with heads of eight features each (Veličković et al. 2018), a single head at the end."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden: int | None = None,
        activation: nn.Module | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__(in_features, out_features, hidden=hidden, bias=bias)
        self.heads = 1 if activation is None or out_features % 8 else out_features // 8
        self.at_node, self.at_neighbor = (
            nn.Parameter(torch.empty(self.heads, out_features // self.heads)) for _ in range(2)
        )
        for parameter in (self.at_node, self.at_neighbor):
            nn.init.xavier_uniform_(parameter)

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return attend(terms[0].unflatten(-1, (self.heads, -1)), graph, self.at_node, self.at_neighbor).flatten(-2)


class MedianConvolution(Convolution):
    """The median of what neighbours and node have mapped, feature by feature (MedianGCN, Chen et al. 2021).

    A median has no gradient with respect to edge weights, on which attacks live; there it passes on that of a GCN.
    """

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        mapped = self.maps[0](x)
        median = neighborhood_median(mapped, graph.activation, closed=True)
        if graph.convolution.weight.requires_grad:
            smooth = shift(mapped, graph.convolution)
            median = median + smooth - smooth.detach()
        return self.biased(median)


class SoftMedianConvolution(Convolution):
    r"""A mean whose weights fall with the distance from the median (Soft Median, Geisler et al. 2021).

    .. math:: y_i = \Big(\sum_j a_{ij}\Big) \frac{\sum_j w_{ij} z_j}{\sum_j w_{ij}}, \qquad
        w_{ij} = a_{ij} \exp(-\|z_j - m_i\| / (T \sqrt{F}))

    with the mapped signals z, the GCN shift a, and the median m of z over neighbours and node, feature by feature, in
    which a value counts with its weight a, as in the authors' code.
    """

    temperature = 0.2

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        mapped, own = self.maps[0](x), graph.convolution
        segments, values = Segments.of(own.incoming, closed=True), own.weight
        diagonal = torch.zeros_like(mapped[..., 0]) if own.diagonal is None else own.diagonal
        share = torch.cat([values, diagonal], -1).unsqueeze(-1)
        median = weighted_median(mapped, segments, share.detach())
        read = segments.at_cols(mapped)
        apart = (read - segments.at_rows(median)).square().sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
        score = -apart / (self.temperature * math.sqrt(mapped.size(-1)))
        weight = share * (score - segments.at_rows(segments.extreme(score.detach(), "amax"))).exp()
        return self.biased(segments.sum(share) * segments.sum(weight * read) / segments.sum(weight))


def weighted_median(x: Tensor, segments: Segments, weight: Tensor) -> Tensor:
    """Of each segment the lowest value up to which at least half of the weight lies, feature by feature.

    Args:
        x: ``(N, F)``.
        segments: which nodes each node hears, none of them nobody.
        weight: ``(E, 1)``, of the entries of the segments, not negative.
    """
    nodes, rows = x.size(-2), segments.rows.sort().values
    ascending, order = x.sort(dim=-2, stable=True)
    places = torch.arange(nodes, device=x.device).unsqueeze(-1).expand_as(order)
    rank = torch.zeros_like(order).scatter(-2, order, places)
    keys, place = (segments.rows.unsqueeze(-1) * nodes + segments.at_cols(rank)).sort(dim=-2)
    shares = weight.double().expand_as(place)
    ordered = shares.gather(-2, place)  # segment by segment, in the order of their values
    first = segments.degree.cumsum(0) - segments.degree
    before = ordered.cumsum(-2) - ordered
    passed = ordered + before - before.index_select(-2, first.index_select(0, rows))
    # half of a weight is met to rounding: of two equal ones, the lower value is the median
    is_below = passed < (0.5 - 1e-9) * segments.sum(shares).index_select(-2, rows)
    below = torch.zeros_like(order).index_add(-2, rows, is_below.to(order.dtype))
    slot = (first.unsqueeze(-1) + below).clamp(max=rows.numel() - 1)
    return ascending.gather(-2, keys.gather(-2, slot) % nodes)


CONVOLUTIONS: dict[str, type[Convolution]] = {
    "gcn": GCNConvolution,
    "sage": SAGEConvolution,
    "sage-max": SAGEMaxConvolution,
    "gin": GINConvolution,
    "gat": GATConvolution,
    "chebyshev": ChebyshevConvolution,
    "gcnn": PolynomialConvolution,
    "median": MedianConvolution,
    "soft-median": SoftMedianConvolution,
}
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


def node_graph(graph: Graph, convolution: str) -> NodeGraph:
    """The shift operators that a convolution takes: its own, and the one of a GCN for activations."""
    kind = CONVOLUTIONS[check_choice("convolution", convolution, tuple(CONVOLUTIONS))].normalization
    shifted = graph.normalize("gcn")
    own: Any = graph if kind == "none" else shifted if kind == "gcn" else graph.normalize(kind)  # type: ignore[arg-type]
    return NodeGraph(own, shifted)
