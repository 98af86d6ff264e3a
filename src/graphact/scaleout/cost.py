r"""What a step of training costs in messages: a count from the model and the cut, checked against what is sent.

A graph filter of order K exchanges K times, at the smaller of its two widths. A graph-adaptive activation of K hops
exchanges K + 1 times: what arrives of :math:`S^k x` serves the function of hop k and the next shift. A localized one
exchanges once, with all nodes within its reach. The gradient of each exchange is one exchange the other way.
"""

from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import nn

from graphact._checks import check_integer
from graphact.layers import Filter, HopMixture, Layer, UnsupportedModelError
from graphact.nn import GraphModule
from graphact.scaleout.partitioned import PartitionedGraph


@dataclass(frozen=True)
class Exchange:
    """One exchange of a forward pass.

    Attributes:
        features: numbers for each node and sample.
        hops: how far it reaches; 1 is the halo.
        closed: whether walks may rest, for several hops.
        returns: whether the gradient comes back the same way.
    """

    features: int
    hops: int = 1
    closed: bool = False
    returns: bool = True


@dataclass(frozen=True)
class Cost:
    """Exchanges of one process, and the bytes of payload that it sends and receives in them."""

    exchanges: int
    sent: int
    received: int


def exchanges_of(model: nn.Module, features: int, *, input_gradient: bool = False) -> list[Exchange]:
    """The exchanges of a forward pass, in their order.

    Args:
        model: a GCNN, FIR, filter bank or activation of graphact, or another module that describes itself.
        features: features of its input.
        input_gradient: whether a gradient with respect to the input is wanted.

    Raises:
        UnsupportedModelError: the model does not describe itself.

    Example:
        >>> import graphact
        >>> from graphact.scaleout import exchanges_of
        >>> len(exchanges_of(graphact.nn.GCNN([1, 8], order=2, activation="max-ga", hops=3), features=1))
        6
    """
    check_integer("features", features, minimum=1)
    found, wanted = [], input_gradient
    for layer in layers_of(model):
        features = layer.in_features or features
        found += layer_exchanges(layer, features, wanted)
        features = layer.out_features or features
        wanted = wanted or bool(layer.arrays())  # what is trained in front of a layer needs its gradient
    return found


def layers_of(model: nn.Module) -> tuple[Layer, ...]:
    """The description of a model.

    Raises:
        UnsupportedModelError: the model does not describe itself.
    """
    if not isinstance(model, GraphModule):
        raise UnsupportedModelError(
            "",
            "model must be a GCNN, FIR, GraphFilter or activation of graphact, or another module that describes "
            f"itself, got {type(model).__name__}",
        )
    return model.layers()


@singledispatch
def layer_exchanges(_layer: Layer, _features: int, _wanted: bool) -> list[Exchange]:
    """The exchanges of one layer; linear maps and pointwise functions need none."""
    return []


@layer_exchanges.register
def _(layer: Filter, _features: int, wanted: bool) -> list[Exchange]:
    shifts_input = layer.in_features <= layer.out_features
    width = min(layer.in_features, layer.out_features)
    return [Exchange(width, returns=wanted or not shifts_input)] * layer.exchanges


@layer_exchanges.register
def _(layer: HopMixture, features: int, wanted: bool) -> list[Exchange]:
    if layer.reads == "hops":
        return [Exchange(features, layer.hops, layer.closed, wanted)]
    return [Exchange(features, returns=wanted)] * layer.exchanges


def step_cost(
    model: nn.Module,
    graph: PartitionedGraph,
    features: int,
    *,
    samples: int = 1,
    dtype: torch.dtype = torch.float32,
    training: bool = True,
    input_gradient: bool = False,
) -> Cost:
    """What this process exchanges in one forward pass, or in one forward and backward pass.

    Args:
        model: as :func:`exchanges_of` takes it.
        graph: the part of this process.
        features: features of the input.
        samples: signals in a batch.
        dtype: precision of the signals.
        training: count the backward pass, too.
        input_gradient: whether a gradient with respect to the input is wanted.
    """
    count = sent = received = 0
    for exchange in exchanges_of(model, features, input_gradient=input_gradient):
        out, back = graph.reach_size(exchange.hops, exchange.closed)
        row = exchange.features * samples * dtype.itemsize
        count, sent, received = count + 1, sent + out * row, received + back * row
        if training and exchange.returns:
            count, sent, received = count + 1, sent + back * row, received + out * row
    return Cost(count, sent, received) if graph.parts > 1 else Cost(0, 0, 0)
