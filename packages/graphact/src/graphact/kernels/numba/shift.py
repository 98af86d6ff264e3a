"""Compiled shifts, alone or in one pass with a function of the neighbours' values, and their gradients.

In the backward pass of both together every node goes through those whose neighbour it is and takes its share, so no two
threads add to one number, and no order is left to chance. See `lanes.py` for how kernels go through a signal.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors, Lists
from graphact.kernels.numba.lanes import (
    blend,
    fill,
    load,
    load_beside,
    look_ahead,
    over_blocks,
    row_of,
    store,
    weighted_sum,
)
from graphact.kernels.numba.launch import Array, Number, Size, flat, helper, indices, kernel, layout_of, ranges, run
from graphact.kernels.numba.median import run_median
from graphact.kernels.numba.select import run_extreme
from graphact.kernels.numba.sum_sq_diff import sum_sq_diff_kernel
from graphact.kernels.reference import SLOT_DTYPES

ZERO, ONE = np.uint64(0), np.uint64(1)


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    layout = layout_of(x)
    out = layout.empty()
    layout.run(shift_kernel, lists, flat(weight.to(layout.dtype)), layout.enter(x), flat(out))
    return layout.leave(out)


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


def fused_neighbor_pass(
    x: Tensor, graph: GraphTensors, op: str, closed: bool, shifting: bool, max_degree: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.fused_neighbor_pass`."""
    layout, lists = layout_of(x), graph.incoming
    values, out = layout.enter(x), layout.empty()
    weights, shifted, sums = layout.nothing, x.new_empty(0), layout.nothing[1]
    if shifting:
        weights, shifted = (True, flat(graph.weight.to(layout.dtype))), layout.empty()
        sums = flat(shifted)
    if op == "kernel":
        layout.run(sum_sq_diff_kernel, lists, *weights, values, flat(out), sums)
        result, selected_slot = layout.leave(out, layout.dtype), x.new_empty(0, dtype=torch.uint8)
    else:
        dtype = next(dtype for most, dtype in SLOT_DTYPES if max_degree <= most)
        slots = layout.empty(dtype)
        results = flat(out), flat(slots), sums
        if op == "median":
            run_median(layout, lists, *weights, closed, False, values, None, *results)
        else:
            run_extreme(layout, lists, *weights, op, closed, False, values, *results)
        result, selected_slot = layout.leave(out), layout.leave(slots, dtype)
    return result, selected_slot, layout.leave(shifted) if shifting else shifted


def hop_backward(
    grad: Tensor, selected_slot: Tensor, grad_shifted: Tensor | None, graph: GraphTensors, closed: bool
) -> Tensor:
    """See :func:`graphact.kernels.reference.hop_backward`."""
    layout = layout_of(grad)
    out = layout.empty()
    signals = layout.enter(grad), layout.enter(selected_slot, selected_slot.dtype)
    weights, following = layout.nothing, layout.nothing[1]
    if grad_shifted is not None:
        weights, following = (True, flat(graph.weight_t.to(layout.dtype))), layout.enter(grad_shifted)
    around = indices(graph.incoming.rowptr), *weights, flat(graph.incoming_slot)
    layout.run(hop_backward_kernel, graph.outgoing, *around, closed, *signals, following, flat(out))
    return layout.leave(out)


@kernel
def shift_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, weight: Array, x: Array, out: Array,
    columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """``out[i] = sum_j weight[i, j] x[j]``."""
    for task in range(first, last):
        base, _, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
        over_blocks(_shift_block, left, right, lanes, (col, weight, x, out, edge, stop, base, o, columns))


@helper
def _shift_block(
    low: Size, live: Size | None, col: Array, weight: Array, x: Array, out: Array, edge: Size, stop: Size, base: Size,
    o: Size, columns: Size
) -> None:  # fmt: skip
    like = load(x, o + low, live)
    store(out, o + low, live, weighted_sum(low, live, like, col, weight, x, edge, stop, base, columns))


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
def hop_backward_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, ends: Array, shifting: bool,
    weight: Array, incoming_slot: Array, closed: bool, grad: Array, selected_slot: Array, grad_shifted: Array,
    out: Array, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """``out[j] = sum_i [selected_slot[i] = slot of j in the list of i] grad[i] + weight[i, j] grad_shifted[i]``.

    In closed neighbourhoods a node that selected itself, the slot at the end of its list, gets its own gradient.
    """
    for task in range(first, last):
        base, j, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(grad, col, edge, stop, ahead, base, columns, left, right)
            look_ahead(selected_slot, col, edge, stop, ahead, base, columns, left, right)
            if shifting:
                look_ahead(grad_shifted, col, edge, stop, ahead, base, columns, left, right)
        end = np.int32(ends[j + ONE] - ends[j])
        signals, row = (grad, selected_slot, grad_shifted, out), (edge, stop, base, o, columns)
        around = col, shifting, weight, incoming_slot, closed, end
        over_blocks(_hop_backward_block, left, right, lanes, (*around, *signals, *row))


@helper
def _hop_backward_block(
    low: Size, live: Size | None, col: Array, shifting: bool, weight: Array, incoming_slot: Array, closed: bool,
    end: Number, grad: Array, selected_slot: Array, grad_shifted: Array, out: Array, edge: Size, stop: Size,
    base: Size, o: Size, columns: Size
) -> None:  # fmt: skip
    own = load(grad, o + low, live)
    zero = fill(grad.dtype.type(0), own)
    total = zero
    if closed:
        itself = load_beside(selected_slot, o + low, live, own) == fill(selected_slot.dtype.type(end), own)
        total = blend(itself, own, zero)
    for e in range(edge, stop):
        at = (base + col[e]) * columns + low
        here = load_beside(selected_slot, at, live, own) == fill(selected_slot.dtype.type(incoming_slot[e]), own)
        total = total + blend(here, load(grad, at, live), zero)
        if shifting:
            total = total + fill(weight[e], own) * load(grad_shifted, at, live)
    store(out, o + low, live, total)
