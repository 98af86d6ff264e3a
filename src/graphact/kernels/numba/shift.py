"""Compiled shifts, and their gradients with respect to the weights. See `lanes.py` for how they go through a signal."""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.numba.lanes import ALL, fill, load, look_ahead, row_of, store, whole_blocks
from graphact.kernels.numba.launch import Array, Layout, Size, flat, helper, indices, kernel, ranges, run

ZERO, ONE = np.uint64(0), np.uint64(1)


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    layout = Layout(x)
    out = layout.empty()
    layout.run(shift_kernel, lists, flat(weight.to(layout.dtype)), flat(layout.enter(x)), flat(out))
    return layout.leave(out)


def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    layout = Layout(x)
    out = torch.empty(lists.col.shape, dtype=layout.dtype, device=x.device)
    if x.numel() == 0:
        return out.zero_()
    rowptr, col = indices(lists.rowptr), indices(lists.col)
    work = ranges(rowptr, 1, out.numel() * layout.samples * layout.columns)
    signals = flat(layout.enter(grad)), flat(layout.enter(x))
    run(shift_weight_grad_kernel, work, rowptr, col, *signals, flat(out), np.uint64(layout.columns))
    return out


@kernel
def shift_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, weight: Array, x: Array, out: Array,
    columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """``out[i] = sum_j weight[i, j] x[j]``."""
    for task in range(first, last):
        base, i, left, right = row_of(task, rowptr, columns, number, width)
        edge, stop, o = rowptr[i], rowptr[i + ONE], (base + i) * columns
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
        cut = whole_blocks(left, right, lanes)
        for low in range(left, cut, lanes):
            _shift_block(col, weight, x, out, edge, stop, base, o, columns, low, ALL)
        if cut < right:
            _shift_block(col, weight, x, out, edge, stop, base, o, columns, cut, right - cut)


@helper
def _shift_block(
    col: Array, weight: Array, x: Array, out: Array, edge: Size, stop: Size, base: Size, o: Size, columns: Size,
    low: Size, live: Size | None
) -> None:  # fmt: skip
    total = fill(x.dtype.type(0), load(x, o + low, live))
    for e in range(edge, stop):
        total = total + fill(weight[e], total) * load(x, (base + col[e]) * columns + low, live)
    store(out, o + low, live, total)


@partial(
    kernel, fastmath=frozenset({"reassoc"})
)  # a sum over columns in lanes; numbers that are not finite stay what they are
def shift_weight_grad_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, grad: Array, x: Array, out: Array, columns: Size
) -> None:
    """``out[i, j] = sum grad[i] x[j]`` over samples and columns; there is one plane."""
    nodes = np.uint64(rowptr.size) - ONE
    numbers = nodes * columns
    for i in range(first, last):
        for e in range(rowptr[i], rowptr[i + ONE]):
            o, a = i * columns, col[e] * columns
            total = x.dtype.type(0)
            for sample in range(ZERO, np.uint64(x.size), numbers):
                part = x.dtype.type(0)
                for c in range(columns):
                    part += grad[sample + o + c] * x[sample + a + c]
                total += part
            out[e] = total
