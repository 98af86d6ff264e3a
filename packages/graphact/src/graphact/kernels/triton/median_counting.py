"""Triton kernels for the median of lists that are too long to sort: an interval around it, narrower with every count.

Numbers are compared as keys, unsigned integers in the same order. The median m of a list lies in ``low < m <= high``;
of its numbers, ``below`` are at most ``low`` and ``upto`` at most ``high``. A step counts the numbers up to three
pivots inside the interval. They are put around a first guess, then where the ranks let expect the median; after a step
that told little, they halve the keys, so that no list takes long. The search may end as soon as the median is the first
or the last number inside the interval, which one more pass finds.

A program has some columns of one list in its registers. Its threads share the neighbours, so that a count is a sum
within each thread and over a few of them. Lists of more than 1,024 candidates are first tiled: their numbers are
copied side by side, column by column. A bisection reads a list many times; following the list of a hub with a hundred
thousand neighbours each time would keep one multiprocessor waiting for memory, while side by side, many numbers come at
a time, and each column to another program. Tiled lists of up to 32,768 candidates (8,192 in float64) fit in registers,
longer ones are read again for every count.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.triton.launch import Tile, ceil_div, padded_size
from graphact.kernels.triton.walk import columns_of_program, list_of_row, row_of_program, rows_of_program, slot_of_own

BY_RANK, HALVING, GUESSED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # where the next pivots come from
IN_REGISTER = (128, 256, 512, 1024)  # candidates; a list takes the smallest of them that holds it
# the same for one column of lists that are tiled, and the warps that share it
TILED = {2048: 1, 8192: 8, 32768: 16}
BYTES, MIN_BYTES = 8192, 16  # that a warp holds, and that are read of a neighbour
REGISTERS = 168  # of a thread: more of them would leave room for fewer threads
MAX_WARPS = 16  # that hold one list
POSITIONS = 32  # of a list that a program copies
COUNTED, WARPS = 8192, 32  # numbers of a list that a program counts at a time, and its warps


def in_register_bytes(x: Tensor) -> int:
    """Of a number of a signal: half precision is computed in float32."""
    return max(4, x.element_size())


def in_register_tile(rows: int, columns: int, size: int, bytes_per_number: int) -> Tile:
    """As many columns of a row as a warp can hold; more warps where that is too few."""
    block = min(padded_size(columns), max(MIN_BYTES, BYTES // size) // bytes_per_number)
    warps = max(1, size * block * bytes_per_number // BYTES)
    return Tile(size, block, warps, (rows, ceil_div(columns, block)))


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


@triton.jit
def sums_of_three(a, b, c, d, e, f):
    """Three sums at a time."""
    return a + d, b + e, c + f


@triton.jit
def ends_and_sums(min_a, max_a, total_a, squares_a, min_b, max_b, total_b, squares_b):
    """Combine minimum and maximum, ignoring NaN, and two sums."""
    return tl.minimum(min_a, min_b), tl.maximum(max_a, max_b), total_a + total_b, squares_a + squares_b


# columns: one a thread, so that no thread narrows the intervals of several
@triton.jit(do_not_specialize=["count", "last", "rows", "columns", "stride"])
def in_register_median_kernel(
    values, selected_slot, x, rowptr, col, stride, order, count, last, rows, nodes, columns, lanes: tl.constexpr,
    block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr, batched: tl.constexpr,
    closed: tl.constexpr, tiled: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.fused_neighbor_pass` of lists with at most ``lanes`` candidates.

    Where they are tiled, ``x`` is the tiled copy, and the columns of a row are ``stride`` apart.
    """
    tl.static_assert(not shared)
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    node, base = row_of_program(order, count, last, nodes, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin = tl.load(rowptr + node).to(tl.int64)
    end = tl.load(rowptr + node + 1).to(tl.int64)
    degree = (end - begin).to(tl.int32)
    own = (base + node) * columns + column
    num_candidates = degree
    if closed:
        num_candidates = degree + 1
    k = tl.arange(0, lanes)
    # what is left over of the lanes holds the first candidate once more: fewer masks
    if tiled:
        beside = (tl.program_id(0).to(tl.int64) * columns + column) * stride
        at = tl.where(k < num_candidates, k, 0)[:, None] + beside[None, :]
        first_at, own_at = beside, beside + degree
    else:
        j = tl.load(col + begin + tl.where(k < degree, k, 0)).to(tl.int64)
        if closed:
            j = tl.where(k == degree, node, j)
        at = ((base + j) * columns)[:, None] + column[None, :]
        first_at, own_at = (base + tl.load(col + begin)) * columns + column, own
    v = tl.load(x + at, mask=inside[None, :], other=0.0).to(wide)
    again = tl.load(x + first_at, mask=inside, other=0.0).to(wide)
    surplus = lanes - num_candidates
    square = v * v
    if lanes * block < 64:
        # a number a thread (in tests alone): what is multiplied as it is added would differ between threads
        square = tl.where(v == v, square, 0.0)
    least, most, total, squares = tl.reduce((v, v, v, square), 0, ends_and_sums)
    known = tl.full((block,), lanes, dtype=tl.int32)
    if tl.max((total != total).to(tl.int32), 0) > 0:
        known = tl.sum((v == v).to(tl.int32), 0)
    guess, reach = guess_of(total - surplus * again, squares - surplus * again * again, num_candidates, wide)
    top = tl.full((1,), 1, dtype=unsigned) << (bits - 1)
    smaller = (num_candidates - 1) // 2 + tl.zeros((block,), dtype=tl.int32)
    low = ascending_key(least, signed, unsigned, top) - 1
    high = ascending_key(most, signed, unsigned, top)
    below = tl.zeros((block,), dtype=tl.int32)
    upto = tl.where(known < lanes, 0, num_candidates)  # NaN, which threads may see differently, ends the search
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
    sign, bound = end_of_interval(low, high, below, smaller, wide, signed, top)
    # NaN as a bound excludes no candidate
    beyond = tl.where(v * sign[None, :] <= bound[None, :], float("inf"), v * sign[None, :])
    median = tl.reduce(beyond, 0, lower_number) * sign
    slot = tl.minimum(tl.min(tl.where(v == median[None, :], k[:, None], lanes), 0), degree)
    before = degree
    itself = tl.zeros((block,), dtype=wide)
    if closed:
        alone = tl.zeros((1,), dtype=tl.int64)
        before = slot_of_own(col, begin + alone, end + alone, node)
        itself = tl.load(x + own_at, mask=inside, other=0.0).to(wide)
        slot = tl.where((itself == median) & (slot >= before), degree, slot)
    unknown = known < lanes
    if tl.max(unknown.to(tl.int32), 0) > 0:
        nan = tl.min(tl.where((v != v) & (k < degree)[:, None], k[:, None], lanes), 0)
        nan = tl.where((itself != itself) & (nan >= before), degree, nan)
        slot = tl.where(unknown, nan, slot)
    if tiled:
        result = tl.load(x + beside + slot, mask=inside, other=0.0)
    else:
        selected = tl.load(col + begin + slot, mask=inside & (slot < degree), other=0).to(tl.int64)
        if closed:
            selected = tl.where(slot < degree, selected, node)
        result = tl.load(x + (base + selected) * columns + column, mask=inside, other=0.0)
    tl.store(values + own, result.to(values.dtype.element_ty), mask=inside)
    tl.store(selected_slot + own, slot.to(selected_slot.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["count", "last", "rows", "stride", "each"])
def tile_lists_kernel(
    numbers, x, rowptr, col, stride, each, order, count, last, rows, nodes, columns, lanes: tl.constexpr,
    block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr, batched: tl.constexpr,
    closed: tl.constexpr, piece: tl.constexpr
):  # fmt: skip
    """Row r, column c, candidate k go to ``numbers[r, c, k]``; in a closed neighbourhood the node itself comes last."""
    tl.static_assert(lanes == piece and not shared)
    tl.static_assert(numbers.dtype.element_ty == wide)
    node, base, alive, _ = rows_of_program(order, count, last, rows, nodes, 1, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, _, _ = list_of_row(rowptr, node, alive, False, 1, False)
    degree = (end - begin).to(tl.int32)
    num_candidates = degree
    if closed:
        num_candidates = degree + 1
    to_column = (tl.program_id(0).to(tl.int64) * columns + column) * stride
    for tile in range(each):
        k = (tl.program_id(2) * each + tile) * piece + tl.arange(0, piece)
        j = tl.load(col + begin + k, mask=k < degree, other=0).to(tl.int64)
        if closed:
            j = tl.where(k == degree, node, j)
        at = ((base + j) * columns)[:, None] + column[None, :]
        value = tl.load(x + at, mask=(k < num_candidates)[:, None] & inside[None, :], other=0.0).to(wide)
        to = to_column[:, None] + k[None, :]
        tl.store(numbers + to, tl.trans(value), mask=inside[:, None] & (k < num_candidates)[None, :])


@triton.jit(do_not_specialize=["count", "last", "rows", "stride"])
def tiled_median_kernel(
    values, selected_slot, numbers, rowptr, col, stride, order, count, last, rows, nodes, columns, lanes: tl.constexpr,
    block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr, batched: tl.constexpr,
    closed: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.fused_neighbor_pass` of a tiled list that registers do not hold."""
    tl.static_assert(lanes == 1 and not shared)
    bits: tl.constexpr = wide.primitive_bitwidth
    signed: tl.constexpr = tl.int64 if bits == 64 else tl.int32
    unsigned: tl.constexpr = tl.uint64 if bits == 64 else tl.uint32
    infinity: tl.constexpr = float("inf")
    node, base, alive, _ = rows_of_program(order, count, last, rows, nodes, 1, False, ordered, batched)
    begin, end, _, _ = list_of_row(rowptr, node, alive, False, 1, False)
    degree = (end - begin).to(tl.int32)
    num_candidates = degree
    if closed:
        num_candidates = degree + 1
    amount = tl.max(num_candidates, 0)
    numbers += (tl.program_id(0).to(tl.int64) * columns + tl.program_id(1)) * stride
    offset = tl.arange(0, block)
    least = tl.full((block,), infinity, dtype=wide)
    most = -least
    unknown = tl.zeros((block,), dtype=tl.int32) + amount
    total = tl.zeros((block,), dtype=wide)
    squares = tl.zeros((block,), dtype=wide)
    for start in range(0, amount, block):
        k = start + offset
        v = tl.load(numbers + k, mask=k < amount, other=infinity)
        unknown = tl.where(v == v, unknown, tl.minimum(unknown, k))
        v = tl.where(v == v, v, infinity)
        least = tl.minimum(least, v)
        most = tl.maximum(most, tl.where(k < amount, v, -infinity))
        number = tl.where(k < amount, v, 0.0)
        total += number
        squares += number * number
    top = tl.full((1,), 1, dtype=unsigned) << (bits - 1)
    smaller = (num_candidates - 1) // 2
    low = ascending_key(tl.min(least, 0) + tl.zeros((1,), dtype=wide), signed, unsigned, top) - 1
    high = ascending_key(tl.max(most, 0) + tl.zeros((1,), dtype=wide), signed, unsigned, top)
    below = 0 * num_candidates
    upto = num_candidates
    source = below + GUESSED
    guess, reach = guess_of(tl.sum(total, 0), tl.sum(squares, 0), num_candidates, wide)
    active = is_within(low, high, below, upto, smaller)
    while tl.max(active.to(tl.int32), 0) > 0:
        first, second, third = pivots_inside(low, high, below, upto, smaller, source, guess, reach, wide, signed, top)
        a, b, c = number_of(first, wide, top), number_of(second, wide, top), number_of(third, wide, top)
        # sums of floating point are faster than those of integers; a offset counts too little for it to matter
        upto_a = tl.zeros((block,), dtype=tl.float32)
        upto_b = tl.zeros((block,), dtype=tl.float32)
        upto_c = tl.zeros((block,), dtype=tl.float32)
        for start in range(0, amount, block):
            k = start + offset
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
    sign, bound = end_of_interval(low, high, below, smaller, wide, signed, top)
    best = tl.full((block,), float("nan"), dtype=wide)
    slot = tl.zeros((block,), dtype=tl.int32) + amount
    for start in range(0, amount, block):
        k = start + offset
        beyond = tl.load(numbers + k, mask=k < amount, other=0.0) * sign
        ahead = (k < amount) & ~(beyond <= bound) & ~(beyond >= best)  # NaN as bound or best excludes none
        best = tl.where(ahead, beyond, best)
        slot = tl.where(ahead, k, slot)
    lowest = tl.reduce(best, 0, lower_number)
    slot = tl.min(tl.where(best == lowest, slot, amount), 0) + 0 * degree
    median = lowest * sign
    unknown = tl.min(tl.where(unknown < degree, unknown, amount), 0) + 0 * degree
    if closed:
        before_own = slot_of_own(col, begin, end, node).to(tl.int32)
        itself = tl.load(numbers + degree)
        slot = tl.where((itself == median) & (slot >= before_own), degree, tl.minimum(slot, degree))
        unknown = tl.where((itself != itself) & (unknown >= before_own), degree, unknown)
    slot = tl.where(unknown < num_candidates, unknown, slot)
    result = tl.load(numbers + slot, mask=slot < num_candidates, other=0.0)
    own = (base + node) * columns + tl.program_id(1)
    tl.store(values + own, result.to(values.dtype.element_ty), mask=alive)
    tl.store(selected_slot + own, slot.to(selected_slot.dtype.element_ty), mask=alive)
