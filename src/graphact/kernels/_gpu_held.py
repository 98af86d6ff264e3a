"""The median of lists that are too long to sort but short enough to hold: read once, then counted as often as it takes.

A warp holds some columns of one list in its registers. Its threads share the neighbours, so that a count is a sum
within each thread and over a few of them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

from graphact.kernels._gpu_bracket import after_counts, ascending_key, is_open, number_of, pivots_inside
from graphact.kernels._gpu_hop import place_of_own
from graphact.kernels._gpu_walk import Tile, columns_of_program, row_of_program

HELD = (128, 256, 512, 1024)  # candidates; a list takes the smallest of them that holds it
BYTES = 16384  # that a warp holds


def holding_tile(rows: int, columns: int, size: int, bytes_per_number: int) -> Tile:
    """One warp for a row and as many columns as it can hold."""
    block = min(triton.next_power_of_2(columns), max(1, BYTES // bytes_per_number // size))
    return Tile(size, block, 1, (rows, triton.cdiv(columns, block)))


@triton.jit
def lower_number(a, b):
    """The lower of two numbers; NaN is none."""
    return tl.minimum(a, b)


@triton.jit
def higher_number(a, b):
    """The higher of two numbers; NaN is none."""
    return tl.maximum(a, b)


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
    j = tl.load(members + begin + k, mask=k < degree, other=0).to(tl.int64)
    candidates = degree
    if closed:
        candidates = degree + 1
        j = tl.where(k == degree, node, j)
    at = ((base + j) * columns)[:, None] + column[None, :]
    there = (k < candidates)[:, None] & inside[None, :]
    v = tl.load(x + at, mask=there, other=float("nan")).to(wide)  # which no comparison finds
    known = tl.sum((v == v).to(tl.float32), 0).to(tl.int32)
    least, most = tl.reduce(v, 0, lower_number), tl.reduce(v, 0, higher_number)
    top = tl.full((1,), 1, dtype=unsigned) << (bits - 1)
    smaller = (candidates - 1) // 2 + tl.zeros((block,), dtype=tl.int32)
    low = ascending_key(least, signed, unsigned, top) - 1
    high = ascending_key(most, signed, unsigned, top)
    below = tl.zeros((block,), dtype=tl.int32)
    upto = tl.where(known < candidates, 0, candidates)  # NaN, which threads need not see alike, ends the search at once
    halving = below
    active = is_open(low, high, below, upto)
    while tl.max(active.to(tl.int32), 0) > 0:
        first, second, third = pivots_inside(low, high, below, upto, smaller, halving, wide, signed, top)
        a, b, c = number_of(first, wide, top), number_of(second, wide, top), number_of(third, wide, top)
        # sums of floating point are faster than those of integers, and exact; two counts share one
        both = (v <= a[None, :]).to(tl.float32) + (v <= b[None, :]).to(tl.float32) * 4096.0
        both, upto_c = tl.sum(both, 0).to(tl.int32), tl.sum((v <= c[None, :]).to(tl.float32), 0).to(tl.int32)
        upto_a, upto_b = both & 4095, both >> 12
        low, high, below, upto, halving, active = after_counts(
            low, high, below, upto, smaller, halving, active, first, upto_a, second, upto_b, third, upto_c
        )
    lowest, highest = number_of(low, wide, top), number_of(high, wide, top)
    # not "v > lowest": below the smallest number of all stands no number
    found = (v <= highest[None, :]) & ~(v <= lowest[None, :])
    place = tl.minimum(tl.min(tl.where(found, k[:, None], lanes), 0), degree)
    before = degree
    itself = tl.zeros((block,), dtype=wide)
    if closed:
        alone = tl.zeros((1,), dtype=tl.int64)
        before = place_of_own(members, begin + alone, end + alone, node)
        itself = tl.load(x + own, mask=inside, other=0.0).to(wide)
        is_median = (itself <= highest) & ~(itself <= lowest)
        place = tl.where(is_median & (place >= before), degree, place)
    unknown = inside & (known < candidates)
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
