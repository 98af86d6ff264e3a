"""The median of lists that are too long to sort but short enough to hold: read once, then counted as often as it takes.

A warp holds some columns of one list in its registers. Its threads share the neighbours, so that a count is a sum
within each thread and over a few of them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_bracket import (
    GUESSED,
    after_counts,
    ascending_key,
    end_of_bracket,
    guess_of,
    higher_number,
    is_within,
    lower_number,
    number_of,
    pivots_inside,
)
from graphact.kernels._gpu_hop import place_of_own
from graphact.kernels._gpu_walk import Tile, columns_of_program, row_of_program

HELD = (128, 256, 512, 1024)  # candidates; a list takes the smallest of them that holds it
BYTES = 16384  # that a warp holds


def holding_tile(rows: int, columns: int, size: int, bytes_per_number: int) -> Tile:
    """One warp for a row and as many columns as it can hold."""
    block = min(triton.next_power_of_2(columns), max(1, BYTES // bytes_per_number // size))
    return Tile(size, block, 1, (rows, triton.cdiv(columns, block)))


@triton.jit(do_not_specialize=["count", "last", "rows"])
def held_median_kernel(
    values,
    places,
    x,
    pointers,
    members,
    order,
    count,
    last,
    rows,  # noqa: ARG001 (as all kernels)
    nodes,
    columns,
    lanes: tl.constexpr,
    block: tl.constexpr,
    wide: tl.constexpr,
    shared: tl.constexpr,
    ordered: tl.constexpr,
    batched: tl.constexpr,
    closed: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.hop` with the median, for lists of at most ``lanes`` candidates."""
    tl.static_assert(lanes <= 1024 and not shared)
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    node, base = row_of_program(order, count, last, nodes, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin = tl.load(pointers + node).to(tl.int64)
    end = tl.load(pointers + node + 1).to(tl.int64)
    degree = (end - begin).to(tl.int32)
    own = (base + node) * columns + column
    k = tl.arange(0, lanes)
    # what is left over of the lanes holds the first candidate once more: fewer masks
    j = tl.load(members + begin + tl.where(k < degree, k, 0)).to(tl.int64)
    candidates = degree
    if closed:
        candidates = degree + 1
        j = tl.where(k == degree, node, j)
    at = ((base + j) * columns)[:, None] + column[None, :]
    v = tl.load(x + at, mask=inside[None, :], other=0.0).to(wide)
    again = tl.load(x + (base + tl.load(members + begin)) * columns + column, mask=inside, other=0.0).to(wide)
    surplus = lanes - candidates
    known = tl.sum((v == v).to(tl.float32), 0).to(tl.int32)
    least, most = tl.reduce(v, 0, lower_number), tl.reduce(v, 0, higher_number)
    square = v * v
    if lanes * block < 64:
        # a number a thread: what is multiplied as it is added would differ between threads
        square = tl.where(v == v, square, 0.0)
    total, squares = tl.sum(v, 0) - surplus * again, tl.sum(square, 0) - surplus * again * again
    guess, reach = guess_of(total, squares, candidates, wide)
    top = tl.full((1,), 1, dtype=unsigned) << (bits - 1)
    smaller = (candidates - 1) // 2 + tl.zeros((block,), dtype=tl.int32)
    low = ascending_key(least, signed, unsigned, top) - 1
    high = ascending_key(most, signed, unsigned, top)
    below = tl.zeros((block,), dtype=tl.int32)
    upto = tl.where(known < lanes, 0, candidates)  # NaN, which threads need not see alike, ends the search at once
    source = below + GUESSED
    active = is_within(low, high, below, upto, smaller)
    while tl.max(active.to(tl.int32), 0) > 0:
        first, second, third = pivots_inside(low, high, below, upto, smaller, source, guess, reach, wide, signed, top)
        a, b, c = number_of(first, wide, top), number_of(second, wide, top), number_of(third, wide, top)
        # sums of floating point are faster than those of integers, and exact; two counts share one
        both = (v <= a[None, :]).to(tl.float32) + (v <= b[None, :]).to(tl.float32) * 4096.0
        both, upto_c = tl.sum(both, 0).to(tl.int32), tl.sum((v <= c[None, :]).to(tl.float32), 0).to(tl.int32)
        upto_a = (both & 4095) - tl.where(again <= a, surplus, 0)
        upto_b = (both >> 12) - tl.where(again <= b, surplus, 0)
        upto_c -= tl.where(again <= c, surplus, 0)
        low, high, below, upto, source = after_counts(
            low, high, below, upto, smaller, source, active, first, upto_a, second, upto_b, third, upto_c
        )
        active = is_within(low, high, below, upto, smaller)
    sign, bound = end_of_bracket(low, high, below, smaller, wide, signed, top)
    # NaN, as bound, stops nobody
    beyond = tl.where(v * sign[None, :] <= bound[None, :], float("inf"), v * sign[None, :])
    median = tl.reduce(beyond, 0, lower_number) * sign
    place = tl.minimum(tl.min(tl.where(v == median[None, :], k[:, None], lanes), 0), degree)
    before = degree
    itself = tl.zeros((block,), dtype=wide)
    if closed:
        alone = tl.zeros((1,), dtype=tl.int64)
        before = place_of_own(members, begin + alone, end + alone, node)
        itself = tl.load(x + own, mask=inside, other=0.0).to(wide)
        place = tl.where((itself == median) & (place >= before), degree, place)
    unknown = known < lanes
    if tl.max(unknown.to(tl.int32), 0) > 0:
        nan = tl.min(tl.where((v != v) & (k < degree)[:, None], k[:, None], lanes), 0)
        nan = tl.where((itself != itself) & (nan >= before), degree, nan)
        place = tl.where(unknown, nan, place)
    chosen = tl.load(members + begin + place, mask=inside & (place < degree), other=0).to(tl.int64)
    if closed:
        chosen = tl.where(place < degree, chosen, node)
    result = tl.load(x + (base + chosen) * columns + column, mask=inside, other=0.0)
    tl.store(values + own, result, mask=inside)
    tl.store(places + own, place.to(places.dtype.element_ty), mask=inside)
