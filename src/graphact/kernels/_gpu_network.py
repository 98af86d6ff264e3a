"""The median of short lists by a sorting network, in registers, and the weighted sum from the same look."""

# mypy: ignore-errors
# ruff: noqa: RUF005 (Triton adds tuples)

from functools import cache

import triton
import triton.language as tl

from graphact.kernels._gpu_hop import place_of_own
from graphact.kernels._gpu_walk import Tile, ceil_div, columns_of_program, padded_size, row_of_program

FUSED = 32  # the largest network that also sums: more would take registers that sorting needs
SIZES = (8, 12, 16, 20, 24, 28, 32, 48, 64)  # of the networks; a list takes the smallest one that holds it


def network_tile(rows: int, columns: int, size: int) -> Tile:
    """One row, and as many columns a thread as its registers hold."""
    block = min(padded_size(columns), 256)
    return Tile(1, block, max(1, block // (64 if size <= 32 else 32)), (rows, ceil_div(columns, block)))


@cache
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
    rows,  # noqa: ARG001 (as all kernels)
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

    A program has one row, and so nothing to agree on: compiling many values of several rows takes minutes. Places left
    over in the network are filled with the lowest and the highest number in turn, so that the median always comes out
    in the middle. NaN is contagious: where a list has one, the middle becomes it.
    """
    tl.static_assert(lanes == 1 and not shared and size % 2 == 0)
    both: tl.constexpr = tl.PropagateNan.ALL
    middle: tl.constexpr = (size - 1) // 2
    node, base = row_of_program(order, count, last, nodes, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin = tl.load(pointers + node).to(tl.int64)
    degree = (tl.load(pointers + node + 1).to(tl.int64) - begin).to(tl.int32)
    own = (base + node) * columns + column
    candidates = degree
    itself = tl.zeros((block,), dtype=wide)
    if closed:
        candidates = degree + 1
        itself = tl.load(x + own, mask=inside, other=0.0).to(wide)
    listed = ()
    for k in tl.static_range(size):
        there = k < degree
        filling = float("inf") if k % 2 == 1 else float("-inf")
        j = tl.load(members + begin + k, mask=there, other=0).to(tl.int64)
        heard = column < tl.where(there, columns, 0)
        value = tl.load(x + (base + j) * columns + column, mask=heard, other=filling).to(wide)
        if closed:
            value = tl.where(degree == k, itself, value)
        listed = listed + (value,)
    ascending = listed
    for pair in tl.static_range(len(network)):
        # written out here: compiling a function of so many values for every pair takes long
        low = tl.minimum(ascending[network[pair][0]], ascending[network[pair][1]], propagate_nan=both)
        high = tl.maximum(ascending[network[pair][0]], ascending[network[pair][1]], propagate_nan=both)
        ascending = (
            ascending[: network[pair][0]]
            + (low,)
            + ascending[network[pair][0] + 1 : network[pair][1]]
            + (high,)
            + ascending[network[pair][1] + 1 :]
        )
    median = ascending[middle]
    unknown = median != median
    place = tl.zeros((block,), dtype=tl.int32) + degree
    for k in tl.static_range(size):
        value = listed[size - 1 - k]
        place = tl.where((value == median) | (unknown & (value != value)), size - 1 - k, place)
    if closed:
        alone = tl.zeros((1,), dtype=tl.int64)
        before = place_of_own(members, begin + alone, begin + degree + alone, node)
        is_median = (itself == median) | (unknown & (itself != itself))
        place = tl.where(is_median & (place >= before), degree, place)
    place = tl.where(candidates == 0, 0, place)
    result = tl.where(candidates == 0, 0.0, median)
    zero = inside & (median == 0.0)  # one of both zeros: the chosen one knows which
    j = tl.load(members + begin + place, mask=zero & (place < degree), other=0).to(tl.int64)
    j = tl.where(place < degree, j, node)
    result = tl.where(zero, tl.load(x + (base + j) * columns + column, mask=zero, other=0.0).to(wide), result)
    tl.store(values + own, result.to(values.dtype.element_ty), mask=inside)
    tl.store(places + own, place.to(places.dtype.element_ty), mask=inside)
    if shifting:  # after the sort: sums from the first loop on would take registers that sorting needs
        total = tl.zeros((block,), dtype=wide)
        for k in tl.static_range(size):
            factor = tl.load(weight + begin + k, mask=k < degree, other=0.0).to(wide)
            total += factor * tl.where(k < degree, listed[k], 0.0)
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=inside)
