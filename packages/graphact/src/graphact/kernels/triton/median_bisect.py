"""The median by bisection, in Triton: an interval around it that gets narrower with every count.

Numbers are compared as keys, unsigned integers in the same order. The median m of a list lies in ``low < m <= high``;
of its numbers, ``below`` are at most ``low`` and ``upto`` at most ``high``. A step counts the numbers up to three
pivots inside the interval. They are put around a first guess, then where the ranks let expect the median; after a step
that told little, they halve the keys, so that no list takes long. The search may end as soon as the median is the first
or the last number inside the interval, which one more pass finds.

The kernels here read the lists again for every count; `median_long.py` has those that keep the numbers. With
``as_slot`` a kernel returns the slot of the selected neighbour in its list instead of its node.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels.triton.launch import MAX_PROGRAMS, Tile, ceil_div, padded_size
from graphact.kernels.triton.walk import (
    candidates_at,
    columns_of_program,
    list_of_row,
    rows_of_program,
    slot_of,
    values_at,
)

BY_RANK, HALVING, GUESSED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # where the next pivots come from
AHEAD = tl.constexpr(4)  # neighbours whose numbers are on their way at the same time
FURTHER_AHEAD = tl.constexpr(8)  # in a search, which holds fewer numbers
RANKED = 64  # the most candidates whose median is found by comparing all pairs
BISECT_BLOCK, BISECT_LANES, BISECT_WARPS = 8, 64, 2


def bisect_tile(rows: int, columns: int) -> Tile:
    """For a list that all lanes share: few columns, few threads to agree, and so many programs."""
    block = max(min(padded_size(columns), BISECT_BLOCK), padded_size(ceil_div(columns, MAX_PROGRAMS)))
    return Tile(BISECT_LANES, block, BISECT_WARPS, (rows, ceil_div(columns, block)))


@triton.jit
def lower_number(a, b):
    """The lower of two numbers; NaN is none."""
    return tl.minimum(a, b)


@triton.jit
def ascending_key(value, signed: tl.constexpr, unsigned: tl.constexpr, top):
    """Unsigned integers in the order of the numbers, the same for both zeros; ``top`` has only the highest bit."""
    pattern = value.to(signed, bitcast=True)
    pattern = tl.where(value == 0.0, tl.zeros_like(pattern), pattern)
    key = pattern.to(unsigned, bitcast=True)
    return tl.where(pattern < 0, ~key, key | top)


@triton.jit
def number_of(key, wide: tl.constexpr, top):
    """The number that a key stands for; the key below that of zero stands for the largest number below zero."""
    key = tl.where(key == top - 1, key - 1, key)  # its own pattern, -0.0, has the key of zero
    return tl.where(key >= top, key ^ top, ~key).to(wide, bitcast=True)


@triton.jit
def is_open(low, high, below, upto):
    """Return true if different numbers may still lie in the interval."""
    return (upto - below > 1) & (high - low > 1)


@triton.jit
def is_within(low, high, below, upto, smaller):
    """Return true if the median may be neither the first nor the last number in the interval."""
    return (smaller > below) & (smaller < upto - 1) & (high - low > 1)


@triton.jit
def guess_of(total, squares, amount, wide: tl.constexpr):
    """The mean of some numbers, and how far from it their median may be expected."""
    count = tl.maximum(amount, 1).to(wide)
    mean = total / count
    return mean, 1.5 * tl.sqrt(tl.maximum(squares / count - mean * mean, 0.0) / count)


@triton.jit
def pivots_inside(low, high, below, upto, smaller, source, guess, reach, wide: tl.constexpr, signed: tl.constexpr, top):
    """Three keys strictly inside a interval that is open, ascending where the guess is a number."""
    unsigned: tl.constexpr = low.dtype
    inside = tl.maximum(upto - below, 1).to(wide)
    expected = (smaller - below + 0.5).to(wide) / inside
    spread = 0.8 * tl.sqrt(expected * (1.0 - expected) / inside) + 0.3 / inside
    bottom, top_number = number_of(low, wide, top), number_of(high, wide, top)
    span = top_number - bottom
    by_rank = (span < float("inf")) & (source == BY_RANK)  # not so for NaN
    span = tl.where(by_rank, span, 0.0)
    center = tl.where(by_rank, bottom + expected * span, guess)
    reach = tl.where(by_rank, spread * span, reach)
    first = ascending_key(center - reach, signed, unsigned, top)
    second = ascending_key(center, signed, unsigned, top)
    third = ascending_key(center + reach, signed, unsigned, top)
    half = (high - low) >> 1
    by_number = by_rank | (source == GUESSED)
    first = tl.where(by_number, first, low + (half >> 1))
    second = tl.where(by_number, second, low + half)
    third = tl.where(by_number, third, low + half + (half >> 1))
    least, most = low + 1, high - 1
    first = tl.minimum(tl.maximum(first, least), most)
    second = tl.minimum(tl.maximum(second, least), most)
    third = tl.minimum(tl.maximum(third, least), most)
    return first, second, third


@triton.jit
def narrowed(low, high, below, upto, smaller, pivot, count, active):
    """The interval after ``count`` numbers were found to be at most ``pivot``."""
    above = active & (count <= smaller)
    not_above = active & (count > smaller)
    low = tl.where(above, tl.maximum(low, pivot), low)
    below = tl.where(above, tl.maximum(below, count), below)
    high = tl.where(not_above, tl.minimum(high, pivot), high)
    upto = tl.where(not_above, tl.minimum(upto, count), upto)
    return low, high, below, upto


@triton.jit
def after_counts(low, high, below, upto, smaller, source, active, first, a, second, b, third, c):
    """The interval after the numbers up to three pivots were counted: ``a``, ``b`` and ``c``; and the next source."""
    before = upto - below
    low, high, below, upto = narrowed(low, high, below, upto, smaller, first, a, active)
    low, high, below, upto = narrowed(low, high, below, upto, smaller, second, b, active)
    low, high, below, upto = narrowed(low, high, below, upto, smaller, third, c, active)
    told_little = (source != HALVING) & (2 * (upto - below) > before)
    return low, high, below, upto, tl.where(told_little, HALVING, BY_RANK)


@triton.jit
def end_of_interval(low, high, below, smaller, wide: tl.constexpr, signed: tl.constexpr, top):
    """A sign and a bound: times that sign, the median is the lowest number that is not up to the bound.

    The bound is NaN where all numbers are beyond it.
    """
    unsigned: tl.constexpr = low.dtype
    is_first = smaller == below
    mirrored = ascending_key(-number_of(high, wide, top), signed, unsigned, top) - 1
    bound = tl.where(is_first, number_of(low, wide, top), number_of(mirrored, wide, top))
    return tl.where(is_first, 1.0, -1.0).to(wide), bound


@triton.jit(do_not_specialize=["count", "last", "rows"])
def ranked_median_kernel(
    out, selected, candidates, source_index, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, closed: tl.constexpr, indexed: tl.constexpr
):  # fmt: skip
    """For short lists: of d num_candidates, the largest one that has at most (d - 1) // 2 smaller ones."""
    tl.static_assert(not shared)
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, closed, lanes, False)
    smaller = ((end - enter - 1) // 2).to(tl.int32)[:, None]
    low: tl.constexpr = float("-inf")
    high: tl.constexpr = float("inf")
    median = tl.full((lanes, block), low, dtype=wide)
    for step in range(0, steps, 4):
        # four candidates at a time, so that every number that is read is compared with four
        p = enter + step
        a = values_at(candidates, col, node, base, begin, end, p, column, inside, columns, low, closed).to(wide)
        b = values_at(candidates, col, node, base, begin, end, p + 1, column, inside, columns, low, closed).to(wide)
        c = values_at(candidates, col, node, base, begin, end, p + 2, column, inside, columns, low, closed).to(wide)
        d = values_at(candidates, col, node, base, begin, end, p + 3, column, inside, columns, low, closed).to(wide)
        below_a = tl.zeros((lanes, block), dtype=tl.int32)
        below_b = tl.zeros((lanes, block), dtype=tl.int32)
        below_c = tl.zeros((lanes, block), dtype=tl.int32)
        below_d = tl.zeros((lanes, block), dtype=tl.int32)
        for other in range(0, steps, AHEAD):
            for ahead in tl.static_range(AHEAD):
                q = enter + (other + ahead)
                v = values_at(candidates, col, node, base, begin, end, q, column, inside, columns, high, closed)
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
    best_index = tl.zeros((lanes, block), dtype=tl.int32) + nodes
    unknown_index = best_index
    result = tl.zeros((lanes, block), dtype=wide)
    nan = result
    for step in range(0, steps, AHEAD):
        for ahead in tl.static_range(AHEAD):
            q = enter + (step + ahead)
            v, index, there = candidates_at(
                candidates, source_index, col, node, base, begin, end, q, column, inside, nodes, columns,
                closed, indexed
            )  # fmt: skip
            v = v.to(wide)
            is_nan = there & (v != v)
            unknown = unknown | is_nan.to(tl.int32)
            nan = tl.where(is_nan, v, nan)
            unknown_index = tl.where(is_nan, tl.minimum(unknown_index, index), unknown_index)
            better = there & (v == median) & (index < best_index)
            result = tl.where(better, v, result)
            best_index = tl.where(better, index, best_index)
    best_index = tl.where(unknown > 0, unknown_index, best_index)
    result = tl.where(unknown > 0, nan, result)
    result = tl.where(best_index < nodes, result, 0.0)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = writes[:, None] & inside[None, :]
    tl.store(out + own, result.to(out.dtype.element_ty), mask=mask)
    tl.store(selected + own, best_index.to(selected.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def bisect_median_kernel(
    out, selected, x, candidates, source_index, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, closed: tl.constexpr, indexed: tl.constexpr, as_slot: tl.constexpr
):  # fmt: skip
    """For lists of any length, which are read once for every step that narrows a interval around the median."""
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    infinity: tl.constexpr = float("inf")
    height: tl.constexpr = 1 if shared else lanes
    stride: tl.constexpr = lanes if shared else 1
    node, base, alive, _ = rows_of_program(order, count, last, rows, nodes, height, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, closed, height, False)
    num_candidates = tl.maximum(end - enter, 0).to(tl.int32)[:, None]
    if shared:
        enter = enter + tl.arange(0, lanes)
        steps = (steps + lanes - 1) // lanes
    least = tl.full((lanes, block), infinity, dtype=wide)
    most = -least
    for step in range(0, steps, FURTHER_AHEAD):
        for ahead in tl.static_range(FURTHER_AHEAD):
            q = enter + (step + ahead) * stride
            v = values_at(candidates, col, node, base, begin, end, q, column, inside, columns, infinity, closed)
            v = v.to(wide)
            v = tl.where(v == v, v, infinity)
            least = tl.minimum(least, v)
            most = tl.maximum(most, tl.where((q < end)[:, None], v, -infinity))
    if shared:
        least, most = tl.min(least, 0)[None, :], tl.max(most, 0)[None, :]
    top = tl.full((1, 1), 1, dtype=unsigned) << (bits - 1)
    smaller = (num_candidates - 1) // 2
    low = ascending_key(least, signed, unsigned, top) - 1
    high = ascending_key(tl.where(most < least, least, most), signed, unsigned, top)
    below = tl.zeros((height, block), dtype=tl.int32)
    upto = below + num_candidates
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
                v = values_at(candidates, col, node, base, begin, end, q, column, inside, columns, infinity, closed)
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
    best_index = tl.zeros((lanes, block), dtype=tl.int32) + nodes
    unknown_index = best_index
    unknown = tl.zeros((lanes, block), dtype=tl.int32)
    for step in range(0, steps, FURTHER_AHEAD):
        for ahead in tl.static_range(FURTHER_AHEAD):
            q = enter + (step + ahead) * stride
            v, index, there = candidates_at(
                candidates, source_index, col, node, base, begin, end, q, column, inside, nodes, columns,
                closed, indexed
            )  # fmt: skip
            v = v.to(wide)
            key = ascending_key(v, signed, unsigned, top)
            is_nan = there & (v != v)
            unknown = unknown | is_nan.to(tl.int32)
            unknown_index = tl.where(is_nan, tl.minimum(unknown_index, index), unknown_index)
            best_index = tl.where(
                there & (v == v) & (key > low) & (key <= high), tl.minimum(best_index, index), best_index
            )
    if shared:
        best_index, unknown_index = tl.min(best_index, 0)[None, :], tl.min(unknown_index, 0)[None, :]
        unknown = tl.max(unknown, 0)[None, :]
    best_index = tl.where(unknown > 0, unknown_index, best_index)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = alive[:, None] & inside[None, :]
    at = (base[:, None] + best_index) * columns + column[None, :]
    result = tl.load(x + at, mask=mask & (best_index < nodes), other=0.0)
    if as_slot:
        best_index = slot_of(best_index, col, begin, end, node, mask, nodes)
    tl.store(out + own, result, mask=mask)
    tl.store(selected + own, best_index.to(selected.dtype.element_ty), mask=mask)
