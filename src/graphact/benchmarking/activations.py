"""The time of activations on one graph, forward and with the backward pass, and their share of the memory limit.

A time is reported only for a right result: each activation is first compared with the plain reference, and the one it
is measured against with it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphact import functional
from graphact.benchmarking import peers
from graphact.benchmarking.timing import Times, measure
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.kernels.backends import backend

OPERATIONS = ("max", "median", "kernel")
VALUES_MAY_DIFFER = 1e-4  # relative to the largest
GRADIENTS_MAY_DIFFER = 5e-3  # in norm: where sums are taken in another order, one of two equal neighbours may lose


class WrongResultError(RuntimeError):
    """A result that is not worth timing."""


@dataclass(frozen=True)
class Row:
    """What was measured of one activation."""

    name: str
    forward: Times
    training: Times  # forward and backward
    floor: float  # bytes that every edge reads once in each pass, forward
    compulsory: float  # bytes that have to move at least, forward
    peer: str = ""
    peer_forward: Times | None = None
    peer_training: Times | None = None

    def as_dict(self, bandwidth: float) -> dict[str, Any]:
        """For a file; shares are of the copy bandwidth."""
        row: dict[str, Any] = {
            "name": self.name,
            "forward": self.forward.as_dict(),
            "training": self.training.as_dict(),
        }
        row["share_of_gather_floor"] = self.floor / bandwidth / self.forward.median
        row["training_share_of_gather_floor"] = 2 * self.floor / bandwidth / self.training.median
        row["share_of_compulsory"] = self.compulsory / bandwidth / self.forward.median
        row["peer"] = self.peer
        if self.peer_forward is not None and self.peer_training is not None:
            row["peer_forward"], row["peer_training"] = self.peer_forward.as_dict(), self.peer_training.as_dict()
            row["ratio_forward"] = self.peer_forward.median / self.forward.median
            row["ratio_training"] = self.peer_training.median / self.training.median
        return row


class Bench:
    """A graph with a signal of ``features`` columns; a peer is measured beside each activation where one is named."""

    def __init__(self, graph: Graph, features: int, hops: int, repeats: int = 9) -> None:
        self.graph, self.hops, self.repeats = graph, hops, repeats
        self.device = graph.device.type
        generator = torch.Generator(self.device).manual_seed(0)
        shape = (graph.num_nodes, features)
        options: dict[str, Any] = {"generator": generator, "device": graph.device, "dtype": graph.dtype}
        self.x, self.cotangent = torch.randn(shape, **options), torch.randn(shape, **options)
        self.beta = torch.tensor(1.0, device=graph.device, dtype=graph.dtype)
        self.weights = torch.randn(hops, features, **options)
        distance = autograd.sum_sq_diff(functional.shift(self.x, graph), graph.incoming, graph.outgoing)
        self.gamma = float(distance.mean().clamp(min=1e-12).sqrt())

    def shift(self) -> Row:
        """The plain graph shift, for comparison."""
        floor, compulsory = self._traffic(passes=1, kept=0.0, mixed=0)
        times = self._times(lambda x, *_: functional.shift(x, self.graph), self.x)
        return Row("shift", *times, floor, compulsory)

    def activation(self, op: str, *, against_pyg: bool) -> Row:
        """A graph-adaptive activation, and the same composed of PyG's aggregations."""
        gamma = self.gamma

        def ours(x: Tensor, beta: Tensor, weights: Tensor) -> Tensor:
            return functional.graph_adaptive(x, self.graph, beta, weights, op, gamma=gamma)

        right = self._results(ours, "reference")
        found = self._results(ours, "auto")
        wrong = _difference(found, right)
        if wrong:
            raise WrongResultError(f"{op}-ga differs from the reference: {wrong}")
        floor, compulsory = self._traffic(self.hops + 1, kept=0.0 if op == "kernel" else 0.25, mixed=self.hops)
        forward, training = self._times(ours, self.x, self.beta, self.weights)
        row = Row(f"{op}-ga", forward, training, floor, compulsory)
        return self._beside_pyg(row, op, found) if against_pyg else row

    def _beside_pyg(self, row: Row, op: str, right: list[Tensor]) -> Row:
        composed = peers.composed(self.graph, op, self.gamma)
        try:
            wrong = _difference(self._results(composed, "auto"), right)
            if wrong:
                return _with_peer(row, f"PyG is wrong: {wrong}")
            return _with_peer(row, "PyG", *self._times(composed, self.x, self.beta, self.weights))
        except (RuntimeError, NotImplementedError) as error:
            return _with_peer(row, f"PyG fails: {str(error).strip().splitlines()[0][:80]}")
        finally:
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def _times(self, function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Times, Times]:
        """Of the forward pass alone, and of both passes."""
        with torch.no_grad():
            forward = measure(lambda: function(*inputs), self.device, self.repeats)
        trained = [tensor.clone().requires_grad_() for tensor in inputs]

        def step() -> None:
            torch.autograd.grad(function(*trained), trained, self.cotangent)

        return forward, measure(step, self.device, self.repeats)

    def _results(self, function: Callable[..., Tensor], name: str) -> list[Tensor]:
        """The result and the gradients."""
        trained = [tensor.clone().requires_grad_() for tensor in (self.x, self.beta, self.weights)]
        with backend(name):
            out = function(*trained)
            return [out.detach(), *torch.autograd.grad(out, trained, self.cotangent)]

    def _traffic(self, passes: int, kept: float, mixed: int) -> tuple[float, float]:
        """Bytes read if every edge reads a row in each pass; bytes that move if every number moves once.

        Each pass reads a signal, the edges and their weights, and writes what it gives: values, choices (``kept`` of a
        signal) and the next shift. The terms are then ``mixed`` with the signal.
        """
        signal = self.x.nbytes
        floor = passes * self.graph.num_edges * self.x.size(1) * self.x.element_size()
        moved = 2 * signal + max(0, passes - 1) * (3 + kept) * signal - (signal if passes > 1 else 0)
        moved += passes * self.graph.num_edges * (4 + self.graph.weight.element_size())
        return float(floor), moved + (mixed + 2) * signal * (mixed > 0)


def _with_peer(row: Row, peer: str, forward: Times | None = None, training: Times | None = None) -> Row:
    return Row(row.name, row.forward, row.training, row.floor, row.compulsory, peer, forward, training)


def _difference(found: list[Tensor], right: list[Tensor]) -> str:
    """What is wrong, or nothing."""
    apart = float((found[0] - right[0]).abs().max() / right[0].abs().max().clamp(min=1e-30))
    if not apart <= VALUES_MAY_DIFFER:
        return f"values by {apart:.1e}"
    for name, one, other in zip(("x", "beta", "weights"), found[1:], right[1:], strict=True):
        apart = float((one - other).norm() / other.norm().clamp(min=1e-30))
        if not apart <= GRADIENTS_MAY_DIFFER:
            return f"gradients of {name} by {apart:.1e}"
    return ""
