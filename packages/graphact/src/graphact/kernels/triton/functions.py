"""Triton kernels for functions of the neighbours' values and the shift, in one pass.

Hubs are read piece by piece: several programs share a list, and another kernel joins what they found.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact._triton import PLAIN_TENSORS
from graphact.kernels.graph_tensors import Lists
from graphact.kernels.reference import RESULTS, accumulation_dtype
from graphact.kernels.triton.launch import PIECE, THREADS, Launch, launches, limits, on_its_device, rows_of, start
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.walk import (
    UNROLL,
    lists_of_program,
    place_of_piece,
    slot_of_own,
    sum_of_lanes,
    tile_of_program,
)

RETURNED = tuple(name for name in RESULTS if "median" not in name)  # the median is in `median.py`
FLAGS = {name: f"has_{name}" for name in RETURNED if "slot" not in name}


@on_its_device
def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    x, weight, out = x.contiguous(), weight.contiguous(), allocate(x.shape, x.dtype, x.device)
    launch_functions({"shift": out}, x, weight, lists)
    return out


@on_its_device
def sum_sq_diff(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff`."""
    x, out = x.contiguous(), allocate(x.shape, accumulation_dtype(x.dtype), x.device)
    launch_functions({"kernel": out}, x, x, lists)
    return out


def launch_functions(
    found: dict[str, Tensor], x: Tensor, weight: Tensor, lists: Lists, closed: bool = False, longer_than: int = -1
) -> None:
    """Write some results for all nodes, or for those that have more than some number of neighbours."""
    flags: dict[str, Any] = {flag: name in found for name, flag in FLAGS.items()} | {"closed": closed}
    one_selection = len({"max", "min"} & found.keys()) == 1 and "mean" not in found and "kernel" not in found
    threads = 32 if one_selection or found.keys() == {"shift"} else THREADS
    loads = 2 if one_selection and "shift" in found and x.element_size() == 2 else 1
    results, wide = [found.get(name, absent(x)) for name in RETURNED], accumulation_dtype(x.dtype)
    around = (lists.rowptr, lists.col)
    read = (x, weight, *around)
    for launch in launches(lists, *sorted({longer_than, *limits(lists)} - {-1})) if x.numel() else ():
        if launch.longest <= longer_than:
            continue
        if launch.pieces == 1:
            options = {**flags, "threads": threads, "loads": loads, "piece": 0}
            start(functions_kernel, launch, launch.shared, x, lists, *results, absent(x), *read, **options)
            continue
        kinds = {name: torch.int32 if "slot" in name else wide for name in RETURNED if name in found}
        kinds |= {"squares": wide} if "std" in found else {}
        pieces = {name: pieces_of(x, launch, dtype) for name, dtype in kinds.items()}
        parts, rest = [pieces.get(name, x) for name in (*RETURNED, "squares")], (launch.pieces, x, *around)
        start(functions_kernel, launch, True, x, lists, *parts, *read, **flags, threads=threads, piece=PIECE)
        start(join_kernel, launch, False, x, lists, *results, *parts, *rest, **flags, adding=False, piece=PIECE)


def launch_sums(kernel: Any, out: Tensor, x: Tensor, lists: Lists, *read: Tensor | None, **flags: Any) -> None:
    """Start a kernel that sums over the neighbours; long lists piece by piece, which are then added up."""
    for launch in launches(lists, *limits(lists)) if x.numel() else ():
        if launch.pieces == 1:
            start(kernel, launch, launch.shared, x, lists, out, *read, piece=0, **flags)
            continue
        sums, count = pieces_of(x, launch, accumulation_dtype(out.dtype)), len(RETURNED)
        piece_flags: dict[str, Any] = {name: name != "adding" and flag for name, flag in flags.items()}
        start(kernel, launch, True, x, lists, sums, *read, piece=PIECE, **piece_flags)
        rest = (*[out] * count, *[sums] * (count + 1), launch.pieces, x, lists.rowptr, lists.col)
        whole: dict[str, Any] = {flag: name == "shift" for name, flag in FLAGS.items()}
        whole |= {"closed": False, "adding": flags.get("adding", False), "piece": PIECE}
        start(join_kernel, launch, False, x, lists, *rest, **whole)


