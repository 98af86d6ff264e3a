"""The base class of activations that are described by their name, and means over the graphs of a batch."""

from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION, check_integer
from graphact.functional.neighborhood import shift, shift_pass
from graphact.graph.graph import check_batch
from graphact.graph.protocol import GraphLike
from graphact.graph.union import number_below
from graphact.kernels.reference import accumulation_dtype
from graphact.nn.module import UniformModule
from graphact.spec import Activation, Layer, UnsupportedModelError

GraphInput = GraphLike | Tensor | None


class NamedActivation(UniformModule):
    """An activation that is described by its name, settings and parameters."""

    name: ClassVar[str]
    features: int | None = None

    def described(self, rounds: int, *, pools: bool = False) -> tuple[Layer, ...]:
        """Return the description: ``rounds`` of exchanges, and whether means over all nodes are read."""
        options = {key: value for key, value in self.config().items() if key not in ("features", "normalize", "start")}
        return (Activation(self.name, options, rounds, dict(self.named_parameters()), self.features, pools),)


def check_width(name: str, features: int | None) -> int:
    """Return the number of features of an activation that has maps between them; raise without one."""
    if features is None:
        raise TypeError(f"features must be the number of features of the signal for {name!r}, got None")
    return check_integer("features", features, minimum=1)


def batch_of(graph: GraphLike, batch: Tensor | None, name: str) -> Tensor | None:
    """Return the graph of each node, as given or of a union, by a number below that of the nodes.

    Raise if this process holds only a part of a graph, or if the numbers do not fit.
    """
    whole = graph.whole
    if whole is None and not getattr(graph, "holds_every_node", False):
        raise UnsupportedModelError("", f"{name!r} reads means over all nodes, and this process holds a part of them")
    batch = (None if whole is None else whole.batch) if batch is None else check_batch(batch, graph)
    return None if batch is None else number_below(batch)


def in_full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast, on devices that have it."""
    return torch.autocast(x.device.type, enabled=False) if x.device.type in ("cpu", "cuda") else nullcontext()


def wide_shift(z: Tensor, graph: GraphLike) -> Tensor:
    """Return ``S z`` in the dtype of z, at least float32, on a graph of any dtype; only its weights are rounded."""
    if graph.dtype in HALF_PRECISION:  # it takes signals in half precision, but a pass computes in the dtype of z
        return graph.one_hop(z, shift_pass)[0]
    return shift(z.to(graph.dtype), graph).to(z.dtype)


def mean_of_graph(x: Tensor, batch: Tensor | None) -> Tensor:
    """Return the mean over the nodes, ``(..., 1, F)``, or over those of each node's graph, ``(..., N, F)``."""
    if batch is None:
        return x.mean(-2, keepdim=True)
    values = x.to(accumulation_dtype(x.dtype))
    ones = torch.ones(batch.numel(), 1, dtype=values.dtype, device=x.device)
    count = torch.zeros_like(ones).index_add(0, batch, ones)  # see batch_of
    total = torch.zeros_like(values).index_add(-2, batch, values) / count.clamp_min(1)
    return total.index_select(-2, batch).to(x.dtype)


def softmax_of_graph(score: Tensor, batch: Tensor | None) -> Tensor:
    """Return the softmax over the nodes, or over those of each graph, times their number: its mean is 1."""
    if batch is None:
        return torch.softmax(score, -2) * score.size(-2)
    index = batch.unsqueeze(-1).expand_as(score)
    top = torch.zeros_like(score).scatter_reduce(-2, index, score.detach(), "amax", include_self=False)
    powers = (score - top.index_select(-2, batch)).exp()
    return powers / mean_of_graph(powers, batch)
