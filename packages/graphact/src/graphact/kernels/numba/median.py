"""Compiled lower medians of neighbourhoods. See `lanes.py` for how they go through a signal.

A short list goes through a network of comparisons. They do not depend on the values, so each is one instruction for all
lanes; up to a length of `IN_REGISTERS` the whole network is compiled as one piece, whose values never leave the
registers. For a long list, the bits of the median are found one by one, each by counting the values below a bound, in
time proportional to the length of the list.
"""

from functools import cache, partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from graphact.graph import Neighborhoods
from graphact.kernels.graph_tensors import Lists
from graphact.kernels.numba.lanes import (
    ALL,
    blend,
    fill,
    in_compiled_code,
    load_half,
    look_ahead,
    rank,
    row_of,
    some,
    store,
    weighted_sum,
)
from graphact.kernels.numba.launch import Array, Layout, Size, helper, kernel

IN_REGISTERS, LONGEST = 32, 64  # lists up to these lengths go through a network: in registers, in memory
BYTES = 64  # of a signal side by side
LOW, HIGH, BOTH = range(3)
ZERO, ONE, TWO = (np.uint64(number) for number in range(3))
COMPILED, NETWORKS = np.uint64(IN_REGISTERS), np.uint64(LONGEST)
WIDTH = np.uint64(BYTES)


def run_median(
    layout: Layout, lists: Lists, shifting: bool, weights: Array, closed: bool, by_node: bool, values: Array,
    out: Array, selected: Array, shifted: Array | None
) -> None:  # fmt: skip
    """The medians of all nodes; see :func:`median_kernel`."""
    longest = lists.groups[-1][0] if isinstance(lists, Neighborhoods) else int(lists.sizes[-1, 0])
    shifted = layout.nothing[1] if shifted is None else shifted
    options = (*median_options(values.dtype, longest), closed, by_node)
    layout.run(median_kernel, lists, shifting, weights, *options, values, out, selected, shifted)


def median_options(dtype: Any, longest: int) -> tuple[Any, ...]:
    """Return the constant arguments of :func:`median_kernel`: networks, the longest list, integers of equal width."""
    return *tables(), np.uint64(longest + 1), np.empty(0, np.int32 if dtype.itemsize == 4 else np.int64)


@in_compiled_code
def network_median(_: Any, length: Size, x: Array, at: Size, rows: Array, out: Array) -> Any:
    """Put the lower median of ``x[rows[0] + at], ..., x[rows[length - 1] + at]`` into ``out``, for 64 bytes of columns.

    The length is 1..IN_REGISTERS; no value is NaN, or else the result has no meaning.
    """

    def emit(context: Any, builder: Any, _: Any, values: Any) -> Any:
        data, offsets, result = (
            context.make_array(array)(context, builder, value).data
            for array, value in ((x, values[1]), (rows, values[3]), (out, values[4]))
        )
        data = builder.gep(data, [values[2]])
        end = builder.append_basic_block("end")
        choice = builder.switch(values[0], end)
        for number in range(1, IN_REGISTERS + 1):
            with builder.goto_block(builder.append_basic_block(f"of_{number}")):
                builder.call(_network(builder.module, x.dtype, number), [data, offsets, result])
                choice.add_case(values[0].type(number), builder.block)
                builder.branch(end)
        builder.position_at_end(end)
        return context.get_dummy_value()

    return types.void(length, x, at, rows, out), emit


