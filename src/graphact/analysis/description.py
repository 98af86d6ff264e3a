"""What guarantees read of a module: its layers in float64, each of a known kind, and the hops of its activations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from graphact.analysis.rules import MOST_ENTRIES, OPERATIONS, POINTWISE, TRAINED
from graphact.functional import shift
from graphact.graph import Graph, Neighborhoods
from graphact.layers import Filter, HopMixture, Layer, Linear, Pointwise, UnsupportedModelError, map_arrays
from graphact.nn import GraphModule

KnownLayer = Filter | Linear | Pointwise | HopMixture
Layers = tuple[KnownLayer, ...]


def read_layers(module: nn.Module, features: int | None = None) -> tuple[Layers, int]:
    """The layers of a module as they are now, in float64 on the CPU, and the features of its input.

    Gradients flow back to the parameters. A module that takes any number of features treats all of them alike, so that
    one stands for all where no number is given. Raise UnsupportedModelError if there is no rule for a part.
    """
    if not isinstance(module, GraphModule):
        raise UnsupportedModelError(
            "",
            "module must be a GCNN, FIR, GraphFilter or an activation of graphact.nn, or another module that describes "
            f"itself, got {type(module).__name__}",
        )
    described = module.layers()
    taken = next((layer.in_features for layer in described if layer.in_features is not None), features or 1)
    if features not in (None, taken):
        raise ValueError(f"x must have {taken} features, got {features}")
    width = taken
    for part, layer in zip(part_names(module, described), described, strict=True):
        reason = unknown(layer)
        if not reason and layer.in_features not in (None, width):
            reason = f"it takes {layer.in_features} features, and the layer in front of it gives {width}"
        if reason:
            raise UnsupportedModelError(part, reason)
        width = layer.out_features or width
    return cast("Layers", map_arrays(described, wide)), taken


def unknown(layer: Layer) -> str:
    """Why nothing is known about a layer; empty where there is a rule for it."""
    match layer:
        case Filter() | Linear():
            return ""
        case Pointwise():
            name, known = layer.function, [*POINTWISE, *TRAINED]
            is_known = name in known
        case HopMixture(operation=operation):  # by what it is: another operation of the same name has no rule
            name, is_known, known = operation.name, operation in OPERATIONS, [rule.name for rule in OPERATIONS]
        case _:
            return f"nothing is known about layers of the kind {layer.kind!r}"
    if is_known:
        return ""
    return f"there is no rule for {name!r} (a function of your own has none); there are rules for {', '.join(known)}"


def part_names(module: nn.Module, layers: Sequence[Layer]) -> list[str]:
    """Which part of a module each layer comes from, by the parameters it holds; otherwise its number."""
    owners = {id(parameter): name.rpartition(".")[0] for name, parameter in module.named_parameters()}
    return [
        next((owners[id(array)] for array in layer.arrays().values() if id(array) in owners), f"layer {number}")
        for number, layer in enumerate(layers)
    ]


def read_signals(x: Tensor) -> Tensor:
    """Signals as float64 ``(B, N, F)``, of which there must be one."""
    if x.numel() == 0:
        raise ValueError(f"x must hold at least one signal, got the shape {tuple(x.shape)}")
    return wide(x.detach()).reshape(-1, *x.shape[-2:])


def wide(tensor: Tensor) -> Tensor:
    """The same numbers in float64 on the CPU, still attached to what they came from."""
    return tensor.to("cpu", torch.float64)


def split_readout(layers: Layers) -> tuple[Layers, Linear | None]:
    """The layers in front of the last linear map, and that map, where a network ends with one."""
    if layers and isinstance(layers[-1], Linear):
        return layers[:-1], layers[-1]
    return layers, None


def widths(layers: Layers, features: int) -> Iterator[int]:
    """The features behind each layer."""
    for layer in layers:
        features = layer.out_features or features
        yield features


@dataclass(frozen=True, eq=False)
class Hop:
    """One term of an activation, counted from 0: the signals ``(..., N, F)`` that are read, and at which neighbours."""

    number: int
    signals: tuple[Tensor, ...]
    neighborhoods: Neighborhoods
    closed: bool  # whether a node reads its own value as well

    def reduce(self, function: Callable[[Tensor, Tensor], tuple[Tensor, ...]], entries: int) -> tuple[Tensor, ...]:
        """Apply a function to the nodes ``(n,)`` and their neighbours ``(n, d)``, degree by degree, 0 included.

        Every result has the nodes in its second last dimension, ``(..., n, F)``; they come back in the order of all
        nodes. ``entries`` numbers are held for each neighbour, which decides how many nodes fit into memory at once.
        """
        parts: list[tuple[Tensor, ...]] = []
        for nodes, table in self.neighborhoods.tables():
            if self.closed:
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
            step = max(1, MOST_ENTRIES // max(1, entries * table.size(-1)))
            parts += [function(*chunk) for chunk in zip(nodes.split(step), table.split(step), strict=True)]
        return tuple(torch.cat(column, dim=-2)[..., self.neighborhoods.rank, :] for column in zip(*parts, strict=True))

    def reduce_one(self, function: Callable[[Tensor, Tensor], Tensor], entries: int) -> Tensor:
        """The same for a function with one result."""
        return self.reduce(lambda nodes, table: (function(nodes, table),), entries)[0]


def hops_of(layer: HopMixture, graph: Graph, *signals: Tensor) -> Iterator[Hop]:
    """The hops of an activation: :math:`S^k x` at the neighbours (graph-adaptive), or x at the k-hop neighbours."""
    for number in range(layer.hops):
        if layer.reads == "shifted":
            signals = tuple(shift(x, graph) for x in signals)
        if layer.reads == "shifted" or number == 0:
            yield Hop(number, signals, graph.incoming, layer.closed)
        else:
            yield Hop(number, signals, graph.hop_pattern(number + 1, closed=layer.closed), False)
