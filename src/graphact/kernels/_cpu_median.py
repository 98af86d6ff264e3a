"""Compiled lower medians of neighbourhoods, for a block of columns at a time. See `_cpu_sums.py` for the layout.

A short list goes through a network of comparisons that leaves its median in place; for a long one, the bits of the
median are found one by one, each by counting the values below a bound. Neither depends on the values, so both run on
all columns of the block at once, and the second takes time in proportion to the length of the list.
"""

from functools import cache
from typing import Any

import numpy as np

from graphact.kernels._cpu_run import Array, Size, kernel

LONGEST = 64  # lists up to this length go through a network
LANES = 128  # columns in a block, at most
ZERO, ONE, TWO, THREE, FOUR = (np.uint64(number) for number in range(5))
LOW, HIGH, BOTH = (np.uint64(number) for number in range(3))


@kernel
def median(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    networks: Array,
    starts: Array,
    lanes: Size,
    closed: bool,
    x: Array,
    bits: Array,
    labels: Array,
    out: Array,
    chosen: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """The lower median; node j offers ``x[j]`` under its own name, or under the name ``labels[j]`` if there are labels.

    ``bits`` is ``x`` read as integers.
    """
    nodes = np.uint64(pointers.size) - ONE
    longest = np.uint64(starts.size) - TWO
    capacity = longest
    values = np.empty(longest * lanes, x.dtype)
    keys = np.empty(longest * lanes, bits.dtype)
    below = np.empty(lanes, bits.dtype)
    bound = np.empty(lanes, bits.dtype)
    winner = np.empty(lanes, x.dtype)
    winner_bits = winner.view(bits.dtype)
    poison = np.empty(lanes, x.dtype)
    top_bit = bits.dtype.type(bits.itemsize * 8 - 1)
    all_but_top = bits.dtype.type(np.iinfo(bits.dtype).max)
    one = bits.dtype.type(1)
    for plane in range(first // nodes, (last + nodes - ONE) // nodes):
        start = plane * nodes
        base = plane // number * nodes
        left = plane % number * width
        right = min(left + width, columns)
        for i in range(max(first, start) - start, min(last - start, nodes)):
            edge, stop = pointers[i], pointers[i + ONE]
            length = stop - edge + (ONE if closed else ZERO)
            if length > capacity:
                keys = np.empty(length * lanes, bits.dtype)
                capacity = length
            for low in range(left, right, lanes):
                size = min(lanes, right - low)
                o = (base + i) * columns + low
                for c in range(size):
                    out[o + c] = 0
                    chosen[o + c] = np.int32(nodes)
                if length == ZERO:
                    continue
                for c in range(lanes):
                    poison[c] = 0
                if length <= longest:
                    for k in range(length):
                        a = (base + (members[edge + k] if edge + k < stop else i)) * columns + low
                        row = k * lanes
                        for c in range(size):
                            value = x[a + c]
                            values[row + c] = value
                            poison[c] = poison[c] if value == value else value
                    for step in range(starts[length], starts[length + ONE]):
                        a, b, keep = networks[step, 0] * lanes, networks[step, 1] * lanes, networks[step, 2]
                        if keep == BOTH:
                            for c in range(lanes):
                                u, v = values[a + c], values[b + c]
                                values[a + c] = v if v < u else u
                                values[b + c] = u if v < u else v
                        elif keep == LOW:
                            for c in range(lanes):
                                u, v = values[a + c], values[b + c]
                                values[a + c] = v if v < u else u
                        else:
                            for c in range(lanes):
                                u, v = values[a + c], values[b + c]
                                values[b + c] = u if v < u else v
                    middle = (length - ONE) // TWO * lanes
                    for c in range(lanes):
                        winner[c] = values[middle + c] + poison[c]
                else:
                    for k in range(length):
                        a = (base + (members[edge + k] if edge + k < stop else i)) * columns + low
                        row = k * lanes
                        for c in range(size):
                            value, word = x[a + c], bits[a + c]
                            keys[row + c] = word ^ ((word >> top_bit) & all_but_top)
                            poison[c] = poison[c] if value == value else value
                    # order of keys = order of numbers; bounds are built from the lowest key, the top bit, upwards
                    middle_rank = bits.dtype.type((length - ONE) // TWO)
                    for c in range(lanes):
                        winner_bits[c] = one << top_bit
                    for shift in range(bits.itemsize * 8):
                        bit = one << bits.dtype.type(bits.itemsize * 8 - 1 - shift)
                        for c in range(lanes):
                            bound[c] = winner_bits[c] ^ bit
                            below[c] = 0
                        for k in range(ZERO, length - length % FOUR, FOUR):
                            row = k * lanes
                            for c in range(lanes):
                                t = bound[c]
                                two = bits.dtype.type(keys[row + c] < t) + bits.dtype.type(keys[row + lanes + c] < t)
                                four = bits.dtype.type(keys[row + TWO * lanes + c] < t) + bits.dtype.type(
                                    keys[row + THREE * lanes + c] < t
                                )
                                below[c] += two + four
                        for k in range(length - length % FOUR, length):
                            row = k * lanes
                            for c in range(lanes):
                                below[c] += bits.dtype.type(keys[row + c] < bound[c])
                        for c in range(lanes):
                            winner_bits[c] = bound[c] if below[c] <= middle_rank else winner_bits[c]
                    for c in range(lanes):
                        word = winner_bits[c]
                        winner_bits[c] = word ^ ((word >> top_bit) & all_but_top)
                    for c in range(lanes):
                        winner[c] += poison[c]
                for k in range(length):
                    j = members[edge + k] if edge + k < stop else i
                    a = (base + j) * columns + low
                    for c in range(size):
                        value = x[a + c]
                        name = labels[a + c] if labels.size else np.int32(j)
                        label = chosen[o + c]
                        wins = ((value == winner[c]) | (value != value)) & (name < label)
                        out[o + c] = value if wins else out[o + c]
                        chosen[o + c] = name if wins else label


@cache
def networks() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For every length, the comparisons of Batcher's odd-even merge sort that the lower median depends on.

    Each is (offset, offset, which of the two results is needed); those of length d are in rows ``starts[d]`` to
    ``starts[d + 1]``.
    """
    rows: list[tuple[int, int, int]] = []
    starts = [0]
    for length in range(LONGEST + 1):
        needed, kept = {(length - 1) // 2}, []
        for a, b in reversed(_sorting_network(length)):
            if a in needed or b in needed:
                keep = BOTH if a in needed and b in needed else LOW if a in needed else HIGH
                kept.append((a, b, int(keep)))
                needed |= {a, b}
        rows += reversed(kept)
        starts.append(len(rows))
    return np.array(rows, dtype=np.uint64), np.array(starts, dtype=np.uint64)


def _sorting_network(length: int) -> list[tuple[int, int]]:
    pairs = []
    merged = 1
    while merged < length:
        apart = merged
        while apart >= 1:
            for start in range(apart % merged, length - apart, 2 * apart):
                for a in range(start, min(start + apart, length - apart)):
                    if a // (2 * merged) == (a + apart) // (2 * merged):
                        pairs.append((a, a + apart))
            apart //= 2
        merged *= 2
    return pairs
