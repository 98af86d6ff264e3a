r"""How much memory a process needs: a count from the sizes of its part and of the model, made before anything is run.

With n nodes held, B nodes that boundary rows refer to, E edges, s values sent and h received, and numbers of w bytes:

- the graph takes (36 + 2 w) E + 64 (n + B) + 8 s bytes: both directions, their order by degree, places and weights;
- the file it came from stays mapped: (4 + w) E + 8 n + 12 (n + h) bytes;
- a layer keeps for its gradient K + 1 shifts of its input (where it is the narrower side), the ReLU, and for each hop
  the function's value and which neighbour attained it (the kernel: the values it came from; a function of your own:
  those that it read);
- on top comes what a hop has in hand at once on its way back: about six signals on the nodes held, four on those near
  the boundary, what is sent and received, and the gradient of the K + 1 shifts.
"""

from dataclasses import dataclass
from functools import singledispatch

import torch
from torch import nn

from graphact.layers import Filter, HopMixture, Layer, Linear, Pointwise, UnsupportedModelError
from graphact.operations import KERNEL
from graphact.scaleout.cost import layers_of
from graphact.scaleout.partitioned import PartitionedGraph

INDEX = 8  # bytes of an index
PLACE = 4  # bytes of a place in a list
CHOICE = 1  # bytes that say which neighbour attained a maximum or median, up to 254 neighbours


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
        model: a GCNN or FIR, or another module that describes itself and has a known number of features.
        sizes: of the part.
        samples: signals in a batch.
        dtype: precision of the signals.
        weight_bytes: bytes of an edge weight.
        device: ``"cpu"`` or ``"cuda"``, where the mapped file takes nothing.

    Raises:
        UnsupportedModelError: the model does not describe itself, or takes any number of features.

    Example:
        >>> import graphact
        >>> from graphact.scaleout import Sizes, step_memory
        >>> model = graphact.nn.GCNN([8, 16], order=2, activation="max-ga")
        >>> sizes = Sizes(nodes=1_000_000, near=10_000, edges=16_000_000, halo=5_000, sent=5_000)
        >>> round(step_memory(model, sizes).total / 2**30, 1)
        1.6
    """
    layers = layers_of(model)
    width = next((layer.in_features for layer in layers if layer.in_features), None)
    if width is None:
        raise UnsupportedModelError("", f"model must have a known number of features, got {type(model).__name__}")
    n, near, number = sizes.nodes, sizes.near, samples * dtype.itemsize
    kept, widest, shifts = n * number * width, 0, 0  # the input
    for layer in layers:
        use = layer_use(layer, width, sizes, dtype.itemsize)
        width = layer.out_features or width
        kept, widest, shifts = kept + samples * use.kept, max(widest, use.width), max(shifts, use.shifts)
    if not isinstance(layers[-1], Linear):
        kept += n * number * width  # what the loss reads
    in_hand = number * (widest * (6 * n + 4 * near + 2 * (sizes.sent + sizes.halo)) + shifts * n)
    on_cpu = device == "cpu"
    return Memory(
        graph=(4 * INDEX + PLACE + 2 * weight_bytes) * sizes.edges + 8 * INDEX * (n + near) + INDEX * sizes.sent,
        file=((4 + weight_bytes) * sizes.edges + INDEX * n + 12 * (n + sizes.halo)) * on_cpu,
        kept=kept,
        in_hand=in_hand,
    )


@dataclass(frozen=True)
class Use:
    """What a layer needs: bytes kept for its gradient for each sample, features of a hop, numbers in its shifts."""

    kept: int
    width: int = 0
    shifts: int = 0


@singledispatch
def layer_use(layer: Layer, _features: int, _sizes: Sizes, _width: int) -> Use:
    """What a layer needs for that many features of its input, in numbers of ``width`` bytes."""
    raise UnsupportedModelError("", f"nothing is known about the memory of layers of the kind {layer.kind!r}")


@layer_use.register
def _(layer: Filter, features: int, sizes: Sizes, width: int) -> Use:
    narrow = min(features, layer.out_features)
    shifts_input = narrow == features
    kept = sizes.nodes * width * features * (len(layer.taps) if shifts_input else 1)
    return Use(kept, layer.out_features, narrow * len(layer.taps))


@layer_use.register(Linear)
@layer_use.register(Pointwise)
def _(_layer: Layer, features: int, sizes: Sizes, width: int) -> Use:
    return Use(sizes.nodes * width * features)


@layer_use.register
def _(layer: HopMixture, features: int, sizes: Sizes, width: int) -> Use:
    values = sizes.nodes * features * width
    behind = CHOICE * (sizes.nodes + sizes.near) * features
    if layer.operation is KERNEL:  # its input and exponent
        behind = (2 * sizes.nodes + sizes.near) * features * width
    elif not layer.operation.is_built_in:
        behind = sizes.edges * features * width
    return Use(values + layer.hops * (values + behind), features)
