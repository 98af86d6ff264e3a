r"""What a step of training costs a process, counted from the model and its part before anything is run.

Messages: a graph filter of order K exchanges K times, at the smaller of its two widths. A graph-adaptive activation of
K hops exchanges K + 1 times: what arrives of :math:`S^k x` serves the function of hop k and the next shift. A localized
one exchanges once, with all nodes within its reach. The gradient of each exchange is one exchange the other way.

Memory: with n nodes held, B nodes that boundary rows refer to, E edges, s values sent and h received, and numbers of w
bytes:

- the graph takes (36 + 2 w) E + 64 (n + B) + 8 s bytes: both directions, their order by degree, places and weights;
- the file it came from stays mapped: (4 + w) E + 8 n + 12 (n + h) bytes;
- a layer keeps for its gradient K + 1 shifts of its input (where it is the narrower side), the ReLU, and for each hop
  the function's value and which neighbour attained it (the kernel: the values it came from);
- on top comes what a hop has in hand at once on its way back: about six signals on the nodes held, four on those near
  the boundary, what is sent and received, and the gradient of the K + 1 shifts.
"""

from dataclasses import dataclass

import torch
from torch import nn

from graphact._checks import check_integer
from graphact.nn import FIR, GCNN, GraphFilter, LocalizedMax, LocalizedMedian, ReLU
from graphact.nn.activation import MixedActivation
from graphact.scaleout.partitioned import PartitionedGraph

INDEX = 8  # bytes of an index
PLACE = 4  # bytes of a place in a list
CHOICE = 1  # bytes that say which neighbour attained a maximum or median, up to 254 neighbours


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
        model: a GCNN, FIR, filter bank or activation of graphact.
        features: features of its input.
        input_gradient: whether a gradient with respect to the input is wanted.

    Example:
        >>> import graphact
        >>> from graphact.scaleout import exchanges_of
        >>> len(exchanges_of(graphact.nn.GCNN([1, 8], order=2, activation="max-ga", hops=3), features=1))
        6
    """
    check_integer("features", features, minimum=1)
    if isinstance(model, (GCNN, FIR)):
        found: list[Exchange] = []
        for number, bank in enumerate(model.filters):
            assert isinstance(bank, GraphFilter)
            found += exchanges_of(bank, bank.in_features, input_gradient=input_gradient or number > 0)
            if isinstance(model, GCNN):
                found += exchanges_of(model.activations[number], bank.out_features, input_gradient=True)
        return found
    if isinstance(model, GraphFilter):
        shifts_input = model.in_features <= model.out_features
        width = min(model.in_features, model.out_features)
        return [Exchange(width, returns=input_gradient or not shifts_input)] * model.order
    if isinstance(model, (LocalizedMax, LocalizedMedian)):
        return [Exchange(features, model.hops, model.closed, input_gradient)]
    if isinstance(model, MixedActivation):
        return [Exchange(features, returns=input_gradient)] * (model.hops + 1)
    if isinstance(model, ReLU):
        return []
    raise TypeError(f"model must be a GCNN, FIR, GraphFilter or activation of graphact, got {type(model).__name__}")


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


@dataclass(frozen=True)
class Sizes:
    """What the part of a process counts.

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
        """Count a part."""
        return cls(graph.num_nodes, graph.num_near, graph.num_edges, graph.num_halo, graph.num_sent)


@dataclass(frozen=True)
class Memory:
    """Bytes that a process needs for its part of the graph, its file, and a step of training."""

    graph: int
    file: int
    kept: int
    in_hand: int

    @property
    def total(self) -> int:
        """All of it; the interpreter and the libraries come on top."""
        return self.graph + self.file + self.kept + self.in_hand


def step_memory(
    model: nn.Module,
    sizes: Sizes,
    *,
    samples: int = 1,
    dtype: torch.dtype = torch.float32,
    weight_bytes: int = 4,
    device: str = "cpu",
) -> Memory:
    """What a step of training needs on one process, in the memory of its device.

    Args:
        model: a GCNN or FIR.
        sizes: of the part.
        samples: signals in a batch.
        dtype: precision of the signals.
        weight_bytes: bytes of an edge weight.
        device: ``"cpu"`` or ``"cuda"``, where the mapped file takes nothing.

    Example:
        >>> import graphact
        >>> from graphact.scaleout import Sizes, step_memory
        >>> model = graphact.nn.GCNN([8, 16], order=2, activation="max-ga")
        >>> sizes = Sizes(nodes=1_000_000, near=10_000, edges=16_000_000, halo=5_000, sent=5_000)
        >>> round(step_memory(model, sizes).total / 2**30, 1)
        1.6
    """
    if not isinstance(model, (GCNN, FIR)):
        raise TypeError(f"model must be a GCNN or FIR, got {type(model).__name__}")
    n, near, number = sizes.nodes, sizes.near, samples * dtype.itemsize
    banks = [bank for bank in model.filters if isinstance(bank, GraphFilter)]
    kept = n * banks[0].in_features * number  # the input
    widest = shifts = 0
    for position, bank in enumerate(banks):
        width = min(bank.in_features, bank.out_features)
        shifts_input = bank.in_features <= bank.out_features
        kept += n * number * bank.in_features * (bank.order + 1 if shifts_input else 1)
        widest, shifts = max(widest, bank.out_features, width), max(shifts, width * (bank.order + 1))
        if isinstance(model, GCNN):
            kept += _activation_bytes(model.activations[position], n, near, bank.out_features, samples, dtype.itemsize)
    kept += n * number * banks[-1].out_features  # what the readout reads
    in_hand = number * (widest * (6 * n + 4 * near + 2 * (sizes.sent + sizes.halo)) + shifts * n)
    on_cpu = device == "cpu"
    return Memory(
        graph=(4 * INDEX + PLACE + 2 * weight_bytes) * sizes.edges + 8 * INDEX * (n + near) + INDEX * sizes.sent,
        file=((4 + weight_bytes) * sizes.edges + INDEX * n + 12 * (n + sizes.halo)) * on_cpu,
        kept=kept,
        in_hand=in_hand,
    )


def _activation_bytes(activation: nn.Module, nodes: int, near: int, features: int, samples: int, width: int) -> int:
    """What an activation keeps for its gradient."""
    values = nodes * features * samples * width
    if isinstance(activation, ReLU) or not isinstance(activation, MixedActivation):
        return values
    behind = CHOICE * (nodes + near) * features * samples
    if not hasattr(activation, "op") and hasattr(activation, "initial_gamma"):  # the kernel: its input and exponent
        behind = (2 * nodes + near) * features * samples * width
    return values + activation.hops * (values + behind)
