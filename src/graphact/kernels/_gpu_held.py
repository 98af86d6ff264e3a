"""The median of lists that are too long to sort but short enough to hold: read once, then counted as often as it takes.

A program holds some columns of one list in its registers. Its threads share the neighbours, so that a count is a sum
within each thread and over a few of them. Lists of more than 1,024 candidates are first laid out, column by column
(`_gpu_hub.py`, which also counts those that are too long to hold).
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
from graphact.kernels._gpu_walk import Tile, ceil_div, columns_of_program, padded_size, row_of_program

HELD = (128, 256, 512, 1024)  # candidates; a list takes the smallest of them that holds it
# the same for one column of lists that are laid out, and the warps that share it
LAID = {2048: 1, 8192: 8, 32768: 16}
BYTES, LEAST_BYTES = 8192, 16  # that a warp holds, and that are read of a neighbour
REGISTERS = 168  # of a thread: more of them would leave room for fewer threads
MOST_WARPS = 16  # that hold one list


def holding_tile(rows: int, columns: int, size: int, bytes_per_number: int) -> Tile:
    """As many columns of a row as a warp can hold; more warps where that is too few."""
    block = min(padded_size(columns), max(LEAST_BYTES, BYTES // size) // bytes_per_number)
    warps = max(1, size * block * bytes_per_number // BYTES)
    return Tile(size, block, warps, (rows, ceil_div(columns, block)))


def laid_warps(size: int, bytes_per_number: int) -> int:
    """The warps that hold one column of a list that is laid out."""
    return LAID[size] * max(1, bytes_per_number // 4)


def longest_laid(bytes_per_number: int) -> int:
    """The most candidates that a program can hold."""
    return max(size for size in LAID if laid_warps(size, bytes_per_number) <= MOST_WARPS)


def laid_tile(rows: int, columns: int, candidates: int, bytes_per_number: int) -> Tile:
    """A program for each column of each row."""
    size = next(size for size in LAID if candidates <= size)
    return Tile(size, 1, laid_warps(size, bytes_per_number), (rows, columns))


@triton.jit
def sums_of_three(a, b, c, d, e, f):
    """Three sums at a time."""
    return a + d, b + e, c + f


@triton.jit
def ends_and_sums(least, most, total, squares, least_too, most_too, total_too, squares_too):
    """The lowest and the highest number, which NaN is not, and two sums at a time."""
    return tl.minimum(least, least_too), tl.maximum(most, most_too), total + total_too, squares + squares_too


# columns: one a thread, so that no thread narrows the brackets of several
@triton.jit(do_not_specialize=["count", "last", "rows", "columns", "stride"])
def held_median_kernel(
    values,
    places,
    x,
    pointers,
    members,
    stride,
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
    laid: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.hop` with the median, for lists of at most ``lanes`` candidates.

    Where they are laid out, ``x`` is what they were laid to, and the columns of a row are ``stride`` apart.
    """
    tl.static_assert(not shared)
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    node, base = row_of_program(order, count, last, nodes, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin = tl.load(pointers + node).to(tl.int64)
    end = tl.load(pointers + node + 1).to(tl.int64)
    degree = (end - begin).to(tl.int32)
    own = (base + node) * columns + column
    candidates = degree
    if closed:
        candidates = degree + 1
    k = tl.arange(0, lanes)
    # what is left over of the lanes holds the first candidate once more: fewer masks
    if laid:
        beside = (tl.program_id(0).to(tl.int64) * columns + column) * stride
        at = tl.where(k < candidates, k, 0)[:, None] + beside[None, :]
        first_at, own_at = beside, beside + degree
    else:
        j = tl.load(members + begin + tl.where(k < degree, k, 0)).to(tl.int64)
        if closed:
            j = tl.where(k == degree, node, j)
        at = ((base + j) * columns)[:, None] + column[None, :]
        first_at, own_at = (base + tl.load(members + begin)) * columns + column, own
    v = tl.load(x + at, mask=inside[None, :], other=0.0).to(wide)
    again = tl.load(x + first_at, mask=inside, other=0.0).to(wide)
    surplus = lanes - candidates
    square = v * v
    if lanes * block < 64:
        # a number a thread (in tests alone): what is multiplied as it is added would differ between threads
        square = tl.where(v == v, square, 0.0)
    least, most, total, squares = tl.reduce((v, v, v, square), 0, ends_and_sums)
    known = tl.full((block,), lanes, dtype=tl.int32)
    if tl.max((total != total).to(tl.int32), 0) > 0:
        known = tl.sum((v == v).to(tl.int32), 0)
    guess, reach = guess_of(total - surplus * again, squares - surplus * again * again, candidates, wide)
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
        # sums of floating point are faster than those of integers, and exact
        upto_a, upto_b, upto_c = tl.reduce(
            (
                (v <= a[None, :]).to(tl.float32),
                (v <= b[None, :]).to(tl.float32),
                (v <= c[None, :]).to(tl.float32),
            ),
            0,
            sums_of_three,
        )
        upto_a = upto_a.to(tl.int32) - tl.where(again <= a, surplus, 0)
        upto_b = upto_b.to(tl.int32) - tl.where(again <= b, surplus, 0)
        upto_c = upto_c.to(tl.int32) - tl.where(again <= c, surplus, 0)
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
        itself = tl.load(x + own_at, mask=inside, other=0.0).to(wide)
        place = tl.where((itself == median) & (place >= before), degree, place)
    unknown = known < lanes
    if tl.max(unknown.to(tl.int32), 0) > 0:
        nan = tl.min(tl.where((v != v) & (k < degree)[:, None], k[:, None], lanes), 0)
        nan = tl.where((itself != itself) & (nan >= before), degree, nan)
        place = tl.where(unknown, nan, place)
    if laid:
        result = tl.load(x + beside + place, mask=inside, other=0.0)
    else:
        chosen = tl.load(members + begin + place, mask=inside & (place < degree), other=0).to(tl.int64)
        if closed:
            chosen = tl.where(place < degree, chosen, node)
        result = tl.load(x + (base + chosen) * columns + column, mask=inside, other=0.0)
    tl.store(values + own, result.to(values.dtype.element_ty), mask=inside)
    tl.store(places + own, place.to(places.dtype.element_ty), mask=inside)
