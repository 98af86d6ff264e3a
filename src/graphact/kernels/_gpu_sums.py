"""Triton kernels that sum over the neighbours."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_walk import UNROLL, columns_of_program, list_of_row, piece_of_list, rows_of_program


@triton.jit(do_not_specialize=["count", "last", "rows"])
def pull_kernel(
    out,
    grad,
    x,
    pointers,
    members,
    order,
    count,
    last,
    rows,
    nodes,
    columns,
    lanes: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    shared: tl.constexpr,
    ordered: tl.constexpr,
    batched: tl.constexpr,
    piece: tl.constexpr,
    seen: tl.constexpr,
    seen_by: tl.constexpr,
    adding: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.pull`: either half, or both where a node sees those who see it.

    With ``adding`` the result is added to what is there.
    """
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(pointers, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    own = ((base + node) * columns)[:, None] + column[None, :]
    center = tl.load(x + own, mask=alive[:, None] & inside[None, :], other=0.0).to(wide)
    own_factor = tl.zeros((lanes, block), dtype=wide)
    if seen:
        own_factor = tl.load(grad + own, mask=alive[:, None] & inside[None, :], other=0.0).to(wide)
    total = tl.zeros((lanes, block), dtype=wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            j = tl.load(members + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            value = tl.load(x + at, mask=mask, other=0.0).to(wide)
            factor = own_factor
            if seen_by:
                factor += tl.load(grad + at, mask=mask, other=0.0).to(wide)
            total += tl.where(mask, factor * (center - value), 0.0)
    if shared:
        total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
    mask = writes[:, None] & inside[None, :]
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
    if adding:
        total += tl.load(out + own, mask=mask, other=0.0).to(wide)
    tl.store(out + own, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def weight_grad_kernel(
    out,
    grad,
    x,
    pointers,
    members,
    samples,
    nodes,
    columns,
    lanes: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.shift_weight_grad`; a program for each row, a lane for each neighbour."""
    lane = tl.arange(0, lanes)
    column = tl.arange(0, block)
    node = tl.program_id(0).to(tl.int64) + 0 * lane
    begin = tl.load(pointers + node)
    end = tl.load(pointers + node + 1)
    steps = tl.max((end - begin + lanes - 1) // lanes, 0).to(tl.int32)
    for step in range(0, steps):
        position = begin + step * lanes + lane
        there = position < end
        j = tl.load(members + position, mask=there, other=0).to(tl.int64)
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


@triton.jit(do_not_specialize=["rows"])
def route_kernel(
    out,
    grad,
    chosen,
    rows,
    nodes,
    columns,
    lanes: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    batched: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.route`; ``out`` starts from zero."""
    node, base, alive, _ = rows_of_program(out, nodes, 0, rows, nodes, lanes, False, False, batched)
    column, inside = columns_of_program(columns, block)
    mask = alive[:, None] & inside[None, :]
    at = ((base + node) * columns)[:, None] + column[None, :]
    target = tl.load(chosen + at, mask=mask, other=nodes).to(tl.int64)
    value = tl.load(grad + at, mask=mask, other=0.0).to(wide)
    to = (base[:, None] + target) * columns + column[None, :]
    tl.atomic_add(out + to, value, mask=mask & (target < nodes), sem="relaxed")
