"""Compiled lower medians of neighbourhoods. See `_cpu_walk.py` for how they go through a signal.

A short list goes through a network of comparisons (see `_cpu_networks.py`); for a long one, the bits of the median are
found one by one, each by counting the values below a bound. Neither depends on the values, so both run on all columns
of a block at once, and the second takes time in proportion to the length of the list.
"""

from functools import partial

import numpy as np

from graphact.kernels._cpu_lanes import ALL, fill, load_beside, load_half, select, some, store
from graphact.kernels._cpu_networks import BYTES, HIGH, IN_REGISTERS, LONGEST, LOW, middle
from graphact.kernels._cpu_run import Array, Size, helper, kernel
from graphact.kernels._cpu_walk import look_ahead, rank, row_of, whole_blocks

ZERO, ONE, TWO = (np.uint64(number) for number in range(3))
COMPILED, NETWORKS = np.uint64(IN_REGISTERS), np.uint64(LONGEST)
WIDTH = np.uint64(BYTES)


@partial(kernel, allocates=True)
def median(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    ahead: Size,
    _: Size,
    shifting: bool,
    weight: Array,
    networks: Array,
    starts: Array,
    longest: Size,
    closed: bool,
    named: bool,
    x: Array,
    bits: Array,
    labels: Array,
    out: Array,
    chosen: Array,
    shifted: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """The lower median, who offers it and, if it is wanted, the shift.

    Node j offers ``x[j]`` under its own name, or under its place in the list, or under the name ``labels[j]`` if there
    are labels; the lowest name among ties is chosen, the first NaN if there are any. ``bits`` is of the integers that
    are as wide as the numbers of ``x``.
    """
    lanes = WIDTH // np.uint64(x.itemsize)
    nobody = np.int32(np.uint64(pointers.size) - ONE if named else ZERO)
    rows, names = np.empty(longest, np.uint64), np.empty(longest, np.int32)
    copy, copied = np.empty(longest * lanes, x.dtype), np.empty(longest, np.uint64)
    for k in range(longest):
        copied[k] = k * lanes
    keys = np.empty(longest * lanes if longest > NETWORKS else ZERO, bits.dtype)
    winner = np.empty(lanes, x.dtype)
    copy_bits, winner_bits = copy.view(bits.dtype), winner.view(bits.dtype)
    for task in range(first, last):
        base, i, left, right = row_of(task, pointers, columns, number, width)
        edge, stop, o = pointers[i], pointers[i + ONE], (base + i) * columns
        if ahead:
            look_ahead(x, members, edge, stop, ahead, base, columns, left, right)
        length = ZERO
        own = rank(members, edge, stop, i) if closed else stop + ONE
        for e in range(edge, stop + ONE):
            if e == own:
                rows[length], names[length] = o, np.int32(i if named else stop - edge)
                length += ONE
            if e < stop:
                rows[length], names[length] = (base + members[e]) * columns, np.int32(members[e] if named else e - edge)
                length += ONE
        cut = whole_blocks(left, right, lanes)
        for low in range(left, cut, lanes):
            if ZERO < length <= COMPILED:
                middle(length, x, low, rows, winner)
            elif length > COMPILED:
                _copy(length, x, low, rows, copy, copied, ALL)
                _middle(length, networks, starts, copy, copy_bits, keys, winner, winner_bits, lanes)
            _choose(length, x, low, rows, names, nobody, labels, winner, out, chosen, o, ALL)
            if shifting:
                _shift(x, members, weight, shifted, edge, stop, base, columns, o, low, ALL)
        if cut < right:
            live = right - cut
            _copy(length, x, cut, rows, copy, copied, live)
            if ZERO < length <= COMPILED:
                middle(length, copy, ZERO, copied, winner)
            elif length > COMPILED:
                _middle(length, networks, starts, copy, copy_bits, keys, winner, winner_bits, lanes)
            _choose(length, x, cut, rows, names, nobody, labels, winner, out, chosen, o, live)
            if shifting:
                _shift(x, members, weight, shifted, edge, stop, base, columns, o, cut, live)


@helper
def _copy(length: Size, x: Array, low: Size, rows: Array, copy: Array, copied: Array, live: Size | None) -> None:
    """The columns of a block, side by side."""
    for k in range(length):
        store(copy, copied[k], ALL, load_half(x, rows[k] + low, live))


@helper
def _middle(
    length: Size,
    networks: Array,
    starts: Array,
    copy: Array,
    copy_bits: Array,
    keys: Array,
    winner: Array,
    winner_bits: Array,
    lanes: Size,
) -> None:
    """The median of a longer list by value; without meaning if a value is NaN."""
    if length > NETWORKS:
        _bit_by_bit(length, copy_bits, keys, winner_bits, lanes)
        return
    for step in range(starts[length], starts[length + ONE]):
        a, b, keep = networks[step, 0] * lanes, networks[step, 1] * lanes, networks[step, 2]
        left, right = load_half(copy, a, ALL), load_half(copy, b, ALL)
        if keep != HIGH:
            store(copy, a, ALL, select(right < left, right, left))
        if keep != LOW:
            store(copy, b, ALL, select(right > left, right, left))
    store(winner, ZERO, ALL, load_half(copy, (length - ONE) // TWO * lanes, ALL))


@helper
def _bit_by_bit(length: Size, words: Array, keys: Array, winner: Array, lanes: Size) -> None:
    """The order of keys is that of the numbers; bounds are built from the lowest key, the top bit, upwards."""
    width = words.itemsize * 8
    for k in range(length):
        word = load_half(words, k * lanes, ALL)
        store(
            keys, k * lanes, ALL, _key(word, words.dtype.type(width - 1), words.dtype.type(np.iinfo(words.dtype).max))
        )
    one, none = fill(words.dtype.type(1), word), fill(words.dtype.type(0), word)
    rank_of_median = fill(words.dtype.type((length - ONE) // TWO), word)
    found = fill(words.dtype.type(np.iinfo(words.dtype).min), word)
    for shift in range(width):
        bound = found ^ fill(words.dtype.type(1 << (width - 1 - shift)), word)
        below = none
        for k in range(length):
            below = below + select(load_half(keys, k * lanes, ALL) < bound, one, none)
        found = select(below <= rank_of_median, bound, found)
    store(winner, ZERO, ALL, _key(found, words.dtype.type(width - 1), words.dtype.type(np.iinfo(words.dtype).max)))


@helper
def _key(word: Array, top_bit: Size, all_but_top: Size) -> Array:
    """From a number read as an integer to a key, and back."""
    return word ^ ((word >> fill(top_bit, word)) & fill(all_but_top, word))


@helper
def _choose(
    length: Size,
    x: Array,
    low: Size,
    rows: Array,
    names: Array,
    nobody: Size,
    labels: Array,
    winner: Array,
    out: Array,
    chosen: Array,
    o: Size,
    live: Size | None,
) -> None:
    """Who offers the median, or NaN."""
    middle = load_half(winner, ZERO, ALL)
    value = fill(x.dtype.type(0), middle)
    broken = value
    for k in range(length):
        broken = broken + load_half(x, rows[k] + low, live)
    if some(broken != broken):  # so it is if a value is NaN
        for k in range(length):
            offer = load_half(x, rows[k] + low, live)
            middle = select(offer != offer, offer, middle)
    name = fill(nobody, middle)
    for back in range(length):
        k = length - ONE - back
        offer = load_half(x, rows[k] + low, live)
        wins = (offer == middle) | (offer != offer)
        called = fill(names[k], middle)
        if labels.size:
            called = load_beside(labels, rows[k] + low, live, middle)
            wins = wins & (called < name)
        value = select(wins, offer, value)
        name = select(wins, called, name)
    store(out, o + low, live, value)
    store(chosen, o + low, live, name)


@helper
def _shift(
    x: Array,
    members: Array,
    weight: Array,
    shifted: Array,
    edge: Size,
    stop: Size,
    base: Size,
    columns: Size,
    o: Size,
    low: Size,
    live: Size | None,
) -> None:
    total = fill(x.dtype.type(0), load_half(x, o + low, live))
    for e in range(edge, stop):
        total = total + fill(weight[e], total) * load_half(x, (base + members[e]) * columns + low, live)
    store(shifted, o + low, live, total)
