r"""Messages and memory of a training step, counted from the model and the cut before anything is run.

A graph filter of order K exchanges K times, at the smaller of its two widths. A graph-adaptive activation of K hops
exchanges K + 1 times: what arrives of :math:`S^k x` serves the function of hop k and the next shift. A localized one
exchanges once, with all nodes within its reach. The gradient of each exchange is one exchange the other way.

With n nodes held, B nodes that boundary rows refer to, E edges, s values sent and h received, and numbers of w bytes:

- the graph takes (20 + 2 w) E + 48 (n + B) + 8 s bytes: both directions, their order by degree, places and weights;
- the file it came from stays mapped: (4 + w) E + 8 n + 12 (n + h) bytes;
- a layer keeps for its gradient K + 1 shifts of its input (where it is the narrower side), the ReLU, and for each hop
  the function's value and which neighbour attained it (the kernel: the values it came from; your own function: those
  that it read);
- on top come the temporaries of the backward pass of a hop: about six signals on the nodes held, four on those near
  the boundary, what is sent and received, and the gradient of the K + 1 shifts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from graphact._checks import check_integer
from graphact.distributed.partitioned import PartitionedGraph
from graphact.nn import GraphModule
from graphact.spec import (
    Activation,
    AdaptiveFilter,
    Filter,
    HopMixture,
    Layer,
    Linear,
    Pointwise,
    Sum,
    UnsupportedModelError,
)
from graphact.spec.reductions import KERNEL

INDEX = 8  # bytes of an index
PLACE = 4  # bytes of a place in a list
CHOICE = 1  # bytes that say which neighbour attained a maximum or median, up to 254 neighbours


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


@dataclass(frozen=True)
class Sizes:
    """Counts of the part of a process.

    Attributes:
        nodes: nodes held.
        near: nodes that rows at the boundary refer to.
        edges: directed edges to the nodes held.
        halo: values received in an exchange.
        sent: values sent in an exchange.
    """

    nodes: int
    near: int
    edges: int
    halo: int
    sent: int

    @classmethod
    def of(cls, graph: PartitionedGraph) -> "Sizes":
        return cls(graph.num_nodes, graph.num_near, graph.num_edges, graph.num_halo, graph.num_sent)


@dataclass(frozen=True)
class StepMemory:
    """Bytes that a process needs for its part of the graph, its file, and a step of training."""

    graph: int
    file: int
    kept: int
    in_hand: int

    @property
    def total(self) -> int:
        """All of it; the interpreter and the libraries come on top."""
        return self.graph + self.file + self.kept + self.in_hand


def _walk(model: nn.Module, features: int | None = None) -> Iterator[tuple[Layer, int]]:
    """Yield the layers of a model with the features of their inputs; those that the model asks for if left out."""
    if not isinstance(model, GraphModule):
        expected = "a GCNN, FIR, GraphFilter or activation of graphact, or another module that describes itself"
        raise UnsupportedModelError("", f"model must be {expected}, got {type(model).__name__}")
    layers = model.layers()
    taken = next((layer.in_features for layer in layers if layer.in_features), features)
    if taken is None:
        raise UnsupportedModelError("", f"model must have a known number of features, got {type(model).__name__}")
    if features not in (None, taken):
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


def step_memory(
    model: nn.Module,
    sizes: Sizes,
    *,
    samples: int = 1,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> StepMemory:
    """Predict the memory that a training step needs on the device of one process.

    Args:
        model: a GCNN or FIR, or another module that describes itself and has a known number of features.
        sizes: of the part.
        samples: signals in a batch.
        dtype: precision of the signals and of the graph, whose weights have at least single precision.
        device: ``"cpu"`` or ``"cuda"``, where the mapped file takes nothing.

    Raises:
        UnsupportedModelError: the model does not describe itself, or takes any number of features.

    Example:
        >>> import graphact
        >>> from graphact.distributed import Sizes, step_memory
        >>> model = graphact.nn.GCNN([8, 16], order=2, activation="max-ga")
        >>> sizes = Sizes(nodes=1_000_000, near=10_000, edges=16_000_000, halo=5_000, sent=5_000)
        >>> round(step_memory(model, sizes).total / 2**30, 1)
        1.4
    """
    n, near, number, weight = sizes.nodes, sizes.near, samples * dtype.itemsize, max(4, dtype.itemsize)
    layers = list(_walk(model))
    kept, widest, shifts = n * number * layers[0][1], 0, 0  # the input
    for layer, width in layers:
        signal = n * width * number
        match layer:
            case Filter():
                narrow = min(width, layer.out_features)
                kept += signal * (len(layer.taps) if narrow == width else 1)
                widest, shifts = max(widest, layer.out_features), max(shifts, narrow * len(layer.taps))
            case AdaptiveFilter():
                passes = layer.exchanges * len(layer.functions)
                kept += signal * (1 + layer.exchanges + passes) + passes * CHOICE * (n + near) * width * samples
                widest = max(widest, layer.out_features, width * (1 + layer.exchanges + passes))
            case Linear() | Pointwise():
                kept += signal
            case HopMixture():
                context = CHOICE * (n + near) * width * samples
                if layer.operation is KERNEL:  # its input and exponent
                    context = (2 * n + near) * width * number
                elif not layer.operation.is_built_in:
                    context = sizes.edges * width * number
                kept += signal + layer.hops * (signal + context)
                widest = max(widest, width)
            case _:
                reason = f"nothing is known about the memory of layers of the kind {layer.kind!r}"
                raise UnsupportedModelError("", reason)
    layer, width = layers[-1]
    if not isinstance(layer, Linear):
        kept += n * number * (layer.out_features or width)  # what the loss reads
    return StepMemory(
        graph=(2 * INDEX + PLACE + 2 * weight) * sizes.edges + 6 * INDEX * (n + near) + INDEX * sizes.sent,
        file=((4 + weight) * sizes.edges + INDEX * n + 12 * (n + sizes.halo)) * (device == "cpu"),
        kept=kept,
        in_hand=number * (widest * (6 * n + 4 * near + 2 * (sizes.sent + sizes.halo)) + shifts * n),
    )
