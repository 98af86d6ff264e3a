"""Compiled selections of one neighbour, and their gradient. See `lanes.py` for how they go through a signal."""

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.numba.lanes import blend, fill, load, look_ahead, over_blocks, rank, row_of, some, store
from graphact.kernels.numba.launch import (
    Array,
    Layout,
    Number,
    Size,
    flat,
    helper,
    kernel,
    layout_of,
    ranges,
    run,
    sections,
)
from graphact.kernels.numba.median import run_median
from graphact.kernels.reference import LOSES_EVERY_COMPARISON

ZERO, ONE = np.uint64(0), np.uint64(1)


def select(x: Tensor, source_index: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    layout = layout_of(x)
    values, index = layout.enter(x), None
    if source_index is not None:
        index = layout.enter(source_index, torch.int32)
        values = _candidates(layout, values, index, LOSES_EVERY_COMPARISON[op])
    out, selected = layout.empty(), layout.empty(torch.int32)
    results = flat(out), flat(selected)
    if op == "median":
        run_median(layout, lists, *layout.nothing, closed, True, values, index, *results, layout.nothing[1])
    elif index is None:
        run_extreme(layout, lists, *layout.nothing, op, closed, True, values, *results, layout.nothing[1])
    else:
        sign = values.dtype.type(1 if op == "max" else -1)
        layout.run(extreme_indexed_kernel, lists, sign, closed, values, index, *results)
    return layout.leave(out), layout.leave(selected, torch.int32)


def scatter_selected(grad: Tensor, selected: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.scatter_selected`."""
    layout = layout_of(grad, join=False)
    out = layout.empty()
    if grad.numel() > 0:
        widest = max(16, layout.columns * layout.samples // torch.get_num_threads())
        number, width = sections(layout.columns, widest)
        planes = layout.samples * number
        work = ranges(np.arange(planes + 1), 1, grad.numel() * 4)
        signals = layout.enter(grad), layout.enter(selected, torch.int32), flat(out)
        sizes = (np.uint64(size) for size in (layout.columns, number, width))
        run(scatter_kernel, work, np.uint64(layout.nodes), *signals, *sizes)
    return layout.leave(out)


def run_extreme(
    layout: Layout, lists: Lists, shifting: bool, weights: Array, op: str, closed: bool, by_node: bool, values: Array,
    *results: Array
) -> None:  # fmt: skip
    """Maxima or minima, those selected (by node, or else by slot in the lists) and the shift if it is wanted."""
    flip = None if op == "max" else values.dtype.type(-1)
    layout.run(extreme_kernel, lists, shifting, weights, flip, closed, by_node, values, *results)


def _candidates(layout: Layout, values: Array, index: Array, empty: float) -> Array:
    """The value that each node stands for."""
    out = flat(layout.empty())
    rows = layout.samples * layout.nodes
    work = ranges(np.arange(rows + 1), 1, values.size) if rows else []
    sizes = np.uint64(layout.nodes), values, index, out, np.uint64(layout.columns), values.dtype.type(empty)
    run(gather_kernel, work, *sizes)
    return out


@kernel
def extreme_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, shifting: bool, weight: Array,
    flip: Number | None, closed: bool, by_node: bool, x: Array, out: Array, selected: Array, shifted: Array,
    columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """The maximum of ``x`` over neighbours, which of them it is and, if it is wanted, the shift.

    The selected neighbour is given by its index or, without ``by_node``, by its slot in the list. The lowest among ties
    is selected, the first NaN if there are any.
    """
    no_node = np.uint64(rowptr.size) - ONE if by_node else ZERO
    for task in range(first, last):
        base, i, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
        # the index of the node itself, and which of those selected come after it
        own_index, after = (i, i) if by_node else (stop - edge, rank(col, edge, stop, i) - edge if closed else ZERO)
        own_after_none = np.int32(own_index), np.int32(after), np.int32(no_node)
        signals, row = (x, out, selected, shifted), (edge, stop, base, o, columns)
        around = col, shifting, weight, flip, closed, by_node, own_after_none
        over_blocks(_extreme_block, left, right, lanes, (*around, *signals, *row))


@helper
def _extreme_block(
    low: Size, live: Size | None, col: Array, shifting: bool, weight: Array, flip: Number | None, closed: bool,
    by_node: bool, own_after_none: tuple[Number, Number, Number], x: Array, out: Array, selected: Array,
    shifted: Array, edge: Size, stop: Size, base: Size, o: Size, columns: Size
) -> None:  # fmt: skip
    own = load(x, o + low, live)
    total = fill(x.dtype.type(0), own)
    best = fill(x.dtype.type(-np.inf), own)
    index = fill(np.int32(col[edge] if by_node else ZERO) if stop > edge else own_after_none[2], own)
    for e in range(edge, stop):
        value = load(x, (base + col[e]) * columns + low, live)
        total = total + (fill(weight[e], own) * value if shifting else value)
        if flip is not None:
            value = fill(flip, own) * value
        wins = value > best
        best = blend(wins, value, best)
        index = blend(wins, fill(np.int32(col[e] if by_node else e - edge), own), index)
    if some(total != total):  # so it is if a neighbour is NaN
        for back in range(edge, stop):
            e = stop - ONE - (back - edge)
            value = load(x, (base + col[e]) * columns + low, live)
            best = blend(value != value, value, best)
            index = blend(value != value, fill(np.int32(col[e] if by_node else e - edge), own), index)
    if closed:
        if flip is not None:
            own = fill(flip, own) * own
        both_nan = (own != own) & (best != best)
        tied = ((own == best) | both_nan) & (index >= fill(own_after_none[1], own))
        wins = (own > best) | ((own != own) & (best == best)) | tied
        best = blend(wins, own, best)
        index = blend(wins, fill(own_after_none[0], own), index)
    if flip is not None:
        best = fill(flip, own) * best
    if stop == edge and not closed:
        best = fill(x.dtype.type(0), own)
    store(out, o + low, live, best)
    store(selected, o + low, live, index)
    if shifting:
        store(shifted, o + low, live, total)


@kernel
def extreme_indexed_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, _ahead: Size, _lanes: Size, sign: Number, closed: bool,
    x: Array, source_index: Array, out: Array, selected: Array, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """The maximum of ``sign * x``, where ``x[j]`` is the value of node ``source_index[j]``; 0 without candidates."""
    nodes = np.uint64(rowptr.size) - ONE
    no_node = np.int32(nodes)
    for plane in range(first // nodes, (last + nodes - ONE) // nodes):
        start = plane * nodes
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(max(first, start) - start, min(last - start, nodes)):
            o = (base + i) * columns + low
            for c in range(size):
                out[o + c] = -np.inf
                selected[o + c] = no_node
            edge, stop = rowptr[i], rowptr[i + ONE]
            for e in range(edge, stop + ONE if closed else stop):
                a = (base + (col[e] if e < stop else i)) * columns + low
                for c in range(size):
                    best, best_index, value, index = out[o + c], selected[o + c], sign * x[a + c], source_index[a + c]
                    ahead = (value > best) | ((value != value) & (best == best))
                    tied = (value == best) | ((value != value) & (best != best))
                    wins = ahead | (tied & (index < best_index))
                    out[o + c] = value if wins else best
                    selected[o + c] = index if wins else best_index
            for c in range(size):
                out[o + c] = sign * out[o + c] if selected[o + c] < no_node else 0


@kernel
def gather_kernel(
    first: Size, last: Size, nodes: Size, x: Array, source_index: Array, out: Array, columns: Size, empty: Number
) -> None:
    """``out[i] = x[source_index[i]]`` for each column, ``empty`` for the index N; the range counts rows of samples."""
    for row in range(first, last):
        base = row // nodes * nodes
        for c in range(columns):
            at = row * columns + c
            source = np.uint64(source_index[at])
            out[at] = x[(base + source) * columns + c] if source < nodes else empty


@kernel
def scatter_kernel(
    first: Size, last: Size, nodes: Size, grad: Array, selected: Array, out: Array, columns: Size, number: Size,
    width: Size
) -> None:  # fmt: skip
    """The adjoint of gathering; the range counts planes, so that whatever a thread adds to is its own."""
    for plane in range(first, last):
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(base, base + nodes):
            for c in range(size):
                out[i * columns + low + c] = 0
        for i in range(base, base + nodes):
            o = i * columns + low
            for c in range(size):
                target = np.uint64(selected[o + c])
                if target < nodes:
                    out[(base + target) * columns + low + c] += grad[o + c]
