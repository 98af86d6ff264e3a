"""The Triton kernel for the way back of a hop: each node gathers from those whose neighbour it is."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_walk import UNROLL, columns_of_program, list_of_row, piece_of_list, rows_of_program


@triton.jit(do_not_specialize=["count", "last", "rows"])
def turn_kernel(
    out,
    grad,
    places,
    grad_shifted,
    weight,
    positions,
    incoming,
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
    closed: tl.constexpr,
    shifting: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.turn`; a gradient is read only where the choice fell on this edge."""
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(pointers, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    total = tl.zeros((lanes, block), dtype=wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            i = tl.load(members + position, mask=there, other=0).to(tl.int64)
            here = tl.load(positions + position, mask=there, other=-1)
            at = ((base + i) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            chosen = mask & (tl.load(places + at, mask=mask, other=0).to(tl.int32) == here[:, None])
            total += tl.load(grad + at, mask=chosen, other=0.0).to(wide)
            if shifting:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                total += factor[:, None] * tl.load(grad_shifted + at, mask=mask, other=0.0).to(wide)
    if shared:
        total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = writes[:, None] & inside[None, :]
    if closed and (piece == 0 or tl.program_id(2) == 0):
        listed = tl.load(incoming + node + 1, mask=alive, other=0) - tl.load(incoming + node, mask=alive, other=0)
        place = tl.load(places + own, mask=mask, other=0).to(tl.int32)
        itself = mask & (place == listed.to(tl.int32)[:, None])
        total += tl.load(grad + own, mask=itself, other=0.0).to(wide)
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
    tl.store(out + own, total.to(out.dtype.element_ty), mask=mask)
