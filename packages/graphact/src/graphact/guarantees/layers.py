"""Layers as the guarantees read them: kinds that have rules, in float64, and the hops of activations."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from graphact.functional import shift
from graphact.graph import Graph, Neighborhoods
from graphact.graph.eager import is_plain
from graphact.graph.edges import check_finite
from graphact.guarantees.rules import MAX_ENTRIES, OPERATIONS, POINTWISE, TRAINED
from graphact.nn import GraphModule
from graphact.nn.module import describe
from graphact.spec import (
    Filter,
    HopMixture,
    Layer,
    LayerNorm,
    Linear,
    OnGraph,
    Pointwise,
    Sum,
    UnsupportedModelError,
    map_arrays,
)

KnownLayer = Filter | Linear | Pointwise | HopMixture  # with rules for all guarantees
Layers = tuple[KnownLayer, ...]
Block = KnownLayer | LayerNorm | Sum  # with rules for bounds on a fixed graph
Blocks = tuple[Block, ...]
Each = TypeVar("Each", bound=Layer)


@dataclass(frozen=True, eq=False)
class FilterOn(Filter):
    """A filter bank on a graph of its own."""

    graph: Graph | None = None


@dataclass(frozen=True, eq=False)
class HopMixtureOn(HopMixture):
    """An activation on a graph of its own."""

    graph: Graph


def resolve_graph(layer: Layer, graph: Graph) -> Graph:
    """Return the graph that a layer acts on: its own, or that of the network."""
    return getattr(layer, "graph", None) or graph


def read_layers(module: nn.Module, features: int | None = None) -> tuple[Layers, int]:
    """Return the current layers of a module in float64 on the CPU, and the number of its input features.

    Gradients flow back to the parameters. A module that takes any number of features treats all of them alike, so that
    one stands for all where no number is given. Raise UnsupportedModelError if there is no rule for a part.
    """
    if not isinstance(module, GraphModule):
        raise UnsupportedModelError(
            "",
            "module must be a GCNN, FIR, GraphFilter or an activation of graphact.nn, or another module that describes "
            f"itself, got {type(module).__name__}",
        )
    layers, taken = check_layers(module, describe(module), features, (Filter, Linear, Pointwise, HopMixture))
    return cast("Layers", layers), taken


def check_layers(
    module: nn.Module, described: tuple[Layer, ...], features: int | None, kinds: tuple[type[Layer], ...]
) -> tuple[Blocks, int]:
    """Return layers of the given kinds in float64, and the input features; raise if one is unknown or does not fit."""
    taken = next((layer.in_features for layer in described if layer.in_features is not None), features or 1)
    if features not in (None, taken):
        raise ValueError(f"x must have {taken} features, got {features}")
    check_chain(part_names(module, described), described, taken, kinds)
    return cast("Blocks", map_arrays(described, lambda array: to_float64(check_parameters(array)))), taken


def check_parameters(parameters: Tensor) -> Tensor:
    """Check that parameters are finite, unless a transform replaced them by tensors without values, as in a fleet."""
    return check_finite("parameters of the model", parameters) if is_plain(parameters) else parameters


def check_chain(parts: Iterable[str], layers: tuple[Layer, ...], width: int, kinds: tuple[type[Layer], ...]) -> int:
    """Return the output features of layers; raise if one is unknown or does not fit the one before it."""
    for part, layer in zip(parts, layers, strict=True):
        reason = explain_unknown(layer, kinds)
        if not reason and layer.in_features not in (None, width):
            reason = f"it takes {layer.in_features} features, and the layer in front of it gives {width}"
        if reason:
            raise UnsupportedModelError(part, reason)
        if isinstance(layer, Sum):
            ends = {check_chain([part] * len(branch), branch, width, kinds) for branch in layer.branches}
            if len(ends) > 1:
                raise UnsupportedModelError(part, f"it adds values of {' and '.join(map(str, sorted(ends)))} features")
        width = layer.out_features or width
    return width


def get_branches(layer: Sum) -> tuple[Blocks, ...]:
    """Return the chains that a sum adds, of which all layers are known."""
    return cast("tuple[Blocks, ...]", layer.branches)


def flatten(layers: Iterable[Layer], graph: Graph | None = None) -> Iterator[Layer]:
    """Yield layers without :class:`~graphact.spec.OnGraph`: those that act on a graph of their own hold it."""
    for layer in layers:
        match layer:
            case OnGraph():
                yield from flatten(layer.layers, layer.graph.to("cpu", torch.float64))
            case Sum():
                yield Sum(tuple(tuple(flatten(branch, graph)) for branch in layer.branches))
            case Filter() | HopMixture() if graph is not None:
                kind = FilterOn if isinstance(layer, Filter) else HopMixtureOn
                yield kind(**{item.name: getattr(layer, item.name) for item in fields(layer)}, graph=graph)
            case _:
                yield layer


def explain_unknown(layer: Layer, kinds: tuple[type[Layer], ...]) -> str:
    """Return the reason why a layer has no rule; empty if it has one."""
    match layer:
        case _ if not isinstance(layer, kinds):
            return f"nothing is known about layers of the kind {layer.kind!r} here"
        case Filter() | Linear() | LayerNorm() | Sum():
            return ""
        case Pointwise():
            name, known = layer.function, [*POINTWISE, *TRAINED]
            has_known_layers = name in POINTWISE or name in TRAINED
        case HopMixture(operation=operation):  # by identity: another operation of the same name has no rule
            name, has_known_layers, known = operation.name, operation in OPERATIONS, [rule.name for rule in OPERATIONS]
        case _:
            return f"nothing is known about layers of the kind {layer.kind!r}"
    if has_known_layers:
        return ""
    return f"there is no rule for {name!r} (a function of your own has none); there are rules for {', '.join(known)}"


def part_names(module: nn.Module, layers: Sequence[Layer]) -> list[str]:
    """Return the part of a module that each layer comes from, by the parameters it holds; otherwise its number."""
    owners = {id(parameter): name.rpartition(".")[0] for name, parameter in module.named_parameters()}
    return [
        next((owners[id(array)] for array in layer.arrays().values() if id(array) in owners), f"layer {number}")
        for number, layer in enumerate(layers)
    ]


def read_signals(x: Tensor) -> Tensor:
    """Return signals as float64 ``(B, N, F)``; there must be at least one."""
    if x.numel() == 0:
        raise ValueError(f"x must hold at least one signal, got the shape {tuple(x.shape)}")
    check_finite("x", x)
    return to_float64(x.detach()).reshape(-1, *x.shape[-2:])


def to_float64(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU, still attached to its history."""
    return tensor.to("cpu", torch.float64)


