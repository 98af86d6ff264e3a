"""Graph convolutional neural networks: filter banks, activations, one readout shared by all nodes."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_positive
from graphact.functional.adaptive_filter import BankFunction
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.adaptive_filter_bank import AdaptiveFilterBank
from graphact.nn.call import resolve_graph
from graphact.nn.graph_filter import GraphFilter
from graphact.nn.lookup import Activation, describe_activation, make_activation
from graphact.nn.module import STARTS, GraphModule, Start, describe
from graphact.spec import Layer, Sum

Bank = GraphFilter | AdaptiveFilterBank


class LayeredNetwork(GraphModule):
    """The base class of networks: layers of parts that are called with the graph, and a readout shared by all nodes."""

    repr_defaults: ClassVar[Mapping[str, Any]] = {
        **GraphModule.repr_defaults,
        "bias": False,
        "readout_bias": True,
        "per_feature": True,
        "closed": False,
        "gamma": 0.1,
        "learn_gamma": False,
    }
    layered: ClassVar[tuple[str, ...]]  # names of lists with one part for each layer, in the order of their calls
    residual: bool = False  # whether a layer that keeps the number of features adds its input to its output
    readout: nn.Module

    def reset_parameters(self) -> None:
        for part in self.modules():
            if part is not self and isinstance(part, (GraphModule, nn.Linear)):
                part.reset_parameters()

    def forward(
        self,
        x: Tensor,
        graph: GraphLike | Tensor,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        graph = resolve_graph(x, graph, edge_weight, self.normalize, batch)
        for parts in zip(*[getattr(self, name) for name in self.layered], strict=True):
            out = x
            for part in parts:
                out = part(out, graph)
            x = x + out if self.adds_input(parts[0]) else out
        return self.readout(x)

    def adds_input(self, first: nn.Module) -> bool:
        """Return whether the layer with this first part adds its input to its output."""
        return self.residual and first.in_features == first.out_features

    def describe(self) -> tuple[Layer, ...]:
        found: list[Layer] = []
        for number, parts in enumerate(zip(*[getattr(self, name) for name in self.layered], strict=True)):
            layers: list[Layer] = []
            for name, part in zip(self.layered, parts, strict=True):
                layers += describe(part, f"{name}.{number}")
            found += [Sum(((), tuple(layers)))] if self.adds_input(parts[0]) else layers
        return (*found, *describe(self.readout, "readout"))

    def make_activations(
        self, activation: Activation | Sequence[Activation], widths: list[int], per_feature: bool, **options: Any
    ) -> nn.ModuleList:
        """Build the activation of each layer."""
        each = one_per_layer("activation", activation, len(widths))
        return nn.ModuleList(
            make_activation(one, features=width if per_feature else None, normalize=self.normalize, **options)
            for one, width in zip(each, widths, strict=True)
        )

    def readout_config(self) -> dict[str, Any]:
        """Return the arguments that construct the readout."""
        linear = self.readout if isinstance(self.readout, nn.Linear) else None
        return {
            "out_features": None if linear is None else linear.out_features,
            "readout_bias": linear is None or linear.bias is not None,
        }


class GCNN(LayeredNetwork):
    r"""A graph convolutional neural network, section 2 of the paper.

    .. math:: x_l = \sigma_l\Big(\sum_{k=0}^{K} S^k x_{l-1} H_{lk}\Big), \quad l = 1..L,
        \qquad y_i = H_{FC}\, x_{L,i} + b

    Every layer is a bank of graph filters and an activation; the readout is one linear map shared by all nodes. Each
    node needs only what its neighbours send. With ``bank="adaptive"`` the banks are of graph-adaptive filters, which
    form functions of a neighbourhood from the exchanges of the shifts.

    Args:
        features: features of the input and of each layer; ``[1, 8, 8]`` is two layers of 8 on a scalar signal.
        order: filter order K of every layer, or one for each layer.
        activation: a name (``relu``, ``max-l``, ``median-l``, ``max-ga``, ``median-ga``, ``kernel-ga``, a pointwise one
            such as ``leaky-relu`` or ``gelu``, or a registered one), a module of which every layer gets a copy, a
            function from a layer's number of features to a module, or a list with one of these for each layer;
            ``max-ga`` by default, ``gelu`` after adaptive banks, as an activation of neighbourhoods adds exchanges.
        hops: number of hops of the activations.
        bank: ``"linear"`` (:class:`GraphFilter`) or ``"adaptive"`` (:class:`AdaptiveFilterBank`).
        ops: the functions of adaptive banks.
        residual: let layers that keep the number of features add their input to their output.
        out_features: features of the readout at each node; None leaves the readout out.
        bias: trained constants in the filter banks.
        readout_bias: a trained constant in the readout.
        per_feature: give each feature its own activation weights (the paper's :math:`h^f_{\sigma l k}`) rather than
            share them.
        closed: count a node among its neighbours in the activations and in adaptive banks.
        gamma: width of the kernel activation's Gaussian.
        learn_gamma: train gamma.
        start: where the activations' weights start: ``"zero"`` (as ReLUs), ``"small"`` or ``"uniform"``.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.

    Shapes:
        x: ``(..., N, features[0])``; result: ``(..., N, out_features)``.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
        >>> model = graphact.nn.GCNN(features=[1, 8, 8], order=2, activation="max-ga", hops=2, out_features=4)
        >>> model(torch.randn(32, 20, 1), graph).shape
        torch.Size([32, 20, 4])
        >>> options = {"bank": "adaptive", "ops": ["max", "min"], "residual": True, "bias": True}
        >>> model = graphact.nn.GCNN(features=[1, 8, 8, 8, 8], order=1, out_features=4, **options)
        >>> sum(layer.exchanges for layer in model.layers())
        4
    """

    layered = ("filters", "activations")

    def __init__(
        self,
        features: Sequence[int],
        *,
        order: int | Sequence[int] = 2,
        activation: Activation | Sequence[Activation] | None = None,
        hops: int = 1,
        bank: Literal["linear", "adaptive"] = "linear",
        ops: Sequence[BankFunction] | None = None,
        residual: bool = False,
        out_features: int | None = 1,
        bias: bool = False,
        readout_bias: bool = True,
        per_feature: bool = True,
        closed: bool = False,
        gamma: float = 0.1,
        learn_gamma: bool = False,
        start: Start = "zero",
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__()
        self.normalize = check_normalize(normalize)
        self.hops = check_integer("hops", hops, minimum=1)
        self.per_feature, self.closed = bool(per_feature), bool(closed)
        self.gamma, self.learn_gamma = check_positive("gamma", gamma), bool(learn_gamma)
        self.start = check_choice("start", start, tuple(STARTS))
        self.bank, self.residual = check_choice("bank", bank, ("linear", "adaptive")), bool(residual)
        if ops is not None and bank == "linear":
            raise ValueError('ops are the functions of adaptive banks: set bank="adaptive"')
        adaptive = {"ops": ("max",) if ops is None else ops, "closed": self.closed} if bank == "adaptive" else None
        banks = make_filters(features, order, bias, self.normalize, adaptive)
        self.filters = nn.ModuleList(banks)
        if activation is None:
            activation = "max-ga" if bank == "linear" else "gelu"
        self.activation = activation if isinstance(activation, str) else None
        widths = [bank.out_features for bank in banks]
        options: dict[str, Any] = {"gamma": gamma, "learn_gamma": learn_gamma, "start": start}
        self.activations = self.make_activations(activation, widths, per_feature, hops=hops, closed=closed, **options)
        self.readout = make_readout(banks[-1].out_features, out_features, readout_bias)

    def config(self) -> dict[str, Any]:
        names = ("hops", "per_feature", "closed", "gamma", "learn_gamma", "start", "normalize")
        return {
            **bank_config(self.filters),
            **({"bank": "adaptive", "ops": self.filters[0].ops} if self.bank == "adaptive" else {}),
            **self.readout_config(),
            **({"residual": True} if self.residual else {}),
            "activation": self.activation or [describe_activation(part) for part in self.activations],
            **{name: getattr(self, name) for name in names},
        }


class FIR(LayeredNetwork):
    """The linear baseline: the filter banks and the readout of a :class:`GCNN`, without nonlinearity.

    Args:
        features: features of the input and of each filter bank.
        order: filter order K of every bank, or one for each.
        out_features: features of the readout at each node; None leaves the readout out.
        bias: trained constants in the filter banks.
        readout_bias: a trained constant in the readout.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.

    Shapes:
        x: ``(..., N, features[0])``; result: ``(..., N, out_features)``.
    """

    layered = ("filters",)

    def __init__(
        self,
        features: Sequence[int],
        *,
        order: int | Sequence[int] = 2,
        out_features: int | None = 1,
        bias: bool = False,
        readout_bias: bool = True,
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__()
        self.normalize = check_normalize(normalize)
        banks = make_filters(features, order, bias, self.normalize)
        self.filters = nn.ModuleList(banks)
        self.readout = make_readout(banks[-1].out_features, out_features, readout_bias)

    def config(self) -> dict[str, Any]:
        return {**bank_config(self.filters), **self.readout_config(), "normalize": self.normalize}


def make_filters(
    features: Sequence[int],
    order: int | Sequence[int],
    bias: bool,
    normalize: Normalization | None,
    adaptive: Mapping[str, Any] | None = None,
) -> list[Bank]:
    """Return a filter bank for each pair of consecutive widths; adaptive ones if their options are given."""
    widths = pair_widths(features)
    orders = one_per_layer("order", order, len(widths))
    kind: type[Bank] = GraphFilter if adaptive is None else AdaptiveFilterBank
    options: dict[str, Any] = {"bias": bias, "normalize": normalize, **(adaptive or {})}
    return [kind(*pair, order=k, **options) for pair, k in zip(widths, orders, strict=True)]


def pair_widths(features: Sequence[int]) -> list[tuple[int, int]]:
    """Return the numbers of features of the input and of the output of each layer."""
    if not isinstance(features, (list, tuple)) or len(features) < 2:
        raise ValueError(f"features must list the input and at least one layer, such as [1, 8, 8], got {features!r}")
    return list(itertools.pairwise(features))


def one_per_layer(name: str, value: Any, layers: int) -> list[Any]:
    """Return a list with a value for each layer, from a list or from one value for all layers."""
    each = list(value) if isinstance(value, list | tuple) else [value] * layers
    if len(each) != layers:
        raise ValueError(f"{name} must be one, or one for each of the {layers} layers, got {len(each)}: {value!r:.60}")
    return each


def make_readout(in_features: int, out_features: int | None, bias: bool) -> nn.Module:
    """Return the linear map that all nodes share, or the identity."""
    if out_features is None:
        return nn.Identity()
    return nn.Linear(in_features, check_integer("out_features", out_features, minimum=1), bias=bias)


def bank_config(filters: nn.ModuleList) -> dict[str, Any]:
    """Return the arguments that construct the filter banks."""
    banks = [bank for bank in filters if isinstance(bank, Bank)]
    return {
        "features": [banks[0].in_features, *(bank.out_features for bank in banks)],
        "order": [bank.order for bank in banks],
        "bias": banks[0].bias is not None,
    }
