"""Triton kernels that choose the largest or the smallest of the neighbours; `_gpu_median.py` has the median."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_walk import UNROLL, columns_of_program, list_of_row, rows_of_program


@triton.jit
def values_at(
    offers,
    members,
    node,
    base,
    begin,
    end,
    position,
    column,
    inside,
    columns,
    beyond: tl.constexpr,
    closed: tl.constexpr,
):
    """What the candidates at a position offer; ``beyond`` past the end of a list."""
    there = position < end
    j = tl.load(members + position, mask=there & (position >= begin), other=0).to(tl.int64)
    if closed:
        j = tl.where(position < begin, node, j)
    at = ((base + j) * columns)[:, None] + column[None, :]
    return tl.load(offers + at, mask=there[:, None] & inside[None, :], other=beyond)


@triton.jit
def candidates_at(
    offers,
    labels,
    members,
    node,
    base,
    begin,
    end,
    position,
    column,
    inside,
    nodes,
    columns,
    closed: tl.constexpr,
    labelled: tl.constexpr,
):
    """What the candidates at a position offer, under which label, and whether there are any."""
    there = position < end
    j = tl.load(members + position, mask=there & (position >= begin), other=0).to(tl.int64)
    if closed:
        j = tl.where(position < begin, node, j)
    at = ((base + j) * columns)[:, None] + column[None, :]
    mask = there[:, None] & inside[None, :]
    value = tl.load(offers + at, mask=mask, other=0.0)
    if labelled:
        name = tl.load(labels + at, mask=mask, other=nodes).to(tl.int32)
    else:
        name = j.to(tl.int32)[:, None] + 0 * column[None, :]
    return value, name, mask


@triton.jit
def place_of(name, members, begin, end, node, mask, nodes):
    """The places of chosen neighbours in the list of each lane; d, its length, for the node itself and for nobody."""
    low = begin[:, None] + 0 * name.to(tl.int64)
    high = tl.maximum(begin, end)[:, None] + 0 * low
    past = (name == nodes) | (name == node[:, None])
    while tl.max(tl.max((high - low).to(tl.int32), 1), 0) > 0:
        middle = (low + high) // 2
        searching = low < high
        lower = searching & (tl.load(members + middle, mask=mask & searching, other=0) < name)
        high = tl.where(lower, high, tl.where(searching, middle, high))
        low = tl.where(lower, middle + 1, low)
    return (tl.where(past, end[:, None], low) - begin[:, None]).to(tl.int32)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def extreme_kernel(
    out,
    chosen,
    x,
    offers,
    labels,
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
    largest: tl.constexpr,
    closed: tl.constexpr,
    labelled: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.select` with max or min."""
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(pointers, node, alive, closed, lanes, shared)
    stride: tl.constexpr = lanes if shared else 1
    loser: tl.constexpr = float("-inf") if largest else float("inf")
    best = tl.full((lanes, block), loser, dtype=wide)
    best_name = tl.zeros((lanes, block), dtype=tl.int32) + nodes
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            value, name, mask = candidates_at(
                offers,
                labels,
                members,
                node,
                base,
                begin,
                end,
                position,
                column,
                inside,
                nodes,
                columns,
                closed,
                labelled,
            )
            value = value.to(wide)
            better = value > best if largest else value < best
            better |= (value != value) & (best == best)
            equal = (value == best) | ((value != value) & (best != best))
            better = mask & (better | (equal & (name < best_name)))
            best = tl.where(better, value, best)
            best_name = tl.where(better, name, best_name)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = writes[:, None] & inside[None, :]
    if shared:
        unknown = best != best
        numbers = tl.where(unknown, loser, best)
        winner = tl.max(numbers, 0) if largest else tl.min(numbers, 0)
        wins = tl.where(tl.max(unknown.to(tl.int32), 0)[None, :] > 0, unknown, best == winner[None, :])
        best_name = tl.min(tl.where(wins, best_name, nodes), 0)[None, :] + tl.zeros((lanes, block), dtype=tl.int32)
        source = (base[:, None] + best_name) * columns + column[None, :]
        best = tl.load(x + source, mask=mask & (best_name < nodes), other=0.0).to(wide)
    best = tl.where(best_name < nodes, best, 0.0)
    tl.store(out + own, best.to(out.dtype.element_ty), mask=mask)
    tl.store(chosen + own, best_name, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def take_kernel(
    out,
    x,
    labels,
    rows,
    nodes,
    columns,
    empty,
    lanes: tl.constexpr,
    block: tl.constexpr,
    batched: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.take`."""
    node, base, alive, _ = rows_of_program(out, nodes, 0, rows, nodes, lanes, False, False, batched)
    column, inside = columns_of_program(columns, block)
    mask = alive[:, None] & inside[None, :]
    at = ((base + node) * columns)[:, None] + column[None, :]
    label = tl.load(labels + at, mask=mask, other=nodes).to(tl.int64)
    source = (base[:, None] + label) * columns + column[None, :]
    value = tl.load(x + source, mask=mask & (label < nodes), other=empty)
    tl.store(out + at, value, mask=mask)