def split_readout(layers: tuple[Each, ...]) -> tuple[tuple[Each, ...], Linear | None]:
    """Split layers into those before a final linear map, and that map or None."""
    if layers and isinstance(layers[-1], Linear):
        return layers[:-1], layers[-1]
    return layers, None


def widths(layers: Blocks, features: int) -> Iterator[int]:
    """Yield the output features of each layer."""
    for layer in layers:
        features = layer.out_features or features
        yield features


@dataclass(frozen=True, eq=False)
class Hop:
    """One term of an activation, counted from 0: the signals ``(..., N, F)`` that are read, and the neighbourhoods."""

    number: int
    signals: tuple[Tensor, ...]
    neighborhoods: Neighborhoods
    closed: bool  # whether a node reads its own value as well

    def reduce(self, function: Callable[[Tensor, Tensor], tuple[Tensor, ...]], entries: int) -> tuple[Tensor, ...]:
        """Apply a function to the nodes ``(n,)`` and their neighbours ``(n, d)``, degree by degree, 0 included.

        Every result has the nodes in its second last dimension, ``(..., n, F)``; they come back in the order of all
        nodes. ``entries`` numbers are held for each neighbour, which limits the nodes of one batch.
        """
        parts: list[tuple[Tensor, ...]] = []
        for nodes, table in self.neighborhoods.tables():
            if self.closed:
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
            step = max(1, MAX_ENTRIES // max(1, entries * table.size(-1)))
            parts += [function(*chunk) for chunk in zip(nodes.split(step), table.split(step), strict=True)]
        return tuple(torch.cat(column, dim=-2)[..., self.neighborhoods.rank, :] for column in zip(*parts, strict=True))

    def reduce_one(self, function: Callable[[Tensor, Tensor], Tensor], entries: int) -> Tensor:
        """Apply a function with one result."""
        return self.reduce(lambda nodes, table: (function(nodes, table),), entries)[0]


def iterate_hops(layer: HopMixture, graph: Graph, *signals: Tensor) -> Iterator[Hop]:
    """Yield the hops of an activation: :math:`S^k x` at neighbours (graph-adaptive), or x at k-hop neighbours."""
    graph = resolve_graph(layer, graph)
    for number in range(layer.hops):
        if layer.reads == "shifted":
            signals = tuple(shift(x, graph) for x in signals)
        if layer.reads == "shifted" or number == 0:
            yield Hop(number, signals, graph.incoming, layer.closed)
        else:
            yield Hop(number, signals, graph.hop_pattern(number + 1, closed=layer.closed), False)
