"""The median of short lists by a sorting network, in registers, and the weighted sum from the same look."""

# mypy: ignore-errors
# ruff: noqa: RUF005 (Triton adds tuples)

import triton
import triton.language as tl

from graphact.kernels._gpu_hop import place_of_own
from graphact.kernels._gpu_walk import columns_of_program, list_of_row, rows_of_program

SIZES = (8, 16, 24, 32)  # of the networks; a list takes the smallest one that holds it


def sorting_network(size: int) -> tuple[tuple[int, int], ...]:
    """The comparisons of Batcher's merge exchange, after which any ``size`` numbers are in ascending order."""
    pairs: list[tuple[int, int]] = []
    top = 1 << (size - 1).bit_length()
    width = top // 2
    while width > 0:
        reach, rest, distance = top // 2, 0, width
        while distance > 0:
            pairs.extend((i, i + distance) for i in range(size - distance) if i & width == rest)
            distance, reach, rest = reach - width, reach // 2, width
        width //= 2
    return tuple(pairs)


@triton.jit
def exchange(values, a: tl.constexpr, b: tl.constexpr):
    """Put two of the values in order."""
    low = tl.minimum(values[a], values[b])
    high = tl.maximum(values[a], values[b])
    return values[:a] + (low,) + values[a + 1 : b] + (high,) + values[b + 1 :]


@triton.jit(do_not_specialize=["count", "last", "rows"])
def network_median_kernel(
    values,
    places,
    shifted,
    x,
    weight,
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
    size: tl.constexpr,
    network: tl.constexpr,
    closed: tl.constexpr,
    shifting: tl.constexpr,
):
    """See :func:`graphact.kernels.reference.hop` with the median, for lists of at most ``size`` candidates.

    Places left over in the network are filled from both ends, so that the median always comes out in the middle.
    """
    tl.static_assert(not shared)
    middle: tl.constexpr = (size - 1) // 2
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, _, _ = list_of_row(pointers, node, alive, False, lanes, False)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask_own = alive[:, None] & inside[None, :]
    degree = tl.where(alive, end - begin, 0).to(tl.int32)
    candidates = degree
    itself = tl.zeros((lanes, block), dtype=wide)
    if closed:
        candidates = degree + 1
        itself = tl.load(x + own, mask=mask_own, other=0.0).to(wide)
    fill_low = candidates + middle - (candidates - 1) // 2
    total = tl.zeros((lanes, block), dtype=wide)
    unknown = tl.full((lanes, block), -1, dtype=tl.int32)
    listed = ()
    for k in tl.static_range(size):
        there = k < degree
        j = tl.load(members + begin + k, mask=there, other=0).to(tl.int64)
        at = ((base + j) * columns)[:, None] + column[None, :]
        value = tl.load(x + at, mask=there[:, None] & inside[None, :], other=0.0).to(wide)
        if shifting:
            factor = tl.load(weight + begin + k, mask=there, other=0.0).to(wide)
            total += factor[:, None] * value
        if closed:
            value = tl.where((degree == k)[:, None], itself, value)
        unknown = tl.where((value != value) & (unknown < 0), k, unknown)
        filling = tl.where(k < fill_low, float("-inf"), float("inf"))
        listed = listed + (tl.where((k < candidates)[:, None], value, filling[:, None]),)
    ordered_values = listed
    for pair in tl.static_range(len(network)):
        ordered_values = exchange(ordered_values, network[pair][0], network[pair][1])
    median = ordered_values[middle]
    result = tl.zeros((lanes, block), dtype=wide)
    place = tl.zeros((lanes, block), dtype=tl.int32) + degree[:, None]
    for k in tl.static_range(size):
        value = listed[size - 1 - k]
        found = (value == median) & (size - 1 - k < candidates)[:, None]
        result = tl.where(found, value, result)
        place = tl.where(found, size - 1 - k, place)
    if closed:
        before = place_of_own(members, begin, end, node)[:, None]
        result = tl.where((itself == median) & (place >= before), itself, result)
        place = tl.where((itself == median) & (place >= before), degree[:, None], place)
        unknown = tl.where((itself != itself) & (unknown >= before), degree[:, None], unknown)
    result = tl.where(unknown >= 0, float("nan"), result)
    place = tl.where(unknown >= 0, unknown, place)
    mask = writes[:, None] & inside[None, :]
    tl.store(values + own, result.to(values.dtype.element_ty), mask=mask)
    tl.store(places + own, place.to(places.dtype.element_ty), mask=mask)
    if shifting:
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=mask)
