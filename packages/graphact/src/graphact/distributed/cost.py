r"""Messages of a training step, counted from the model and the cut before anything is run.

A graph filter of order K exchanges K times, at the smaller of its two widths. A graph-adaptive activation of K hops
exchanges K + 1 times: what arrives of :math:`S^k x` serves the function of hop k and the next shift. A localized one
exchanges once, with all nodes within its reach. The gradient of each exchange is one exchange the other way.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from graphact._checks import check_integer
from graphact.distributed.partitioned import PartitionedGraph
from graphact.nn import GraphModule
from graphact.spec import Activation, AdaptiveFilter, Filter, HopMixture, Layer, Sum, UnsupportedModelError


@dataclass(frozen=True)
class HaloExchange:
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
class StepCost:
    """Exchanges of one process, and the bytes of payload that it sends and receives in them."""

    exchanges: int
    sent: int
    received: int


def _walk(model: nn.Module, features: int) -> Iterator[tuple[Layer, int]]:
    """Yield the layers of a model with the features of their inputs."""
    if not isinstance(model, GraphModule):
        expected = "a GCNN, FIR, GraphFilter or activation of graphact, or another module that describes itself"
        raise UnsupportedModelError("", f"model must be {expected}, got {type(model).__name__}")
    layers = model.layers()
    taken = next((layer.in_features for layer in layers if layer.in_features), features)
    if features != taken:
        raise ValueError(f"features must be {taken}, as the model takes, got {features}")
    yield from _walk_chain(layers, taken)


def _walk_chain(layers: Iterable[Layer], features: int) -> Iterator[tuple[Layer, int]]:
    """Yield layers and those of the branches of sums, with the features of their inputs."""
    for layer in layers:
        if isinstance(layer, Sum):
            for branch in layer.branches:
                yield from _walk_chain(branch, features)
        else:
            yield layer, features
        features = layer.out_features or features


def exchanges_of(model: nn.Module, features: int, *, input_gradient: bool = False) -> list[HaloExchange]:
    """List the exchanges of a forward pass, in their order.

    Args:
        model: a GCNN, FIR, filter bank or activation of graphact, or another module that describes itself.
        features: features of its input.
        input_gradient: whether a gradient with respect to the input is wanted.

    Raises:
        UnsupportedModelError: the model does not describe itself.

    Example:
        >>> import graphact
        >>> from graphact.distributed import exchanges_of
        >>> len(exchanges_of(graphact.nn.GCNN([1, 8], order=2, activation="max-ga", hops=3), features=1))
        6
    """
    check_integer("features", features, minimum=1)
    found, wanted = [], input_gradient
    for layer, width in _walk(model, features):
        match layer:
            case Filter():
                narrow = min(width, layer.out_features)
                returns = wanted or narrow < width  # what is shifted is then the output of the taps
                found += [HaloExchange(narrow, returns=returns)] * layer.exchanges
            case HopMixture(reads="hops"):
                found.append(HaloExchange(width, layer.hops, layer.closed, wanted))
            case HopMixture() | Activation() | AdaptiveFilter():
                found += [HaloExchange(width, returns=wanted)] * layer.exchanges
            case _ if layer.exchanges:
                reason = f"nothing is known about the exchanges of layers of the kind {layer.kind!r}"
                raise UnsupportedModelError("", reason)
        wanted = wanted or bool(layer.arrays())  # trained arrays before a layer need its gradient
    return found


def step_cost(
    model: nn.Module,
    graph: PartitionedGraph,
    features: int,
    *,
    samples: int = 1,
    dtype: torch.dtype = torch.float32,
    training: bool = True,
    input_gradient: bool = False,
) -> StepCost:
    """Count what this process exchanges in one forward pass, or in one forward and backward pass.

    Args:
        model, features, input_gradient: as :func:`exchanges_of` takes them.
        graph: the part of this process.
        samples: signals in a batch.
        dtype: precision of the signals.
        training: count the backward pass, too.
    """
    count = sent = received = 0
    for exchange in exchanges_of(model, features, input_gradient=input_gradient):
        out, back = graph.reach_size(exchange.hops, exchange.closed)
        row = exchange.features * samples * dtype.itemsize
        count, sent, received = count + 1, sent + out * row, received + back * row
        if training and exchange.returns:
            count, sent, received = count + 1, sent + back * row, received + out * row
    return StepCost(count, sent, received) if graph.parts > 1 else StepCost(0, 0, 0)
