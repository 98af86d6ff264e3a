"""Times of activations on a graph, beside PyG's and beside the limit of the device.

A time is reported only for a right result: each activation is first compared with the plain reference, and the one it
is measured against with it.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphact import functional
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.kernels.dispatch import backend

OPERATIONS = ("max", "median", "kernel")
VALUES_MAY_DIFFER = 1e-4  # relative to the largest
GRADIENTS_MAY_DIFFER = 5e-3  # in norm: where sums are taken in another order, one of two equal neighbours may lose
ENOUGH = 10.0  # seconds; a call that takes longer is not repeated
HEAD = ["activation", "forward ms", "with backward ms", "of gather floor"]
HEAD += ["PyG forward ms", "with backward ms", "ratio"]


class WrongResultError(RuntimeError):
    """A result that is not worth timing."""


class Times(NamedTuple):
    """Seconds of several calls."""

    median: float
    fastest: float
    slowest: float
    calls: int


def measure(function: Callable[[], Any], device: str, repeats: int = 9, warm_up: int = 2) -> Times:
    """Times of several calls after a few that do not count; one call counts where it takes very long."""

    def one_call() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    seconds = [one_call()]
    if seconds[0] < ENOUGH:
        seconds = [one_call() for _ in range(warm_up - 1 + repeats)][warm_up - 1 :]
    return Times(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def copy_bandwidth(device: str) -> float:
    """Bytes a second, read and written, of a large copy."""
    source = torch.rand(2**28 if device == "cuda" else 2**25, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / measure(lambda: target.copy_(source), device, repeats=10).fastest


def composed(graph: Graph, op: str, gamma: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A graph-adaptive activation of (signal, beta, weights) as a user of PyG composes it: gather, then aggregate."""
    from torch_geometric import nn
    from torch_geometric.utils import scatter

    (source, target), weight = graph.to_edge_index()
    nodes = graph.num_nodes
    between = source != target  # a loop takes part in the shift and is not a neighbour
    sender, receiver = (source, target) if bool(between.all()) else (source[between], target[between])
    aggregate = {"max": nn.MaxAggregation, "median": nn.MedianAggregation}.get(op, nn.SumAggregation)().to(
        weight.device
    )

    def activation(x: Tensor, beta: Tensor, weights: Tensor) -> Tensor:
        out = beta * torch.relu(x)
        for h in weights:
            x = scatter(x[source] * weight.unsqueeze(-1), target, dim=0, dim_size=nodes, reduce="sum")
            message = (x[receiver] - x[sender]).square() if op == "kernel" else x[sender]
            value = aggregate(message, receiver, dim_size=nodes)
            out = out + h * (torch.exp(-value / (2 * gamma**2)) if op == "kernel" else value)
        return out

    return activation


Row = dict[str, Any]
"""Times of an activation, forward and with the backward pass, and as shares of the limits, and those of the peer."""


class Bench:
    """A graph with a signal of ``features`` columns; a peer is measured beside each activation where one is named."""

    def __init__(self, graph: Graph, features: int, hops: int, bandwidth: float, repeats: int = 9) -> None:
        self.graph, self.hops, self.bandwidth, self.repeats = graph, hops, bandwidth, repeats
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
        return self._row("shift", self._times(lambda x: functional.shift(x, self.graph), self.x), 0)

    def activation(self, op: str, *, against_pyg: bool) -> Row:
        """A graph-adaptive activation, and the same composed of PyG's aggregations."""

        def ours(x: Tensor, beta: Tensor, weights: Tensor) -> Tensor:
            return functional.graph_adaptive(x, self.graph, beta, weights, op, gamma=self.gamma)

        found = self._results(ours, "auto")
        if wrong := _difference(found, self._results(ours, "reference")):
            raise WrongResultError(f"{op}-ga differs from the reference: {wrong}")
        times = self._times(ours, self.x, self.beta, self.weights)
        row = self._row(f"{op}-ga", times, self.hops)
        return row | self._beside_pyg(op, times, found) if against_pyg else row

    def _row(self, name: str, times: tuple[Times, Times], hops: int) -> Row:
        """Times, and their share of the gather floor: the time to read a row for every edge in each pass."""
        forward, training = times
        floor = (hops + 1) * self.graph.num_edges * self.x.size(1) * self.x.element_size() / self.bandwidth  # seconds
        shares = {
            "share_of_gather_floor": floor / forward.median,
            "training_share_of_gather_floor": 2 * floor / training.median,
        }
        return {"name": name, "forward": forward._asdict(), "training": training._asdict(), "peer": ""} | shares

    def _beside_pyg(self, op: str, ours: tuple[Times, Times], right: list[Tensor]) -> Row:
        activation, row = composed(self.graph, op, self.gamma), Row()
        try:
            if wrong := _difference(self._results(activation, "auto"), right):
                return {"peer": f"PyG is wrong: {wrong}"}
            peer = self._times(activation, self.x, self.beta, self.weights)
            for name, theirs, mine in zip(("forward", "training"), peer, ours, strict=True):
                row |= {f"peer_{name}": theirs._asdict(), f"ratio_{name}": theirs.median / mine.median}
            return row | {"peer": "PyG"}
        except (RuntimeError, NotImplementedError) as error:
            return {"peer": f"PyG fails: {str(error).strip().splitlines()[0][:80]}"}
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


def _difference(found: list[Tensor], right: list[Tensor]) -> str:
    """Return what is wrong, or an empty string."""
    apart = float((found[0] - right[0]).abs().max() / right[0].abs().max().clamp(min=1e-30))
    if not apart <= VALUES_MAY_DIFFER:
        return f"values by {apart:.1e}"
    for name, one, other in zip(("x", "beta", "weights"), found[1:], right[1:], strict=True):
        apart = float((one - other).norm() / other.norm().clamp(min=1e-30))
        if not apart <= GRADIENTS_MAY_DIFFER:
            return f"gradients of {name} by {apart:.1e}"
    return ""


def _cells(row: Row) -> list[str]:
    """Return the cells of a row: median (fastest to slowest) milliseconds, shares of the limit, and the peer."""

    def times(name: str) -> str:
        median, fastest, slowest, calls = Times(**row[name])
        return f"{1e3 * median:.4g} " + ("(once)" if calls == 1 else f"({1e3 * fastest:.3g}..{1e3 * slowest:.3g})")

    peer = [row["peer"] or "-", "-", "-"]
    if "ratio_forward" in row:
        ratio = f"{row['ratio_forward']:.1f}x / {row['ratio_training']:.1f}x"
        peer = [times("peer_forward"), times("peer_training"), ratio]
    return [row["name"], times("forward"), times("training"), f"{row['share_of_gather_floor']:.0%}", *peer]


def markdown(rows: Sequence[Row]) -> str:
    """A Markdown table, columns aligned so that it reads well in a terminal, too."""
    lines = [HEAD, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(map(str.ljust, line, widths))} |" for line in lines)
