"""Triton kernels for gradients: each node gathers from those whose neighbour it is, so results are always the same."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact._triton import PLAIN_TENSORS
from graphact.kernels.graph_tensors import GraphTensors, Lists
from graphact.kernels.reference import RESULTS, SELECTIONS, SLOTS, Results, accumulation_dtype, first_given
from graphact.kernels.triton.functions import absent, launch_sums
from graphact.kernels.triton.launch import THREADS, on_its_device, padded_size, wide_type
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.walk import UNROLL, lists_of_program, place_of_piece, sum_of_lanes, tile_of_program


def neighborhood_functions_backward(
    grads: Results, saved: Results, graph: GraphTensors, closed: bool, scale: Tensor | None = None
) -> Tensor:
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`; ``scale`` is of all but the shift."""
    return _gathered(first_given(grads, saved).contiguous(), grads, saved, graph, closed, scale)


@on_its_device
def _gathered(
    given: Tensor, grads: Results, saved: Results, graph: GraphTensors, closed: bool, scale: Tensor | None
) -> Tensor:
    """See above; ``given`` has the shape and type of the result."""
    out = allocate(given.shape, given.dtype, given.device)
    names = [name for name in RESULTS if name not in SLOTS and name != "kernel"]
    tensors = [grads.get(name) for name in names] + [saved.get(name) for name in (*SLOTS, "mean", "std", "x")]
    read = [absent(given) if tensor is None else tensor.contiguous() for tensor in tensors]
    flags: dict[str, Any] = {f"has_{name}": name in grads for name in names}
    flags["threads"] = 32 if len(grads) == 1 and not grads.keys().isdisjoint(SELECTIONS) else THREADS
    lists, weight = graph.outgoing, graph.weight_t.contiguous()
    factors = weight if scale is None else scale.expand(given.size(-1)).contiguous()
    around = (weight, factors, graph.incoming_slot, graph.incoming.rowptr, lists.rowptr, lists.col)
    flags |= {"closed": closed, "scaled": scale is not None}
    launch_sums(functions_backward_kernel, out, given, lists, *read, *around, **flags)
    return out


