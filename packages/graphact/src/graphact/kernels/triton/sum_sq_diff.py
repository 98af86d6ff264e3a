"""Sums of squared differences, for the Gaussian kernel, by Triton kernels."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.reference import accumulation_dtype
from graphact.kernels.triton.fused import launch_fused, launch_sums
from graphact.kernels.triton.launch import on_its_device
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.walk import UNROLL, columns_of_program, list_of_row, piece_of_list, rows_of_program


@on_its_device
def sum_sq_diff(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff`."""
    x, out = x.contiguous(), allocate(x.shape, accumulation_dtype(x.dtype), x.device)
    if out.numel():
        launch_fused(out, out, out, x, x, lists, op="kernel", closed=False, shifting=False)
    return out


@on_its_device
def sum_products(x: Tensor, other: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_products`."""
    x, other, out = x.contiguous(), other.contiguous(), allocate(x.shape, accumulation_dtype(x.dtype), x.device)
    if out.numel():
        flags = {"own_sign": 1, "other_sign": -1, "adding": False}
        launch_sums(sum_sq_diff_backward_kernel, out, x, lists, other, x, lists.rowptr, lists.col, **flags)
    return out


@on_its_device
def sum_sq_diff_backward(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff_backward`."""
    grad, x = grad.contiguous(), x.contiguous()
    out = allocate(x.shape, accumulation_dtype(grad.dtype), x.device)
    if not x.numel():
        return out.to(x.dtype)
    # where all edges go both ways, both halves come from one pass
    symmetric = incoming.col.data_ptr() == outgoing.col.data_ptr()
    read = (grad, x, incoming.rowptr, incoming.col)
    flags = {"own_sign": 1, "other_sign": int(symmetric), "adding": False}
    launch_sums(sum_sq_diff_backward_kernel, out, x, incoming, *read, **flags)
    if not symmetric:
        read = (grad, x, outgoing.rowptr, outgoing.col)
        flags = {"own_sign": 0, "other_sign": 1, "adding": True}
        launch_sums(sum_sq_diff_backward_kernel, out, x, outgoing, *read, **flags)
    return out.to(x.dtype)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def sum_sq_diff_backward_kernel(
    out, grad, x, rowptr, col, order, count, last, rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr,
    wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr, batched: tl.constexpr, piece: tl.constexpr,
    own_sign: tl.constexpr, other_sign: tl.constexpr, adding: tl.constexpr
):  # fmt: skip
    """``out[i] = sum_j (own_sign grad[i] + other_sign grad[j]) (x[i] - x[j])``.

    With 1 or 0 for both, this is :func:`graphact.kernels.reference.sum_sq_diff_backward` of incoming edges, of outgoing
    ones or of both; with 1 and -1, ``sum_products``. With ``adding`` the result is added to what is there.
    """
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    own = ((base + node) * columns)[:, None] + column[None, :]
    center = tl.load(x + own, mask=alive[:, None] & inside[None, :], other=0.0).to(wide)
    own_factor = tl.zeros((lanes, block), dtype=wide)
    if own_sign != 0:
        own_factor = tl.load(grad + own, mask=alive[:, None] & inside[None, :], other=0.0).to(wide)
    total = tl.zeros((lanes, block), dtype=wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            j = tl.load(col + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            value = tl.load(x + at, mask=mask, other=0.0).to(wide)
            factor = own_factor
            if other_sign != 0:
                factor += other_sign * tl.load(grad + at, mask=mask, other=0.0).to(wide)
            total += tl.where(mask, factor * (center - value), 0.0)
    if shared:
        total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
    mask = writes[:, None] & inside[None, :]
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
    if adding:
        total += tl.load(out + own, mask=mask, other=0.0).to(wide)
    tl.store(out + own, total.to(out.dtype.element_ty), mask=mask)