def absent(stand_in: Tensor) -> Tensor | None:
    """Return what stands for a tensor that a kernel does not touch; compiled code would copy a stand-in."""
    return stand_in if type(stand_in) in PLAIN_TENSORS else None


def pieces_of(x: Tensor, launch: Launch, dtype: torch.dtype) -> Tensor:
    """Memory for what is found piece by piece."""
    return allocate((launch.pieces, rows_of(x, launch), x.size(-1)), dtype, x.device)


@triton.jit
def is_ahead(value, best, largest: tl.constexpr):
    """Return true if a value wins over the best one; NaN wins over all numbers, and the first among equals stays."""
    ahead = value > best if largest else value < best
    return ahead | ((value != value) & (best == best))


@triton.jit
def more_extreme(a, b, largest: tl.constexpr):
    """The larger or the smaller of two numbers; NaN where one of them is."""
    both: tl.constexpr = tl.PropagateNan.ALL
    return tl.maximum(a, b, propagate_nan=both) if largest else tl.minimum(a, b, propagate_nan=both)


@triton.jit
def with_own(best, slot, own, col, begin, end, node, largest: tl.constexpr):
    """The selection in a closed neighbourhood: the node itself, at slot d after d neighbours, is a candidate, too."""
    degree = (end - begin).to(tl.int32)[:, None]
    before = slot_of_own(col, begin, end, node)[:, None]
    equal = (own == best) | ((own != own) & (best != best))
    wins = is_ahead(own, best, largest) | (equal & (slot >= before)) | (degree == 0)
    return tl.where(wins, own, best), tl.where(wins, degree, slot)


