"""Layers that a fleet stacks: convolutions of node classification, controls and rivals among them, maps and batch norm.

PyG's convolutions compute the same functions, but a fleet calls its layers under :func:`torch.vmap` with one sparse
feature matrix for all models. These map features first and then move along edges, so that the features of many models
are mapped by one SpMM on a GPU; the tests compare them with PyG's.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphact._checks import check_choice
from graphact.functional import neighborhood_max, neighborhood_median, shift
from graphact.functional.adaptive_filter import check_functions
from graphact.functional.neighborhood import functions_pass
from graphact.functional.segments import Segments
from graphact.graph import Graph
from graphact_lab.fleets.features import DroppedFeatures, SparseFeatures

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


class StackedLinear(nn.Module):
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


class StackedConvolution(nn.Module):
    """Maps to ``terms`` signals of ``out_features`` each, propagation along the edges, and a bias at the end.

    Args:
        in_features, out_features: sizes.
        hidden: features between the maps of a convolution that has two in a row; 0 stands for ``out_features``.
        activation: the one between those maps, or after a convolution that is not the last.
        bias: whether to add a bias.
    """

    normalization = "gcn"  # of the graph
    exchanges = 1
    terms = 1

    def __init__(
        self, in_features: int, out_features: int, *, hidden: int = 0, activation: Any = None, bias: bool = True
    ) -> None:
        super().__init__()
        del activation, hidden
        self.maps = nn.ModuleList(StackedLinear(in_features, out_features, bias=False) for _ in range(self.terms))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        return self.biased(self.propagate([each(x) for each in self.maps], graph.convolution))

    def biased(self, x: Tensor) -> Tensor:
        return x if self.bias is None else x + self.bias

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        """Return the result of the mapped signals."""
        return shift(terms[0], graph)


class GCNConvolution(StackedConvolution):
    """``S x W`` with self-loops and symmetric normalisation (Kipf and Welling 2017)."""


class SAGEConvolution(StackedConvolution):
    """``x V + mean_j x_j W`` (Hamilton et al. 2017)."""

    normalization, terms = "random_walk", 2

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return terms[0] + shift(terms[1], graph)


class SAGEMaxConvolution(StackedConvolution):
    """``x V + max_j relu(x_j P + p) W``, the pooling of Hamilton et al. (2017): a maximum in the convolution.

    A control for activations that take a maximum. Its inner ReLU stays whatever the activation after it.
    """

    normalization, terms = "none", 1

    def __init__(
        self, in_features: int, out_features: int, *, hidden: int = 0, activation: Any = None, bias: bool = True
    ) -> None:
        super().__init__(in_features, out_features, activation=activation, bias=bias)
        self.pool = StackedLinear(in_features, hidden or out_features)
        self.last = StackedLinear(hidden or out_features, out_features, bias=False)

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        pooled = neighborhood_max(torch.relu(self.pool(x)), graph.convolution)
        return self.biased(self.maps[0](x) + self.last(pooled))


class MaxBankConvolution(StackedConvolution):
    """``x V + S y W + sum_m f_m(y) G_m`` with ``y = x P``: an adaptive filter bank of order 1 behind a map.

    Features are mapped first, since those of documents are sparse; neighbours still exchange once.
    """

    functions: tuple[str, ...] = ("max",)

    def __init__(
        self, in_features: int, out_features: int, *, hidden: int = 0, activation: Any = None, bias: bool = True
    ) -> None:
        super().__init__(in_features, out_features, activation=activation, bias=bias)
        self.sent = StackedLinear(in_features, hidden or out_features, bias=False)
        self.last = StackedLinear((1 + len(self.functions)) * (hidden or out_features), out_features, bias=False)
        self.read = check_functions(self.functions)

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        values = graph.convolution.one_hop(self.sent(x), functions_pass, self.read, False, True)
        return self.biased(self.maps[0](x) + self.last(torch.cat(values, -1)))


class FourBankConvolution(MaxBankConvolution):
    """The same with the functions of principal neighbourhood aggregation (Corso et al. 2020)."""

    functions = ("mean", "max", "min", "std")


class PolynomialConvolution(StackedConvolution):
    """``sum_k S^k x H_k`` of order 2, the filter bank of a GCNN."""

    normalization, terms, exchanges = "symmetric", 3, 2

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return terms[0] + shift(terms[1] + shift(terms[2], graph), graph)


class ChebyshevConvolution(PolynomialConvolution):
    """The same in the basis of Chebyshev polynomials (Defferrard et al. 2016): ``T_2(S) = 2 S^2 - I``."""

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        return terms[0] - terms[2] + shift(terms[1] + 2 * shift(terms[2], graph), graph)


class GINConvolution(StackedConvolution):
    """``MLP((1 + eps) x + sum_j x_j)`` (Xu et al. 2019), with the activation inside of the MLP as well."""

    normalization = "none"

    def __init__(
        self, in_features: int, out_features: int, *, hidden: int = 0, activation: Any = None, bias: bool = True
    ) -> None:
        super().__init__(in_features, hidden or out_features, bias=bias)
        self.eps = nn.Parameter(torch.zeros(()))
        self.activation, self.last = activation, StackedLinear(hidden or out_features, out_features, bias)

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        mapped = self.maps[0](x)
        summed = self.biased((1 + self.eps) * mapped + shift(mapped, graph.convolution))
        return self.last(summed if self.activation is None else self.activation(summed, graph.activation))


class GATConvolution(StackedConvolution):
    """Graph attention with heads of eight features each (Veličković et al. 2018), a single head at the end."""

    def __init__(
        self, in_features: int, out_features: int, *, hidden: int = 0, activation: Any = None, bias: bool = True
    ) -> None:
        super().__init__(in_features, out_features, hidden=hidden, bias=bias)
        self.heads = 1 if activation is None or out_features % 8 else out_features // 8
        self.at_node, self.at_neighbor = (
            nn.Parameter(torch.empty(self.heads, out_features // self.heads)) for _ in range(2)
        )
        for parameter in (self.at_node, self.at_neighbor):
            nn.init.xavier_uniform_(parameter)

    def propagate(self, terms: list[Tensor], graph: Graph) -> Tensor:
        segments, mapped = Segments.of(graph.incoming, closed=True), terms[0].unflatten(-1, (self.heads, -1))
        at_node, at_neighbor = (mapped * self.at_node).sum(-1), (mapped * self.at_neighbor).sum(-1)
        score = torch.nn.functional.leaky_relu(segments.at_rows(at_node) + segments.at_cols(at_neighbor), 0.2)
        powers = (score - segments.at_rows(segments.extreme(score.detach(), "amax"))).exp()
        values = segments.at_cols(terms[0]).unflatten(-1, (self.heads, -1))
        total = segments.sum((powers.unsqueeze(-1) * values).flatten(-2)).unflatten(-1, (self.heads, -1))
        return (total / segments.sum(powers).unsqueeze(-1)).flatten(-2)


class MedianConvolution(StackedConvolution):
    """The median over a closed neighbourhood of mapped features, feature by feature (MedianGCN, Chen et al. 2021).

    A median has no gradient with respect to edge weights, which attacks need; it passes on the gradient of a GCN.
    """

    def forward(self, x: Signal, graph: NodeGraph) -> Tensor:
        mapped = self.maps[0](x)
        median = neighborhood_median(mapped, graph.activation, closed=True)
        if graph.convolution.weight.requires_grad:
            smooth = shift(mapped, graph.convolution)
            median = median + smooth - smooth.detach()
        return self.biased(median)


class SoftMedianConvolution(StackedConvolution):
    r"""A mean whose weights fall with the distance from the median (Soft Median, Geisler et al. 2021).

    .. math:: y_i = \Big(\sum_j a_{ij}\Big) \frac{\sum_j w_{ij} z_j}{\sum_j w_{ij}}, \qquad
        w_{ij} = a_{ij} \exp(-\|z_j - m_i\| / (T \sqrt{F}))

    with the mapped signals z, the GCN shift a, and the median m of z over the closed neighbourhood, feature by feature,
    weighted by a, as in the authors' code.
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
    """Return the weighted median of each segment: the lowest value up to which at least half of the weight lies.

    Args:
        x: ``(N, F)``.
        segments: the neighbours of each node; no segment may be empty.
        weight: ``(E, 1)``; nonnegative weights of the entries of the segments.
    """
    nodes, rows = x.size(-2), segments.rows.sort().values
    ascending, order = x.sort(dim=-2, stable=True)
    places = torch.arange(nodes, device=x.device).unsqueeze(-1).expand_as(order)
    rank = torch.zeros_like(order).scatter(-2, order, places)
    keys = segments.rows.unsqueeze(-1) * nodes + segments.at_cols(rank)
    bits = keys.size(-2).bit_length()
    entries = torch.arange(keys.size(-2), device=x.device).unsqueeze(-1)
    both = (keys << bits | entries).sort(-2).values  # entries are carried along
    keys, place = both >> bits, both & (1 << bits) - 1
    shares = weight.double().expand_as(place)
    ordered = shares.gather(-2, place)  # segment by segment, in ascending order of values
    first = segments.degree.cumsum(0) - segments.degree
    before = ordered.cumsum(-2) - ordered
    passed = ordered + before - before.index_select(-2, first.index_select(0, rows))
    # half of a weight is met to rounding: of two equal ones, the lower value is the median
    is_below = passed < (0.5 - 1e-9) * segments.sum(shares).index_select(-2, rows)
    below = torch.zeros_like(order).index_add(-2, rows, is_below.to(order.dtype))
    slot = (first.unsqueeze(-1) + below).clamp(max=rows.numel() - 1)
    return ascending.gather(-2, keys.gather(-2, slot) % nodes)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm over the nodes, ``(..., N, F)``, which replaces its running statistics, as vmap needs."""

    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            mean, variance = x.mean(-2), x.var(-2, correction=0)
            unbiased = variance.detach() * (x.size(-2) / (x.size(-2) - 1))
            share = self.momentum or 0.0  # torch.lerp rounds it to float32 under vmap
            self.running_mean = (1 - share) * self.running_mean + share * mean.detach()
            self.running_var = (1 - share) * self.running_var + share * unbiased
        else:
            mean, variance = self.running_mean, self.running_var
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias


CONVOLUTIONS: dict[str, type[StackedConvolution]] = {
    "gcn": GCNConvolution,
    "sage": SAGEConvolution,
    "sage-max": SAGEMaxConvolution,
    "bank-max": MaxBankConvolution,
    "bank-pna": FourBankConvolution,
    "gin": GINConvolution,
    "gat": GATConvolution,
    "chebyshev": ChebyshevConvolution,
    "gcnn": PolynomialConvolution,
    "median": MedianConvolution,
    "soft-median": SoftMedianConvolution,
}


def node_graph(graph: Graph, convolution: str) -> NodeGraph:
    """Return the shift operators of a convolution: its own, and that of a GCN for activations."""
    kind = CONVOLUTIONS[check_choice("convolution", convolution, tuple(CONVOLUTIONS))].normalization
    shifted = graph.normalize("gcn")
    own: Any = graph if kind == "none" else shifted if kind == "gcn" else graph.normalize(kind)  # type: ignore[arg-type]
    return NodeGraph(own, shifted)
