"""Triton kernels that choose the lower median of long lists; `_gpu_network.py` has short ones.

With ``placing`` a search returns the place of the chosen neighbour in its list instead of its number.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_bracket import after_counts, ascending_key, is_open, number_of, pivots_inside
from graphact.kernels._gpu_select import candidates_at, place_of, values_at
from graphact.kernels._gpu_walk import (
    MOST_PROGRAMS,
    Tile,
    ceil_div,
    columns_of_program,
    list_of_row,
    padded_size,
    rows_of_program,
)

AHEAD = tl.constexpr(4)  # neighbours whose numbers are on their way at the same time
FURTHER_AHEAD = tl.constexpr(8)  # in a search, which holds fewer numbers
RANKED = 64  # the most candidates whose median is found by comparing all pairs
SEARCHED_BLOCK, SEARCHED_LANES, SEARCHED_WARPS = 8, 64, 2


def searching_tile(rows: int, columns: int) -> Tile:
    """For a list that all lanes share: few columns, few threads to agree, and so many programs."""
    block = max(min(padded_size(columns), SEARCHED_BLOCK), padded_size(ceil_div(columns, MOST_PROGRAMS)))
    return Tile(SEARCHED_LANES, block, SEARCHED_WARPS, (rows, ceil_div(columns, block)))


@triton.jit(do_not_specialize=["count", "last", "rows"])
def ranked_median_kernel(
    out,
    chosen,
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
    closed: tl.constexpr,
    labelled: tl.constexpr,
):
    """For short lists: of d candidates, the largest one that has at most (d - 1) // 2 smaller ones."""
    tl.static_assert(not shared)
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(pointers, node, alive, closed, lanes, False)
    smaller = ((end - enter - 1) // 2).to(tl.int32)[:, None]
    low: tl.constexpr = float("-inf")
    high: tl.constexpr = float("inf")
    median = tl.full((lanes, block), low, dtype=wide)
    for step in range(0, steps, 4):
        # four candidates at a time, so that every number that is read is compared with four
        p = enter + step
        a = values_at(offers, members, node, base, begin, end, p, column, inside, columns, low, closed).to(wide)
        b = values_at(offers, members, node, base, begin, end, p + 1, column, inside, columns, low, closed).to(wide)
        c = values_at(offers, members, node, base, begin, end, p + 2, column, inside, columns, low, closed).to(wide)
        d = values_at(offers, members, node, base, begin, end, p + 3, column, inside, columns, low, closed).to(wide)
        below_a = tl.zeros((lanes, block), dtype=tl.int32)
        below_b = tl.zeros((lanes, block), dtype=tl.int32)
        below_c = tl.zeros((lanes, block), dtype=tl.int32)
        below_d = tl.zeros((lanes, block), dtype=tl.int32)
        for other in range(0, steps, AHEAD):
            for ahead in tl.static_range(AHEAD):
                q = enter + (other + ahead)
                v = values_at(offers, members, node, base, begin, end, q, column, inside, columns, high, closed)
                v = v.to(wide)
                below_a += (v < a).to(tl.int32)
                below_b += (v < b).to(tl.int32)
                below_c += (v < c).to(tl.int32)
                below_d += (v < d).to(tl.int32)
        median = tl.maximum(median, tl.where(below_a <= smaller, a, low))
        median = tl.maximum(median, tl.where(below_b <= smaller, b, low))
        median = tl.maximum(median, tl.where(below_c <= smaller, c, low))
        median = tl.maximum(median, tl.where(below_d <= smaller, d, low))
    unknown = tl.zeros((lanes, block), dtype=tl.int32)
    name = tl.zeros((lanes, block), dtype=tl.int32) + nodes
    unknown_name = name
    result = tl.zeros((lanes, block), dtype=wide)
    nan = result
    for step in range(0, steps, AHEAD):
        for ahead in tl.static_range(AHEAD):
            q = enter + (step + ahead)
            v, label, there = candidates_at(
                offers, labels, members, node, base, begin, end, q, column, inside, nodes, columns, closed, labelled
            )
            v = v.to(wide)
            is_nan = there & (v != v)
            unknown = unknown | is_nan.to(tl.int32)
            nan = tl.where(is_nan, v, nan)
            unknown_name = tl.where(is_nan, tl.minimum(unknown_name, label), unknown_name)
            better = there & (v == median) & (label < name)
            result = tl.where(better, v, result)
            name = tl.where(better, label, name)
    name = tl.where(unknown > 0, unknown_name, name)
    result = tl.where(unknown > 0, nan, result)
    result = tl.where(name < nodes, result, 0.0)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = writes[:, None] & inside[None, :]
    tl.store(out + own, result.to(out.dtype.element_ty), mask=mask)
    tl.store(chosen + own, name.to(chosen.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def searched_median_kernel(
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
    closed: tl.constexpr,
    labelled: tl.constexpr,
    placing: tl.constexpr,
):
    """For lists of any length, which are read once for every step that narrows a bracket around the median."""
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    infinity: tl.constexpr = float("inf")
    height: tl.constexpr = 1 if shared else lanes
    stride: tl.constexpr = lanes if shared else 1
    node, base, alive, _ = rows_of_program(order, count, last, rows, nodes, height, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(pointers, node, alive, closed, height, False)
    candidates = tl.maximum(end - enter, 0).to(tl.int32)[:, None]
    if shared:
        enter = enter + tl.arange(0, lanes)
        steps = (steps + lanes - 1) // lanes
    least = tl.full((lanes, block), infinity, dtype=wide)
    most = -least
    for step in range(0, steps, FURTHER_AHEAD):
        for ahead in tl.static_range(FURTHER_AHEAD):
            q = enter + (step + ahead) * stride
            v = values_at(offers, members, node, base, begin, end, q, column, inside, columns, infinity, closed)
            v = v.to(wide)
            v = tl.where(v == v, v, infinity)
            least = tl.minimum(least, v)
            most = tl.maximum(most, tl.where((q < end)[:, None], v, -infinity))
    if shared:
        least, most = tl.min(least, 0)[None, :], tl.max(most, 0)[None, :]
    top = tl.full((1, 1), 1, dtype=unsigned) << (bits - 1)
    smaller = (candidates - 1) // 2
    low = ascending_key(least, signed, unsigned, top) - 1
    high = ascending_key(tl.where(most < least, least, most), signed, unsigned, top)
    below = tl.zeros((height, block), dtype=tl.int32)
    upto = below + candidates
    source = below
    nowhere = tl.zeros((height, block), dtype=wide)
    active = is_open(low, high, below, upto)
    while tl.max(tl.max(active.to(tl.int32), 1), 0) > 0:
        first, second, third = pivots_inside(
            low, high, below, upto, smaller, source, nowhere, nowhere, wide, signed, top
        )
        a, b, c = number_of(first, wide, top), number_of(second, wide, top), number_of(third, wide, top)
        upto_a = tl.zeros((lanes, block), dtype=tl.int32)
        upto_b = tl.zeros((lanes, block), dtype=tl.int32)
        upto_c = tl.zeros((lanes, block), dtype=tl.int32)
        for step in range(0, steps, FURTHER_AHEAD):
            for ahead in tl.static_range(FURTHER_AHEAD):
                q = enter + (step + ahead) * stride
                v = values_at(offers, members, node, base, begin, end, q, column, inside, columns, infinity, closed)
                v = v.to(wide)
                upto_a += (v <= a).to(tl.int32)
                upto_b += (v <= b).to(tl.int32)
                upto_c += (v <= c).to(tl.int32)
        if shared:
            upto_a, upto_b, upto_c = tl.sum(upto_a, 0)[None, :], tl.sum(upto_b, 0)[None, :], tl.sum(upto_c, 0)[None, :]
        low, high, below, upto, source = after_counts(
            low, high, below, upto, smaller, source, active, first, upto_a, second, upto_b, third, upto_c
        )
        active = is_open(low, high, below, upto)
    name = tl.zeros((lanes, block), dtype=tl.int32) + nodes
    unknown_name = name
    unknown = tl.zeros((lanes, block), dtype=tl.int32)
    for step in range(0, steps, FURTHER_AHEAD):
        for ahead in tl.static_range(FURTHER_AHEAD):
            q = enter + (step + ahead) * stride
            v, label, there = candidates_at(
                offers, labels, members, node, base, begin, end, q, column, inside, nodes, columns, closed, labelled
            )
            v = v.to(wide)
            key = ascending_key(v, signed, unsigned, top)
            is_nan = there & (v != v)
            unknown = unknown | is_nan.to(tl.int32)
            unknown_name = tl.where(is_nan, tl.minimum(unknown_name, label), unknown_name)
            name = tl.where(there & (v == v) & (key > low) & (key <= high), tl.minimum(name, label), name)
    if shared:
        name, unknown_name = tl.min(name, 0)[None, :], tl.min(unknown_name, 0)[None, :]
        unknown = tl.max(unknown, 0)[None, :]
    name = tl.where(unknown > 0, unknown_name, name)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = alive[:, None] & inside[None, :]
    at = (base[:, None] + name) * columns + column[None, :]
    result = tl.load(x + at, mask=mask & (name < nodes), other=0.0)
    if placing:
        name = place_of(name, members, begin, end, node, mask, nodes)
    tl.store(out + own, result, mask=mask)
    tl.store(chosen + own, name.to(chosen.dtype.element_ty), mask=mask)
