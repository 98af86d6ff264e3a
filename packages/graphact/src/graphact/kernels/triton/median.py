"""The median of all nodes by Triton kernels: of short lists by a sorting network, of longer ones by counting.

The network sorts in registers, and the weighted sum comes from the same pass.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# ruff: noqa: RUF005 (Triton adds tuples)

import math
from functools import cache
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.reference import accumulation_dtype
from graphact.kernels.triton.functions import launch_functions
from graphact.kernels.triton.launch import (
    MAX_PROGRAMS,
    Launch,
    Tile,
    ceil_div,
    launches,
    limits,
    padded_size,
    rows_of,
    start,
)
from graphact.kernels.triton.median_counting import (
    COUNTED,
    IN_REGISTER,
    MAX_WARPS,
    POSITIONS,
    REGISTERS,
    TILED,
    WARPS,
    in_register_bytes,
    in_register_median_kernel,
    in_register_tile,
    tile_lists_kernel,
    tiled_median_kernel,
)
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.walk import columns_of_program, row_of_program, slot_of_own

FUSED = 32  # the largest network that also sums: more would take registers that sorting needs
SIZES = (8, 12, 16, 20, 24, 28, 32, 48, 64)  # of the networks; a list takes the smallest one that holds it
TILED_NUMBERS = 2**24  # numbers of long lists that may always lie side by side


def launch_median(
    values: Tensor, selected_slot: Tensor, shifted: Tensor | None, x: Tensor, weight: Tensor, lists: Lists, closed: bool
) -> None:
    """The median of all nodes and its slot: of short lists by sorting them, of longer ones by counting."""
    columns = x.size(-1)
    if columns > MAX_PROGRAMS:
        for left in range(0, columns, MAX_PROGRAMS):
            some = slice(left, left + MAX_PROGRAMS)
            wide = [None if each is None else each[..., some] for each in (values, selected_slot, shifted, x)]
            parts: list[Any] = [None if each is None else each.contiguous() for each in wide]
            launch_median(parts[0], parts[1], parts[2], parts[3], weight, lists, closed)
            for result, part in zip(wide[:3], parts, strict=False):
                if result is not None:
                    result.copy_(part)
        return
    sizes = [size - closed for size in (*SIZES, *IN_REGISTER, *TILED)]
    fused = max(size for size in SIZES if size <= FUSED) - closed
    results, around = (values, selected_slot), (lists.rowptr, lists.col)
    for launch in launches(lists, *sizes, *(limit for limit in limits(lists) if limit > sizes[-1])):
        rows = rows_of(x, launch)
        size = next((size for size in (*SIZES, *IN_REGISTER) if launch.longest + closed <= size), None)
        if size is None:
            _tiled_median(*results, x, lists, launch, closed)
        elif size <= SIZES[-1]:
            along = shifted is not None and launch.longest <= fused
            flags: dict[str, Any] = {"size": size, "network": sorting_network(size), "shifting": along}
            block = min(padded_size(columns), 256)  # of one row, as many columns a thread as its registers hold
            warps = max(1, block // (64 if size <= 32 else 32))
            flags["shape"] = Tile(1, block, warps, (rows, ceil_div(columns, block)))
            tensors = (*results, values if shifted is None else shifted, x, weight, *around)
            start(network_median_kernel, launch, False, x, lists, *tensors, closed=closed, **flags)
        else:
            shape = in_register_tile(rows, columns, size, in_register_bytes(x))
            flags = {"closed": closed, "tiled": False, "maxnreg": REGISTERS}
            start(in_register_median_kernel, launch, False, x, lists, *results, x, *around, 0, shape=shape, **flags)
    if shifted is not None and int(lists.sizes[-1, 0]) > fused:
        launch_functions({"shift": shifted}, x, weight, lists, longer_than=fused)


def _tiled_median(values: Tensor, selected_slot: Tensor, x: Tensor, lists: Lists, launch: Launch, closed: bool) -> None:
    """The median of long lists, as many at a time as a signal has room for."""
    samples, columns, stride = math.prod(x.shape[:-2]), x.size(-1), launch.longest + closed
    at_once = min(launch.rows, max(1, max(x.numel(), TILED_NUMBERS) // (samples * columns * stride)))
    numbers = allocate((samples * at_once, columns, stride), accumulation_dtype(x.dtype), x.device)
    around = (lists.rowptr, lists.col, stride)
    tiles = ceil_div(stride, POSITIONS)
    each = ceil_div(tiles, MAX_PROGRAMS)  # tiles that a program copies
    pieces: dict[str, Any] = {"piece": POSITIONS, "pieces": ceil_div(tiles, each)}
    block = min(padded_size(columns), 64)
    size = next((size for size in TILED if stride <= size), 0)
    warps = TILED[size] * in_register_bytes(x) // 4 if size else 0
    for done in range(0, launch.rows, at_once):
        some = launch._replace(rows=min(at_once, launch.rows - done), last=launch.last - done)
        rows = samples * some.rows
        shape = Tile(POSITIONS, block, 4, (rows, ceil_div(columns, block)))
        start(tile_lists_kernel, some, False, x, lists, numbers, x, *around, each, shape=shape, closed=closed, **pieces)
        tensors, each_column = (values, selected_slot, numbers, *around), (rows, columns)
        if 0 < warps <= MAX_WARPS:
            shape = Tile(size, 1, warps, each_column)
            start(in_register_median_kernel, some, False, x, lists, *tensors, shape=shape, closed=closed, tiled=True)
        else:
            shape = Tile(1, COUNTED, WARPS, each_column)
            start(tiled_median_kernel, some, False, x, lists, *tensors, shape=shape, closed=closed)


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
    values, selected_slot, shifted, x, weight, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, size: tl.constexpr, network: tl.constexpr, closed: tl.constexpr, shifting: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.fused_neighbor_pass` of lists with at most ``size`` candidates.

    A program has one row, and so nothing to agree on: compiling many values of several rows takes minutes. Places left
    over in the network are filled with the lowest and the highest number in turn, so that the median always comes out
    in the middle. NaN is contagious: where a list has one, the middle becomes it.
    """
    tl.static_assert(lanes == 1 and not shared and size % 2 == 0)
    both: tl.constexpr = tl.PropagateNan.ALL
    middle: tl.constexpr = (size - 1) // 2
    node, base = row_of_program(order, count, last, nodes, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin = tl.load(rowptr + node).to(tl.int64)
    degree = (tl.load(rowptr + node + 1).to(tl.int64) - begin).to(tl.int32)
    own = (base + node) * columns + column
    num_candidates = degree
    itself = tl.zeros((block,), dtype=wide)
    if closed:
        num_candidates = degree + 1
        itself = tl.load(x + own, mask=inside, other=0.0).to(wide)
    listed = ()
    for k in tl.static_range(size):
        there = k < degree
        filling = float("inf") if k % 2 == 1 else float("-inf")
        j = tl.load(col + begin + k, mask=there, other=0).to(tl.int64)
        valid = column < tl.where(there, columns, 0)
        value = tl.load(x + (base + j) * columns + column, mask=valid, other=filling).to(wide)
        if closed:
            value = tl.where(degree == k, itself, value)
        listed = listed + (value,)  # type: ignore[assignment]
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
    median = ascending[middle]  # type: ignore[var-annotated]
    unknown = median != median  # type: ignore[var-annotated]
    slot = tl.zeros((block,), dtype=tl.int32) + degree
    for k in tl.static_range(size):
        value = listed[size - 1 - k]
        slot = tl.where((value == median) | (unknown & (value != value)), size - 1 - k, slot)
    if closed:
        alone = tl.zeros((1,), dtype=tl.int64)
        before = slot_of_own(col, begin + alone, begin + degree + alone, node)
        is_median = (itself == median) | (unknown & (itself != itself))
        slot = tl.where(is_median & (slot >= before), degree, slot)
    slot = tl.where(num_candidates == 0, 0, slot)
    result = tl.where(num_candidates == 0, 0.0, median)
    zero = inside & (median == 0.0)  # one of both zeros: the selected one knows which
    j = tl.load(col + begin + slot, mask=zero & (slot < degree), other=0).to(tl.int64)
    j = tl.where(slot < degree, j, node)
    result = tl.where(zero, tl.load(x + (base + j) * columns + column, mask=zero, other=0.0).to(wide), result)
    tl.store(values + own, result.to(values.dtype.element_ty), mask=inside)
    tl.store(selected_slot + own, slot.to(selected_slot.dtype.element_ty), mask=inside)
    if shifting:  # after the sort: sums from the first loop on would take registers that sorting needs
        total = tl.zeros((block,), dtype=wide)
        for k in tl.static_range(size):
            factor = tl.load(weight + begin + k, mask=k < degree, other=0.0).to(wide)
            total += factor * tl.where(k < degree, listed[k], 0.0)
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=inside)
