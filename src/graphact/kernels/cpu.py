"""The passes over the neighbours on the CPU, compiled by Numba: same names, arguments and results as the reference.

Memory is that of the signals: nothing is ever laid out edge by edge. The result of a sum depends neither on the number
of threads nor on how the work is cut.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.kernels import (
    _cpu_extreme,
    _cpu_lanes,
    _cpu_median,
    _cpu_networks,
    _cpu_select,
    _cpu_sums,
    _cpu_turn,
)
from graphact.kernels._cpu_mix import mix, mix_gradients
from graphact.kernels._cpu_run import ranges, run, sections
from graphact.kernels.reference import LOSES_EVERY_COMPARISON, Lists, accumulation_dtype, place_dtype, take_rows

__all__ = [
    "hop",
    "mix",
    "mix_gradients",
    "pull",
    "route",
    "select",
    "shift",
    "shift_weight_grad",
    "spread",
    "supports",
    "take_rows",
    "turn",
]

Array = np.ndarray[Any, Any]
PRECISIONS = (torch.float32, torch.float64, *HALF_PRECISION)
SHORT_ROW = 64  # shorter rows of several samples are joined, see _Layout
WIDEST = 1024  # columns in a section
# The rows of neighbours are asked for ahead of time where they are short and the signal exceeds a cache: the processor
# sees long rows coming by itself
AHEAD = 16  # edges
SHORT = 1024  # bytes of a row
CACHE = 2**22  # bytes


def supports(x: Tensor) -> bool:
    """Floating point numbers on the CPU. Half precision is computed in float32."""
    return x.device.type == "cpu" and x.dtype in PRECISIONS


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    layout = _Layout(x)
    out = layout.empty()
    layout.run(_cpu_sums.shift, lists, _flat(weight.to(layout.dtype)), _flat(layout.enter(x)), _flat(out))
    return layout.leave(out)


def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    layout = _Layout(x)
    out = torch.empty(lists.members.shape, dtype=layout.dtype, device=x.device)
    if x.numel() == 0:
        return out.zero_()
    pointers, members = _indices(lists.pointers), _indices(lists.members)
    work = ranges(pointers, 1, out.numel() * layout.samples * layout.columns)
    signals = _flat(layout.enter(grad)), _flat(layout.enter(x))
    run(_cpu_sums.shift_weight_grad, work, pointers, members, *signals, _flat(out), np.uint64(layout.columns))
    return out


def select(x: Tensor, labels: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    layout = _Layout(x)
    values, names = _flat(layout.enter(x)), None
    if labels is not None:
        names = _flat(layout.enter(labels, torch.int32))
        values = _offers(layout, values, names, LOSES_EVERY_COMPARISON[op])
    out, chosen = layout.empty(), layout.empty(torch.int32)
    results = _flat(out), _flat(chosen)
    if op != "median" and names is not None:
        sign = values.dtype.type(1 if op == "max" else -1)
        layout.run(_cpu_select.extreme_labelled, lists, sign, closed, values, names, *results)
    else:
        _choose(layout, lists, *layout.nothing, op, closed, True, values, names, *results, layout.nothing[1])
    return layout.leave(out), layout.leave(chosen, torch.int32)


def route(grad: Tensor, chosen: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.route`."""
    layout = _Layout(grad, join=False)
    out = layout.empty()
    if grad.numel() > 0:
        widest = max(16, layout.columns * layout.samples // torch.get_num_threads())
        number, width = sections(layout.columns, widest)
        planes = layout.samples * number
        work = ranges(np.arange(planes + 1), 1, grad.numel() * 4)
        signals = _flat(layout.enter(grad)), _flat(layout.enter(chosen, torch.int32)), _flat(out)
        sizes = (np.uint64(size) for size in (layout.columns, number, width))
        run(_cpu_select.route, work, np.uint64(layout.nodes), *signals, *sizes)
    return layout.leave(out)


def spread(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.spread`."""
    layout = _Layout(x)
    out = layout.empty()
    layout.run(_cpu_sums.spread, lists, *layout.nothing, _flat(layout.enter(x)), _flat(out), layout.nothing[1])
    return layout.leave(out, layout.dtype)


def pull(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.pull`."""
    layout = _Layout(grad)
    signals = _flat(layout.enter(grad)), _flat(layout.enter(x))
    out = layout.empty()
    seen_by = _indices(outgoing.pointers), _indices(outgoing.members)
    layout.run(_cpu_sums.pull, incoming, *seen_by, *signals, _flat(out))
    return layout.leave(out, x.dtype)


def hop(
    x: Tensor, weight: Tensor, lists: Lists, op: str, closed: bool, shifting: bool, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.hop`."""
    layout = _Layout(x)
    values, out = _flat(layout.enter(x)), layout.empty()
    shifted = layout.empty() if shifting else x.new_empty(0, dtype=layout.dtype)
    weights = (True, _flat(weight.to(layout.dtype))) if shifting else layout.nothing
    if op == "kernel":
        layout.run(_cpu_sums.spread, lists, *weights, values, _flat(out), _flat(shifted))
        result, places = layout.leave(out, layout.dtype), x.new_empty(0, dtype=torch.uint8)
    else:
        dtype = place_dtype(longest)
        chosen = layout.empty(dtype)
        _choose(layout, lists, *weights, op, closed, False, values, None, _flat(out), _flat(chosen), _flat(shifted))
        result, places = layout.leave(out), layout.leave(chosen, dtype)
    return result, places, layout.leave(shifted) if shifting else x.new_empty(0)


def turn(
    grad: Tensor,
    places: Tensor,
    grad_shifted: Tensor | None,
    turned_weight: Tensor,
    positions: Tensor,
    incoming: Lists,
    outgoing: Lists,
    closed: bool,
) -> Tensor:
    """See :func:`graphact.kernels.reference.turn`."""
    layout = _Layout(grad)
    out = layout.empty()
    signals = _flat(layout.enter(grad)), _flat(layout.enter(places, places.dtype))
    weights, following = layout.nothing, layout.nothing[1]
    if grad_shifted is not None:
        weights, following = (True, _flat(turned_weight.to(layout.dtype))), _flat(layout.enter(grad_shifted))
    graph = _indices(incoming.pointers), *weights, _flat(positions)
    layout.run(_cpu_turn.turn, outgoing, *graph, closed, *signals, following, _flat(out))
    return layout.leave(out)


def _choose(
    layout: "_Layout",
    lists: Lists,
    shifting: bool,
    weights: Array,
    op: str,
    closed: bool,
    named: bool,
    values: Array,
    labels: Array | None,
    out: Array,
    chosen: Array,
    shifted: Array,
) -> None:
    """Values of ``op``, those chosen (by their names, or else by their places in lists) and the shift if asked for."""
    results = out, chosen, shifted
    if op == "median":
        integers = np.int32 if values.itemsize == 4 else np.int64
        longest = np.uint64(int(lists.sizes[-1, 0]) + 1)
        names = np.empty(0, np.int32) if labels is None else labels
        options = *_cpu_networks.tables(), longest, closed, named
        layout.run(
            _cpu_median.median, lists, shifting, weights, *options, values, np.empty(0, integers), names, *results
        )
    else:
        flip = None if op == "max" else values.dtype.type(-1)
        layout.run(_cpu_extreme.extreme, lists, shifting, weights, flip, closed, named, values, *results)


class _Layout:
    """How the numbers of a signal ``(..., N, F)`` lie in memory while kernels run: as ``(samples, N, columns)``.

    Several samples with short rows become one sample with a long row ``(1, N, samples * F)``, for kernels are fast
    along a row.
    """

    def __init__(self, x: Tensor, join: bool = True) -> None:
        self.shape = x.shape
        self.source_dtype, self.dtype = x.dtype, accumulation_dtype(x.dtype)
        self.nodes, features = x.shape[-2:]
        batch = math.prod(x.shape[:-2])
        self.joined = join and batch > 1 and features < SHORT_ROW
        self.split = (batch, self.nodes, features)
        self.samples, self.columns = (1, batch * features) if self.joined else (batch, features)

    @property
    def nothing(self) -> tuple[bool, Array]:
        """No shift is wanted, so there are no weights."""
        return False, _flat(torch.empty((0,), dtype=self.dtype, device="cpu"))

    def enter(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A signal of this shape, laid out for kernels."""
        x = x.to(dtype or self.dtype)
        if self.joined:
            x = x.reshape(self.split).transpose(0, 1)
        return x.contiguous()

    def empty(self, dtype: torch.dtype | None = None) -> Tensor:
        """Room for a result."""
        return torch.empty((self.samples, self.nodes, self.columns), dtype=dtype or self.dtype, device="cpu")

    def leave(self, result: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A result of kernels in the shape of the signal, in its precision unless told otherwise."""
        if self.joined:
            samples, nodes, features = self.split
            result = result.view(nodes, samples, features).transpose(0, 1).contiguous()
        return result.view(self.shape).to(dtype or self.source_dtype)

    def run(self, kernel: Any, lists: Lists, *arguments: Any) -> None:
        """Call a kernel for all rows of all planes."""
        if self.samples * self.nodes * self.columns == 0:
            return
        pointers, members = _indices(lists.pointers), _indices(lists.members)
        number, width = sections(self.columns, WIDEST)
        planes = self.samples * number
        work = ranges(pointers, planes, (members.size + self.nodes) * self.samples * self.columns)
        size = self.dtype.itemsize
        scattered = self.nodes * self.columns * size > CACHE and width * size <= SHORT
        steps = (np.uint64(AHEAD if scattered else 0), np.uint64(_cpu_lanes.block(size)))
        sizes = (np.uint64(count) for count in (self.columns, number, width))
        run(kernel, work, pointers, members, *steps, *arguments, *sizes)


def _offers(layout: _Layout, values: Array, names: Array, empty: float) -> Array:
    """What each node stands for."""
    out = _flat(layout.empty())
    rows = layout.samples * layout.nodes
    work = ranges(np.arange(rows + 1), 1, values.size) if rows else []
    sizes = np.uint64(layout.nodes), values, names, out, np.uint64(layout.columns), values.dtype.type(empty)
    run(_cpu_select.take, work, *sizes)
    return out


def _flat(tensor: Tensor) -> Array:
    return tensor.numpy(force=True).reshape(-1)


def _indices(tensor: Tensor) -> Array:
    return tensor.numpy(force=True).view(np.uint64)
