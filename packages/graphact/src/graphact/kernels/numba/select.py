"""Compiled selections of one neighbour by its node, and their gradient."""

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.numba.functions import run_functions
from graphact.kernels.numba.launch import Array, Layout, Number, Size, flat, kernel, layout_of, ranges, run, sections
from graphact.kernels.numba.median import run_median
from graphact.kernels.reference import LOSES_EVERY_COMPARISON

ONE = np.uint64(1)


def select(x: Tensor, source_index: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    layout = layout_of(x)
    values, out, selected = layout.enter(x), layout.empty(), layout.empty(torch.int32)
    results = flat(out), flat(selected)
    if op == "median":
        run_median(layout, lists, *layout.nothing, closed, True, values, *results, None)
    elif source_index is None:
        found = {op: results[0], f"{op} slot": results[1]}
        run_functions(layout, lists, *layout.nothing, closed, values, found, by_node=True)
    else:
        index, sign = layout.enter(source_index, torch.int32), values.dtype.type(1 if op == "max" else -1)
        candidates = _candidates(layout, values, index, LOSES_EVERY_COMPARISON[op])
        layout.run(extreme_indexed_kernel, lists, sign, closed, candidates, index, *results)
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


def _candidates(layout: Layout, values: Array, index: Array, empty: float) -> Array:
    """The value that each node stands for."""
    out = flat(layout.empty())
    rows = layout.samples * layout.nodes
    work = ranges(np.arange(rows + 1), 1, values.size) if rows else []
    sizes = np.uint64(layout.nodes), values, index, out, np.uint64(layout.columns), values.dtype.type(empty)
    run(gather_kernel, work, *sizes)
    return out


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
