"""Networks of filter banks, EdgeNets or your own convolutions, and any activation."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from graphact.graph.normalize import Normalization, check_normalize
from graphact.nn.adaptive_filter_bank import AdaptiveFilterBank
from graphact.nn.edge_net import EdgeNet
from graphact.nn.gcnn import LayeredNetwork, make_readout, one_per_layer, pair_widths
from graphact.nn.graph_filter import GraphFilter
from graphact.nn.lookup import Activation, accepted, describe_activation
from graphact.nn.module import GraphModule, Start

CONVOLUTIONS: dict[str, type[GraphModule]] = {
    "GraphFilter": GraphFilter,
    "AdaptiveFilterBank": AdaptiveFilterBank,
    "EdgeNet": EdgeNet,
}
AnyKind = str | Mapping[str, Any] | Callable[[int, int], GraphModule]
"""The name of a convolution, a mapping of ``"name"`` and its options, or a function of the two widths."""


class GraphNetwork(LayeredNetwork):
    """A network of any convolutions, each followed by an activation, and one linear map that all nodes share.

    A :class:`GCNN` is the case of polynomial filters.

    Args:
        features: features of the input and of each layer.
        convolution: a name (``GraphFilter``, ``EdgeNet``), a mapping of ``"name"`` and options, a function from the two
            widths of a layer to a module, or a list with one of these for each layer.
        activation: as :class:`GCNN` takes it.
        hops: number of hops of the activations.
        out_features: features of the readout at each node; None leaves the readout out.
        readout_bias: a trained constant in the readout.
        per_feature: give each feature its own activation weights.
        closed: count a node among its neighbours in the activations.
        start: where the activations' weights start.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.

    Shapes:
        x: ``(..., N, features[0])``; result: ``(..., N, out_features)``.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("symmetric")
        >>> edge_net = {"name": "EdgeNet", "graph": graph, "order": 2}
        >>> model = graphact.nn.GraphNetwork([1, 4, 4], convolution=edge_net, activation="median-ga", out_features=2)
        >>> model(torch.randn(8, 20, 1), graph).shape
        torch.Size([8, 20, 2])
    """

    layered = ("convolutions", "activations")

    def __init__(
        self,
        features: Sequence[int],
        *,
        convolution: AnyKind | Sequence[AnyKind] = "GraphFilter",
        activation: Activation | Sequence[Activation] = "max-ga",
        hops: int = 1,
        out_features: int | None = 1,
        readout_bias: bool = True,
        per_feature: bool = True,
        closed: bool = False,
        start: Start = "zero",
        normalize: Normalization | None = "symmetric",
    ) -> None:
        super().__init__()
        widths = pair_widths(features)
        self.features, self.normalize = list(features), check_normalize(normalize)
        kinds = one_per_layer("convolution", convolution, len(widths))
        self.convolutions = nn.ModuleList(
            make_convolution(kind, *pair, normalize=self.normalize) for kind, pair in zip(kinds, widths, strict=True)
        )
        options: dict[str, Any] = {"hops": hops, "closed": closed, "start": start}
        self.activations = self.make_activations(activation, self.features[1:], per_feature, **options)
        self.readout = make_readout(self.features[-1], out_features, readout_bias)

    def config(self) -> dict[str, Any]:
        return {
            "features": self.features,
            "convolution": [describe_convolution(part) for part in self.convolutions],
            "activation": [describe_activation(part) for part in self.activations],
            **self.readout_config(),
            "normalize": self.normalize,
        }


def make_convolution(kind: AnyKind, in_features: int, out_features: int, **options: Any) -> GraphModule:
    """Build a convolution between two widths from its name, a mapping or a function."""
    if not isinstance(kind, str | Mapping):
        made = kind(in_features, out_features) if callable(kind) else None
        if not isinstance(made, GraphModule):
            raise TypeError(f"convolution must be a name, a mapping, or a function that returns a module, got {kind!r}")
        return made
    given = {"name": kind} if isinstance(kind, str) else dict(kind)
    name = given.pop("name", None)
    if name not in CONVOLUTIONS:
        raise ValueError(f"convolution must be one of {', '.join(CONVOLUTIONS)}, got {name!r}")
    module = CONVOLUTIONS[name]
    if module is GraphFilter:
        given = {"order": 2} | given
    taken = {key: value for key, value in options.items() if key in accepted(module)}
    return module(in_features, out_features, **taken | given)


def describe_convolution(module: nn.Module) -> dict[str, Any]:
    """Return the mapping from which :func:`make_convolution` builds such a module."""
    name = type(module).__name__
    if CONVOLUTIONS.get(name) is not type(module) or not isinstance(module, GraphModule):
        return {"name": None}
    return {"name": name, **{k: v for k, v in module.config().items() if k not in ("in_features", "out_features")}}