def _network(module: Any, number: Any, length: int) -> Any:
    """The compiled network for lists of one length."""
    one = ir.FloatType() if number.bitwidth == 32 else ir.DoubleType()
    size = number.bitwidth // 8
    lanes = ir.VectorType(one, BYTES // size)
    signature = ir.FunctionType(ir.VoidType(), [one.as_pointer(), ir.IntType(64).as_pointer(), one.as_pointer()])
    name = f"middle_of_{length}_{number}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, signature, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    x, rows, out = function.args
    values = []
    for k in range(length):
        row = builder.load(builder.gep(rows, [ir.IntType(64)(k)]))
        values.append(builder.load(builder.bitcast(builder.gep(x, [row]), lanes.as_pointer()), align=size))
    for a, b, keep in median_network(length):
        left, right = values[a], values[b]
        if keep != HIGH:
            values[a] = builder.select(builder.fcmp_ordered("<", right, left), right, left)
        if keep != LOW:
            values[b] = builder.select(builder.fcmp_ordered(">", right, left), right, left)
    builder.store(values[(length - 1) // 2], builder.bitcast(out, lanes.as_pointer()), align=size)
    builder.ret_void()
    return function


@cache
def tables() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All networks; the comparisons for lists of length d are in rows ``starts[d]`` to ``starts[d + 1]``."""
    networks = [median_network(length) for length in range(LONGEST + 1)]
    starts = np.cumsum([0, *map(len, networks)])
    return np.array([row for network in networks for row in network], dtype=np.uint64), starts.astype(np.uint64)


def median_network(length: int) -> list[tuple[int, int, int]]:
    """The comparisons of Batcher's odd-even merge sort that the lower median depends on.

    Each is (offset, offset, which of the two results is needed).
    """
    needed, kept = {(length - 1) // 2}, []
    for a, b in reversed(_sorting_network(length)):
        if a in needed or b in needed:
            kept.append((a, b, BOTH if a in needed and b in needed else LOW if a in needed else HIGH))
            needed |= {a, b}
    return kept[::-1]


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


@partial(kernel, allocates=True)
def median_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, _: Size, shifting: bool, weight: Array,
    networks: Array, starts: Array, longest: Size, bits: Array, closed: bool, by_node: bool, x: Array, out: Array,
    selected: Array, shifted: Array, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """The lower median, where it comes from and, if it is wanted, the shift.

    A selected neighbour is given by its slot in the list or, ``by_node``, by its index. The lowest among ties is
    selected, the first NaN if there are any. ``bits`` is of the integers that are as wide as the numbers of ``x``.
    """
    lanes = WIDTH // np.uint64(x.itemsize)
    no_node = np.int32(np.uint64(rowptr.size) - ONE if by_node else ZERO)
    rows, index = np.empty(longest, np.uint64), np.empty(longest, np.int32)
    copy, copied = np.empty(longest * lanes, x.dtype), np.empty(longest, np.uint64)
    for k in range(longest):
        copied[k] = k * lanes
    keys = np.empty(longest * lanes if longest > NETWORKS else ZERO, bits.dtype)
    winner = np.empty(lanes, x.dtype)
    copy_bits, winner_bits = copy.view(bits.dtype), winner.view(bits.dtype)
    for task in range(first, last):
        base, i, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
        length = ZERO
        own = rank(col, edge, stop, i) if closed else stop + ONE
        for e in range(edge, stop + ONE):
            if e == own:
                rows[length], index[length] = o, np.int32(i if by_node else stop - edge)
                length += ONE
            if e < stop:
                rows[length], index[length] = (base + col[e]) * columns, np.int32(col[e] if by_node else e - edge)
                length += ONE
        cut = left + (right - left) // lanes * lanes
        for low in range(left, cut, lanes):
            if ZERO < length <= COMPILED:
                network_median(length, x, low, rows, winner)
            elif length > COMPILED:
                _copy_block(length, x, low, rows, copy, copied, ALL)
                _longer_median(length, networks, starts, copy, copy_bits, keys, winner, winner_bits, lanes)
            _select_block(length, x, low, rows, index, no_node, winner, out, selected, o, ALL)
            if shifting:
                total = weighted_sum(low, ALL, load_half(x, o + low, ALL), col, weight, x, edge, stop, base, columns)
                store(shifted, o + low, ALL, total)
        if cut < right:
            live = right - cut
            _copy_block(length, x, cut, rows, copy, copied, live)
            if ZERO < length <= COMPILED:
                network_median(length, copy, ZERO, copied, winner)
            elif length > COMPILED:
                _longer_median(length, networks, starts, copy, copy_bits, keys, winner, winner_bits, lanes)
            _select_block(length, x, cut, rows, index, no_node, winner, out, selected, o, live)
            if shifting:
                total = weighted_sum(cut, live, load_half(x, o + cut, live), col, weight, x, edge, stop, base, columns)
                store(shifted, o + cut, live, total)


@helper
def _copy_block(length: Size, x: Array, low: Size, rows: Array, copy: Array, copied: Array, live: Size | None) -> None:
    """The columns of a block, side by side."""
    for k in range(length):
        store(copy, copied[k], ALL, load_half(x, rows[k] + low, live))


@helper
def _longer_median(
    length: Size, networks: Array, starts: Array, copy: Array, copy_bits: Array, keys: Array, winner: Array,
    winner_bits: Array, lanes: Size
) -> None:  # fmt: skip
    """The median of a longer list by value; without meaning if a value is NaN."""
    if length > NETWORKS:
        _bisect_bits(length, copy_bits, keys, winner_bits, lanes)
        return
    for step in range(starts[length], starts[length + ONE]):
        a, b, keep = networks[step, 0] * lanes, networks[step, 1] * lanes, networks[step, 2]
        left, right = load_half(copy, a, ALL), load_half(copy, b, ALL)
        if keep != HIGH:
            store(copy, a, ALL, blend(right < left, right, left))
        if keep != LOW:
            store(copy, b, ALL, blend(right > left, right, left))
    store(winner, ZERO, ALL, load_half(copy, (length - ONE) // TWO * lanes, ALL))


@helper
def _bisect_bits(length: Size, words: Array, keys: Array, winner: Array, lanes: Size) -> None:
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
            below = below + blend(load_half(keys, k * lanes, ALL) < bound, one, none)
        found = blend(below <= rank_of_median, bound, found)
    store(winner, ZERO, ALL, _key(found, words.dtype.type(width - 1), words.dtype.type(np.iinfo(words.dtype).max)))


@helper
def _key(word: Array, top_bit: Size, all_but_top: Size) -> Array:
    """From a number read as an integer to a key, and back."""
    return word ^ ((word >> fill(top_bit, word)) & fill(all_but_top, word))


@helper
def _select_block(
    length: Size, x: Array, low: Size, rows: Array, index: Array, no_node: Size, winner: Array, out: Array,
    selected: Array, o: Size, live: Size | None
) -> None:  # fmt: skip
    """Store the median, or NaN, and the index it comes from."""
    middle = load_half(winner, ZERO, ALL)
    value = fill(x.dtype.type(0), middle)
    broken = value
    for k in range(length):
        broken = broken + load_half(x, rows[k] + low, live)
    if some(broken != broken):  # so it is if a value is NaN
        for k in range(length):
            candidate = load_half(x, rows[k] + low, live)
            middle = blend(candidate != candidate, candidate, middle)
    selected_index = fill(no_node, middle)
    for back in range(length):
        k = length - ONE - back
        candidate = load_half(x, rows[k] + low, live)
        wins = (candidate == middle) | (candidate != candidate)
        value = blend(wins, candidate, value)
        selected_index = blend(wins, fill(index[k], middle), selected_index)
    store(out, o + low, live, value)
    store(selected, o + low, live, selected_index)
