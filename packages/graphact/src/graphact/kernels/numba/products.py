"""Compiled products of two signals along edges: gradients of weights and of squared differences.

See `lanes.py` for how kernels go through a signal.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.numba.lanes import fill, load, look_ahead, over_blocks, row_of, store
from graphact.kernels.numba.launch import Array, Size, flat, helper, indices, kernel, layout_of, ranges, run

ZERO, ONE = np.uint64(0), np.uint64(1)


def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    layout = layout_of(x)
    out = torch.empty(lists.col.shape, dtype=layout.dtype, device=x.device)
    if x.numel() == 0:
        return out.zero_()
    rowptr, col = indices(lists.rowptr), indices(lists.col)
    work = ranges(rowptr, 1, out.numel() * layout.samples * layout.columns)
    signals = layout.enter(grad), layout.enter(x)
    run(shift_weight_grad_kernel, work, rowptr, col, *signals, flat(out), np.uint64(layout.columns))
    return out


def sum_products(x: Tensor, other: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_products`."""
    layout = layout_of(x)
    out = layout.empty()
    layout.run(sum_products_kernel, lists, layout.enter(x), layout.enter(other), flat(out))
    return layout.leave(out, layout.dtype)


def sum_sq_diff_backward(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff_backward`."""
    layout = layout_of(grad)
    signals = layout.enter(grad), layout.enter(x)
    out = layout.empty()
    transposed = indices(outgoing.rowptr), indices(outgoing.col)
    layout.run(sum_sq_diff_backward_kernel, incoming, *transposed, *signals, flat(out))
    return layout.leave(out, x.dtype)


# a sum over columns in lanes; numbers that are not finite stay what they are
@partial(kernel, fastmath=frozenset({"reassoc"}))
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


@kernel
def sum_products_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, x: Array, other: Array, out: Array,
    columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """``out[i] = sum_j (x[i] - x[j]) (other[i] - other[j])``."""
    for task in range(first, last):
        base, _, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
            look_ahead(other, col, edge, stop, ahead, base, columns, left, right)
        over_blocks(_products_block, left, right, lanes, (col, x, other, out, edge, stop, base, o, columns))


@helper
def _products_block(
    low: Size, live: Size | None, col: Array, x: Array, other: Array, out: Array, edge: Size, stop: Size, base: Size,
    o: Size, columns: Size
) -> None:  # fmt: skip
    own, own_other = load(x, o + low, live), load(other, o + low, live)
    total = fill(x.dtype.type(0), own)
    for e in range(edge, stop):
        at = (base + col[e]) * columns + low
        total = total + (own - load(x, at, live)) * (own_other - load(other, at, live))
    store(out, o + low, live, total)


@kernel
def sum_sq_diff_backward_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, rowptr_t: Array, col_t: Array,
    grad: Array, x: Array, out: Array, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """``out[i] = grad[i] sum_j (x[i] - x[j]) + sum_l grad[l] (x[i] - x[l])``."""
    for task in range(first, last):
        base, i, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        begin, end = rowptr_t[i], rowptr_t[i + ONE]
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
            look_ahead(x, col_t, begin, end, ahead, base, columns, left, right)
            look_ahead(grad, col_t, begin, end, ahead, base, columns, left, right)
        arguments = col, col_t, grad, x, out, edge, stop, begin, end, base, o, columns
        over_blocks(_backward_block, left, right, lanes, arguments)


@helper
def _backward_block(
    low: Size, live: Size | None, col: Array, col_t: Array, grad: Array, x: Array, out: Array, edge: Size, stop: Size,
    begin: Size, end: Size, base: Size, o: Size, columns: Size
) -> None:  # fmt: skip
    own = load(x, o + low, live)
    total = fill(x.dtype.type(0), own)
    for e in range(edge, stop):
        total = total + (own - load(x, (base + col[e]) * columns + low, live))
    total = total * load(grad, o + low, live)
    for e in range(begin, end):
        at = (base + col_t[e]) * columns + low
        total = total + load(grad, at, live) * (own - load(x, at, live))
    store(out, o + low, live, total)