@on_its_device
def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    grad, x = grad.contiguous(), x.contiguous()
    out = torch.zeros(lists.col.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel() and x.numel():
        nodes, columns = x.shape[-2:]
        sizes = {"lanes": 16, "block": min(padded_size(columns), 128), "wide": wide_type(x)}
        samples = math.prod(x.shape[:-2])
        weight_grad_kernel[(nodes,)](out, grad, x, lists.rowptr, lists.col, samples, nodes, columns, **sizes)
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
    symmetric = incoming.col is outgoing.col
    if not symmetric and type(x) in PLAIN_TENSORS:
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
def functions_backward_kernel(
    out, grad_shifted, grad_max, grad_min, grad_median, grad_mean, grad_std, max_slot, min_slot, median_slot, mean,
    std, x, weight, scale, incoming_slot, rowptr_in, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, piece: tl.constexpr, closed: tl.constexpr, scaled: tl.constexpr, has_shift: tl.constexpr,
    has_max: tl.constexpr, has_min: tl.constexpr, has_median: tl.constexpr, has_mean: tl.constexpr,
    has_std: tl.constexpr
):  # fmt: skip
    """See :func:`neighborhood_functions_backward`."""
    node, base, alive, column, inside, own, exists, written = tile_of_program(
        order, count, last, rows, nodes, columns, lanes, block, shared, ordered, batched
    )
    _, _, enter, stop, steps = lists_of_program(rowptr, node, alive, lanes, shared, piece)
    stride: tl.constexpr = lanes if shared else 1
    total = tl.zeros((lanes, block), dtype=wide)
    linear = total
    center = total
    if has_std:
        center = tl.load(x + own, mask=exists, other=0.0).to(wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            i = tl.load(col + position, mask=there, other=0).to(tl.int64)
            slot = tl.load(incoming_slot + position, mask=there, other=-1)
            at = ((base + i) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            total = with_shares(
                total, center, at, mask, there, i, slot, grad_max, grad_min, grad_median, grad_mean, grad_std, max_slot,
                min_slot, median_slot, mean, std, rowptr_in, closed, has_max, has_min, has_median, has_mean, has_std,
                wide
            )  # fmt: skip
            if has_shift:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                part = factor[:, None] * tl.load(grad_shifted + at, mask=mask, other=0.0).to(wide)
                if scaled:
                    linear += part
                else:
                    total += part
    total = sum_of_lanes(total, shared)
    if closed and (piece == 0 or tl.program_id(2) == 0):
        listed = tl.load(rowptr_in + node + 1, mask=alive, other=0) - tl.load(rowptr_in + node, mask=alive, other=0)
        total = with_shares(
            total, center, own, written, alive, node, listed.to(tl.int32), grad_max, grad_min, grad_median, grad_mean,
            grad_std, max_slot, min_slot, median_slot, mean, std, rowptr_in, closed, has_max, has_min, has_median,
            has_mean, has_std, wide
        )  # fmt: skip
    if scaled:
        total = tl.where(total == 0, 0.0, total * tl.load(scale + column, mask=inside, other=0.0).to(wide)[None, :])
        if has_shift:
            total += sum_of_lanes(linear, shared)
    own = place_of_piece(own, column, rows, columns, piece)
    tl.store(out + own, total.to(out.dtype.element_ty), mask=written)


@triton.jit
def with_shares(
    total, center, at, mask, there, i, slot, grad_max, grad_min, grad_median, grad_mean, grad_std, max_slot, min_slot,
    median_slot, mean, std, rowptr_in, closed: tl.constexpr, has_max: tl.constexpr, has_min: tl.constexpr,
    has_median: tl.constexpr, has_mean: tl.constexpr, has_std: tl.constexpr, wide: tl.constexpr
):  # fmt: skip
    """Add what node i, whose numbers are at ``at``, gives to the neighbour in a slot of its list."""
    if has_max:
        total += share_of_selected(grad_max, max_slot, at, mask, slot, wide)
    if has_min:
        total += share_of_selected(grad_min, min_slot, at, mask, slot, wide)
    if has_median:
        total += share_of_selected(grad_median, median_slot, at, mask, slot, wide)
    if has_mean or has_std:
        members = tl.load(rowptr_in + i + 1, mask=there, other=1) - tl.load(rowptr_in + i, mask=there, other=0)
        if closed:
            members += 1
        number = tl.maximum(members, 1).to(wide)[:, None]
        if has_mean:
            total += tl.load(grad_mean + at, mask=mask, other=0.0).to(wide) / number
        if has_std:
            deviation = tl.load(std + at, mask=mask, other=0.0)
            divisor = tl.where(deviation == 0.0, 1.0, number * deviation)
            scale = tl.load(grad_std + at, mask=mask, other=0.0).to(wide) / divisor
            apart = center - tl.load(mean + at, mask=mask, other=0.0)
            total += tl.where(deviation == 0.0, 0.0, scale * apart)
    return total


@triton.jit
def share_of_selected(grad, selected_slot, at, mask, slot, wide: tl.constexpr):
    """A gradient where this slot was selected; it is read only there."""
    selected = mask & (tl.load(selected_slot + at, mask=mask, other=0).to(tl.int32) == slot[:, None])
    return tl.load(grad + at, mask=selected, other=0.0).to(wide)


@triton.jit
def weight_grad_kernel(
    out, grad, x, rowptr, col, samples, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.shift_weight_grad`; a program for each row, a lane for each neighbour."""
    lane = tl.arange(0, lanes)
    column = tl.arange(0, block)
    node = tl.program_id(0).to(tl.int64) + 0 * lane
    begin = tl.load(rowptr + node)
    end = tl.load(rowptr + node + 1)
    steps = tl.max((end - begin + lanes - 1) // lanes, 0).to(tl.int32)
    for step in range(0, steps):
        position = begin + step * lanes + lane
        there = position < end
        j = tl.load(col + position, mask=there, other=0).to(tl.int64)
        total = tl.zeros((lanes, block), dtype=wide)
        base = 0 * node
        for _sample in range(0, samples):
            for left in range(0, columns, block):
                mask = there[:, None] & (left + column < columns)[None, :]
                here = ((base + node) * columns)[:, None] + (left + column)[None, :]
                at = ((base + j) * columns)[:, None] + (left + column)[None, :]
                value = tl.load(x + at, mask=mask, other=0.0).to(wide)
                total += tl.load(grad + here, mask=mask, other=0.0).to(wide) * value
            base += nodes
        tl.store(out + position, tl.sum(total, 1).to(out.dtype.element_ty), mask=there)


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
    node, base, alive, column, inside, own, exists, written = tile_of_program(
        order, count, last, rows, nodes, columns, lanes, block, shared, ordered, batched
    )
    _, _, enter, stop, steps = lists_of_program(rowptr, node, alive, lanes, shared, piece)
    stride: tl.constexpr = lanes if shared else 1
    center = tl.load(x + own, mask=exists, other=0.0).to(wide)
    own_factor = tl.zeros((lanes, block), dtype=wide)
    if own_sign != 0:
        own_factor = tl.load(grad + own, mask=exists, other=0.0).to(wide)
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
    total = sum_of_lanes(total, shared)
    own = place_of_piece(own, column, rows, columns, piece)
    if adding:
        total += tl.load(out + own, mask=written, other=0.0).to(wide)
    tl.store(out + own, total.to(out.dtype.element_ty), mask=written)