@triton.jit
def resolve_selection(
    best, slot, x, col, base, begin, enter, stop, steps, column, inside, mask_own, columns, largest: tl.constexpr,
    shared: tl.constexpr, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr
):  # fmt: skip
    """The extreme value of each row and its slot, from those of a walk in which :func:`more_extreme` was taken.

    NaN has come through, but not its slot, and of both zeros the sign of either. Lanes that share a row get the same.
    """
    stride: tl.constexpr = lanes if shared else 1
    loser: tl.constexpr = float("-inf") if largest else float("inf")
    unknown = best != best
    if tl.max(tl.max(unknown.to(tl.int32), 1), 0) > 0:
        for step in range(0, steps):
            position = enter + (steps - 1 - step) * stride
            there = position < stop
            j = tl.load(col + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            value = tl.load(x + at, mask=there[:, None] & inside[None, :], other=0.0).to(wide)
            slot = tl.where(unknown & (value != value), (position - begin).to(tl.int32)[:, None], slot)
    zero = mask_own & (best == 0.0)
    if tl.max(tl.max(zero.to(tl.int32), 1), 0) > 0:
        source = tl.load(col + begin[:, None] + slot, mask=zero, other=0).to(tl.int64)
        at = (base[:, None] + source) * columns + column[None, :]
        best = tl.where(zero, tl.load(x + at, mask=zero, other=0.0).to(wide), best)
    if shared:
        unknown = best != best
        numbers = tl.where(unknown, loser, best)
        winner = tl.max(numbers, 0) if largest else tl.min(numbers, 0)
        wins = tl.where(tl.max(unknown.to(tl.int32), 0)[None, :] > 0, unknown, best == winner[None, :])
        wins &= (enter < stop)[:, None]
        first = tl.min(tl.where(wins, slot, 2147483647), 0)
        slot = first[None, :] + tl.zeros((lanes, block), dtype=tl.int32)
        found = mask_own & (first < 2147483647)[None, :]
        position = tl.where(found, begin[:, None] + slot, 0)
        source = tl.load(col + position, mask=found, other=0).to(tl.int64)
        best = tl.load(x + (base[:, None] + source) * columns + column[None, :], mask=found, other=0.0).to(wide)
        slot = tl.where(found, slot, 0)
    return best, slot


@triton.jit(do_not_specialize=["count", "last", "rows"])
def functions_kernel(
    shifted, largest, smallest, mean, std, distance, largest_slot, smallest_slot, square, x, weight, rowptr, col, order,
    count, last, rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr,
    shared: tl.constexpr, ordered: tl.constexpr, batched: tl.constexpr, piece: tl.constexpr, closed: tl.constexpr,
    has_shift: tl.constexpr, has_max: tl.constexpr, has_min: tl.constexpr, has_mean: tl.constexpr,
    has_std: tl.constexpr, has_kernel: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.neighborhood_functions`.

    With ``piece``, programs read so many neighbours each, and write what they find piece after piece: the sum of the
    values into ``mean``, their mean into ``std``, the sum of squared differences to it into ``square``.
    """
    node, base, alive, column, inside, own, exists, written = tile_of_program(
        order, count, last, rows, nodes, columns, lanes, block, shared, ordered, batched
    )
    begin, end, enter, stop, steps = lists_of_program(rowptr, node, alive, lanes, shared, piece)
    stride: tl.constexpr = lanes if shared else 1
    # a single selection needs nothing else of the numbers that do not exist
    alone: tl.constexpr = has_max != has_min and not (has_shift or has_mean or has_kernel)
    beyond: tl.constexpr = (float("-inf") if has_max else float("inf")) if alone else 0.0
    total = tl.zeros((lanes, block), dtype=wide)
    plain = total
    apart = total
    squares = total
    distances = total
    best = tl.full((lanes, block), float("-inf"), dtype=wide)
    least = tl.full((lanes, block), float("inf"), dtype=wide)
    best_slot = tl.zeros((lanes, block), dtype=tl.int32) + (enter - begin).to(tl.int32)[:, None]
    least_slot = best_slot
    itself = total
    if has_kernel:
        itself = tl.load(x + own, mask=exists, other=0.0).to(wide)
    center = total
    if has_std:
        center = center_of(x, col, base, begin, end, column, inside, own, exists, columns, closed, wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            j = tl.load(col + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            value = tl.load(x + at, mask=mask, other=beyond).to(wide)
            slot = (position - begin).to(tl.int32)[:, None]
            if has_shift:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                total += factor[:, None] * value
            if has_mean:
                plain += value
            if has_std:
                difference = tl.where(mask, value - center, 0.0)
                apart += difference
                squares += difference * difference
            if has_kernel:
                difference = tl.where(mask, itself - value, 0.0)
                distances += difference * difference
            if has_max:
                candidate = value if alone else tl.where(mask, value, float("-inf"))
                best_slot = tl.where(candidate > best, slot, best_slot)
                best = more_extreme(best, candidate, True)
            if has_min:
                candidate = value if alone else tl.where(mask, value, float("inf"))
                least_slot = tl.where(candidate < least, slot, least_slot)
                least = more_extreme(least, candidate, False)
    if has_max:
        best, best_slot = resolve_selection(
            best, best_slot, x, col, base, begin, enter, stop, steps, column, inside, exists, columns, True, shared,
            lanes, block, wide
        )  # fmt: skip
    if has_min:
        least, least_slot = resolve_selection(
            least, least_slot, x, col, base, begin, enter, stop, steps, column, inside, exists, columns, False, shared,
            lanes, block, wide
        )  # fmt: skip
    total = sum_of_lanes(total, shared)
    plain = sum_of_lanes(plain, shared)
    apart = sum_of_lanes(apart, shared)
    squares = sum_of_lanes(squares, shared)
    distances = sum_of_lanes(distances, shared)
    if has_std and shared:
        listed = tl.maximum(stop - enter + tl.arange(0, lanes), 1).to(wide)[:, None]
        offset = apart / listed
        # the difference of squares and square cancels where the center is far, four deviations, from the mean
        if tl.max(tl.max((offset * offset * (17 / 16) > squares / listed).to(tl.int32), 1), 0) > 0:
            center += offset
            apart = tl.zeros((lanes, block), dtype=wide)
            squares = apart
            for step in range(0, steps):
                position = enter + step * stride
                there = position < stop
                j = tl.load(col + position, mask=there, other=0).to(tl.int64)
                mask = there[:, None] & inside[None, :]
                value = tl.load(x + ((base + j) * columns)[:, None] + column[None, :], mask=mask, other=0.0).to(wide)
                difference = tl.where(mask, value - center, 0.0)
                apart += difference
                squares += difference * difference
            apart = sum_of_lanes(apart, shared)
            squares = sum_of_lanes(squares, shared)
        if piece > 0:
            offset = apart / listed
            center += offset
            squares = tl.where(offset == 0.0, squares, tl.maximum(squares - offset * apart, 0.0))
    if piece > 0:
        own = place_of_piece(own, column, rows, columns, piece)
        is_found = (enter - tl.arange(0, lanes) < end)[:, None]
        if has_shift:
            tl.store(shifted + own, total, mask=written)
        if has_max:
            tl.store(largest + own, best, mask=written)
            tl.store(largest_slot + own, tl.where(is_found, best_slot, -1), mask=written)
        if has_min:
            tl.store(smallest + own, least, mask=written)
            tl.store(smallest_slot + own, tl.where(is_found, least_slot, -1), mask=written)
        if has_mean:
            tl.store(mean + own, plain, mask=written)
        if has_std:
            tl.store(std + own, center, mask=written)
            tl.store(square + own, squares, mask=written)
        if has_kernel:
            tl.store(distance + own, distances, mask=written)
    else:
        store_functions(
            shifted, largest, smallest, mean, std, distance, largest_slot, smallest_slot, x, col, node, begin, end, own,
            exists, written, total, best, least, plain, apart, squares, distances, best_slot, least_slot, center,
            closed, has_shift, has_max, has_min, has_mean, has_std, has_kernel, wide
        )  # fmt: skip


@triton.jit
def center_of(x, col, base, begin, end, column, inside, own, exists, columns, closed: tl.constexpr, wide: tl.constexpr):
    """A value of each neighbourhood, to which differences are taken: the node's own or that of the first neighbour."""
    if closed:
        return tl.load(x + own, mask=exists, other=0.0).to(wide)
    is_there = begin < end
    first = tl.load(col + begin, mask=is_there, other=0).to(tl.int64)
    at = ((base + first) * columns)[:, None] + column[None, :]
    return tl.load(x + at, mask=is_there[:, None] & inside[None, :], other=0.0).to(wide)


@triton.jit
def store_functions(
    shifted, largest, smallest, mean, std, distance, largest_slot, smallest_slot, x, col, node, begin, end, own, exists,
    written, total, best, least, plain, apart, squares, distances, best_slot, least_slot, center, closed: tl.constexpr,
    has_shift: tl.constexpr, has_max: tl.constexpr, has_min: tl.constexpr, has_mean: tl.constexpr,
    has_std: tl.constexpr, has_kernel: tl.constexpr, wide: tl.constexpr
):  # fmt: skip
    """Let the node itself join a closed neighbourhood, and write the results."""
    listed = (end > begin)[:, None]
    if has_shift:
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=written)
    itself = total
    if closed and (has_max or has_min or has_mean):
        itself = tl.load(x + own, mask=exists, other=0.0).to(wide)
    if has_max:
        best = tl.where(listed, best, 0.0)
        if closed:
            best, best_slot = with_own(best, best_slot, itself, col, begin, end, node, True)
        tl.store(largest + own, best.to(largest.dtype.element_ty), mask=written)
        tl.store(largest_slot + own, best_slot.to(largest_slot.dtype.element_ty), mask=written)
    if has_min:
        least = tl.where(listed, least, 0.0)
        if closed:
            least, least_slot = with_own(least, least_slot, itself, col, begin, end, node, False)
        tl.store(smallest + own, least.to(smallest.dtype.element_ty), mask=written)
        tl.store(smallest_slot + own, least_slot.to(smallest_slot.dtype.element_ty), mask=written)
    if has_mean:
        members = end - begin
        if closed:
            members += 1
            plain += itself
            difference = itself - center  # mostly 0, or NaN if it is not finite
            apart += difference
            squares += difference * difference
        number = tl.maximum(members, 1).to(wide)[:, None]
        average = plain / number
        if has_std:
            apart = apart / number
            variance = squares / number - apart * apart
            variance = tl.where(variance < 0, 0.0, variance)
            tl.store(std + own, tl.sqrt(variance), mask=written)
            average = tl.where(center + apart == center + apart, center + apart, average)
        tl.store(mean + own, average, mask=written)
    if has_kernel:
        tl.store(distance + own, distances, mask=written)


@triton.jit(do_not_specialize=["count", "last", "rows", "pieces"])
def join_kernel(
    shifted, largest, smallest, mean, std, distance, largest_slot, smallest_slot, found_shifted, found_largest,
    found_smallest, found_mean, found_std, found_distance, found_largest_slot, found_smallest_slot, found_square,
    pieces, x, rowptr, col, order, count, last, rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr,
    wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr, batched: tl.constexpr, closed: tl.constexpr,
    adding: tl.constexpr, piece: tl.constexpr, has_shift: tl.constexpr, has_max: tl.constexpr, has_min: tl.constexpr,
    has_mean: tl.constexpr, has_std: tl.constexpr, has_kernel: tl.constexpr
):  # fmt: skip
    """Put together what :func:`functions_kernel` and others found piece by piece, or add it to sums that are there."""
    tl.static_assert(not shared)
    node, _, alive, column, _, own, exists, written = tile_of_program(
        order, count, last, rows, nodes, columns, lanes, block, False, ordered, batched
    )
    begin, end, _, _, _ = lists_of_program(rowptr, node, alive, lanes, False, 0)
    item = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    total = tl.zeros((lanes, block), dtype=wide)
    plain = total
    apart = total
    squares = total
    distances = total
    best = tl.full((lanes, block), float("-inf"), dtype=wide)
    least = tl.full((lanes, block), float("inf"), dtype=wide)
    best_slot = tl.full((lanes, block), -1, dtype=tl.int32)
    least_slot = best_slot
    center = total
    if has_std:
        center = tl.load(found_std + (item * columns)[:, None] + column[None, :], mask=written, other=0.0)
    for number in range(0, pieces):
        at = ((number * rows + item) * columns)[:, None] + column[None, :]
        if has_shift:
            total += tl.load(found_shifted + at, mask=written, other=0.0)
        if has_max:
            best, best_slot = joined_selection(best, best_slot, found_largest, found_largest_slot, at, written, True)
        if has_min:
            least, least_slot = joined_selection(
                least, least_slot, found_smallest, found_smallest_slot, at, written, False
            )
        if has_mean:
            plain += tl.load(found_mean + at, mask=written, other=0.0)
        if has_std:
            listed = tl.minimum(tl.maximum(end - begin - number * piece, 0), piece).to(wide)[:, None]
            difference = tl.where(listed > 0, tl.load(found_std + at, mask=written, other=0.0) - center, 0.0)
            apart += listed * difference
            squares += tl.load(found_square + at, mask=written, other=0.0) + listed * difference * difference
        if has_kernel:
            distances += tl.load(found_distance + at, mask=written, other=0.0)
    if adding:
        total += tl.load(shifted + own, mask=written, other=0.0).to(wide)
    store_functions(
        shifted, largest, smallest, mean, std, distance, largest_slot, smallest_slot, x, col, node, begin, end, own,
        exists, written, total, best, least, plain, apart, squares, distances, best_slot, least_slot, center, closed,
        has_shift, has_max, has_min, has_mean, has_std, has_kernel, wide
    )  # fmt: skip


@triton.jit
def joined_selection(best, slot, values, slots, at, mask, largest: tl.constexpr):
    """The selection among those of the pieces before and of one more, whose slot is -1 if it has no neighbours."""
    value = tl.load(values + at, mask=mask, other=0.0)
    where = tl.load(slots + at, mask=mask, other=-1)
    wins = (where >= 0) & (is_ahead(value, best, largest) | (slot < 0))
    return tl.where(wins, value, best), tl.where(wins, where, slot)
