"""The median of long lists: their numbers are laid out side by side, then counted as often as it takes.

A search reads a list many times. Where a hub hears a hundred thousand others, following its list each time would keep
one multiprocessor waiting for memory; side by side, many come at a time, and each column to another program. Lists of
up to 32,768 candidates are then held (`_gpu_held.py`), longer ones are read again for every count.
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
    is_within,
    lower_number,
    number_of,
    pivots_inside,
)
from graphact.kernels._gpu_hop import place_of_own
from graphact.kernels._gpu_walk import Tile, ceil_div, columns_of_program, list_of_row, padded_size, rows_of_program

POSITIONS = 32  # of a list that a program lays out
COUNTED, WARPS = 8192, 32  # numbers of a list that a program counts at a time, and its warps


def laying_tile(rows: int, columns: int) -> Tile:
    """A tile of neighbours and columns."""
    block = min(padded_size(columns), 64)
    return Tile(POSITIONS, block, 4, (rows, ceil_div(columns, block)))


def counting_tile(rows: int, columns: int) -> Tile:
    """A program for each column of each row."""
    return Tile(1, COUNTED, WARPS, (rows, columns))


@triton.jit(do_not_specialize=["count", "last", "rows", "stride", "each"])
def lay_out_kernel(
    numbers,
    x,
    pointers,
    members,
    stride,
    each,
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
    piece: tl.constexpr,
):
    """Row r, column c, candidate k go to ``numbers[r, c, k]``; in a closed neighbourhood the node itself comes last."""
    tl.static_assert(lanes == piece and not shared)
    tl.static_assert(numbers.dtype.element_ty == wide)
    node, base, alive, _ = rows_of_program(order, count, last, rows, nodes, 1, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, _, _ = list_of_row(pointers, node, alive, False, 1, False)
    degree = (end - begin).to(tl.int32)
    candidates = degree
    if closed:
        candidates = degree + 1
    to_column = (tl.program_id(0).to(tl.int64) * columns + column) * stride
    for tile in range(each):
        k = (tl.program_id(2) * each + tile) * piece + tl.arange(0, piece)
        j = tl.load(members + begin + k, mask=k < degree, other=0).to(tl.int64)
        if closed:
            j = tl.where(k == degree, node, j)
        at = ((base + j) * columns)[:, None] + column[None, :]
        value = tl.load(x + at, mask=(k < candidates)[:, None] & inside[None, :], other=0.0).to(wide)
        to = to_column[:, None] + k[None, :]
        tl.store(numbers + to, tl.trans(value), mask=inside[:, None] & (k < candidates)[None, :])


@triton.jit(do_not_specialize=["count", "last", "rows", "stride"])
def hub_median_kernel(
    values,
    places,
    numbers,
    pointers,
    members,
    stride,
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
):
    """See :func:`graphact.kernels.reference.hop` with the median, for a list that is laid out and too long to hold."""
    tl.static_assert(lanes == 1 and not shared)
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    infinity: tl.constexpr = float("inf")
    node, base, alive, _ = rows_of_program(order, count, last, rows, nodes, 1, False, ordered, batched)
    begin, end, _, _ = list_of_row(pointers, node, alive, False, 1, False)
    degree = (end - begin).to(tl.int32)
    candidates = degree
    if closed:
        candidates = degree + 1
    amount = tl.max(candidates, 0)
    numbers += (tl.program_id(0).to(tl.int64) * columns + tl.program_id(1)) * stride
    slot = tl.arange(0, block)
    least = tl.full((block,), infinity, dtype=wide)
    most = -least
    unknown = tl.zeros((block,), dtype=tl.int32) + amount
    total = tl.zeros((block,), dtype=wide)
    squares = tl.zeros((block,), dtype=wide)
    for start in range(0, amount, block):
        k = start + slot
        v = tl.load(numbers + k, mask=k < amount, other=infinity)
        unknown = tl.where(v == v, unknown, tl.minimum(unknown, k))
        v = tl.where(v == v, v, infinity)
        least = tl.minimum(least, v)
        most = tl.maximum(most, tl.where(k < amount, v, -infinity))
        number = tl.where(k < amount, v, 0.0)
        total += number
        squares += number * number
    top = tl.full((1,), 1, dtype=unsigned) << (bits - 1)
    smaller = (candidates - 1) // 2
    low = ascending_key(tl.min(least, 0) + tl.zeros((1,), dtype=wide), signed, unsigned, top) - 1
    high = ascending_key(tl.max(most, 0) + tl.zeros((1,), dtype=wide), signed, unsigned, top)
    below = 0 * candidates
    upto = candidates
    source = below + GUESSED
    guess, reach = guess_of(tl.sum(total, 0), tl.sum(squares, 0), candidates, wide)
    active = is_within(low, high, below, upto, smaller)
    while tl.max(active.to(tl.int32), 0) > 0:
        first, second, third = pivots_inside(low, high, below, upto, smaller, source, guess, reach, wide, signed, top)
        a, b, c = number_of(first, wide, top), number_of(second, wide, top), number_of(third, wide, top)
        # sums of floating point are faster than those of integers; a slot counts too little for it to matter
        upto_a = tl.zeros((block,), dtype=tl.float32)
        upto_b = tl.zeros((block,), dtype=tl.float32)
        upto_c = tl.zeros((block,), dtype=tl.float32)
        for start in range(0, amount, block):
            k = start + slot
            v = tl.load(numbers + k, mask=k < amount, other=infinity)
            upto_a += (v <= a).to(tl.float32)
            upto_b += (v <= b).to(tl.float32)
            upto_c += (v <= c).to(tl.float32)
        both = tl.sum(upto_a.to(tl.int64) + (upto_b.to(tl.int64) << 32), 0)
        a_count, b_count, c_count = both.to(tl.int32), (both >> 32).to(tl.int32), tl.sum(upto_c.to(tl.int32), 0)
        low, high, below, upto, source = after_counts(
            low, high, below, upto, smaller, source, active, first, a_count, second, b_count, third, c_count
        )
        active = is_within(low, high, below, upto, smaller)
    sign, bound = end_of_bracket(low, high, below, smaller, wide, signed, top)
    best = tl.full((block,), float("nan"), dtype=wide)
    place = tl.zeros((block,), dtype=tl.int32) + amount
    for start in range(0, amount, block):
        k = start + slot
        beyond = tl.load(numbers + k, mask=k < amount, other=0.0) * sign
        ahead = (k < amount) & ~(beyond <= bound) & ~(beyond >= best)  # NaN, as bound and as best, stops nobody
        best = tl.where(ahead, beyond, best)
        place = tl.where(ahead, k, place)
    lowest = tl.reduce(best, 0, lower_number)
    place = tl.min(tl.where(best == lowest, place, amount), 0) + 0 * degree
    median = lowest * sign
    unknown = tl.min(tl.where(unknown < degree, unknown, amount), 0) + 0 * degree
    if closed:
        before_own = place_of_own(members, begin, end, node).to(tl.int32)
        itself = tl.load(numbers + degree)
        place = tl.where((itself == median) & (place >= before_own), degree, tl.minimum(place, degree))
        unknown = tl.where((itself != itself) & (unknown >= before_own), degree, unknown)
    place = tl.where(unknown < candidates, unknown, place)
    result = tl.load(numbers + place, mask=place < candidates, other=0.0)
    own = (base + node) * columns + tl.program_id(1)
    tl.store(values + own, result.to(values.dtype.element_ty), mask=alive)
    tl.store(places + own, place.to(places.dtype.element_ty), mask=alive)
