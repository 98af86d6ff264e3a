"""Triton kernels for one pass over the neighbours: their extreme value or squared differences, and their weighted sum.

The backward kernel lets each node gather from those whose neighbour it is.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors, Lists
from graphact.kernels.reference import accumulation_dtype
from graphact.kernels.triton.launch import PIECE, THREADS, Launch, launches, limits, on_its_device, rows_of, start
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.walk import (
    UNROLL,
    columns_of_program,
    list_of_row,
    piece_of_list,
    rows_of_program,
    slot_of_own,
)


def launch_fused(
    values: Tensor, selected_slot: Tensor, shifted: Tensor, x: Tensor, weight: Tensor, lists: Lists, *, op: str,
    closed: bool, shifting: bool, longer_than: int = -1
) -> None:  # fmt: skip
    """One pass over the neighbours of all nodes, or of those that have more than some number."""
    flags: dict[str, Any] = {"op": op, "closed": closed, "shifting": shifting}
    threads = THREADS if op == "kernel" else 32
    loads = 2 if op in ("max", "min") and shifting and x.element_size() == 2 else 1
    lists_read = (lists.rowptr, lists.col)
    for launch in launches(lists, *sorted({longer_than, *limits(lists)} - {-1})):
        if launch.longest <= longer_than:
            continue
        if launch.pieces == 1:
            tensors = (values, selected_slot, shifted, x, weight, *lists_read)
            start(
                fused_kernel, launch, launch.shared, x, lists, *tensors, threads=threads, loads=loads, **flags, piece=0
            )
            continue
        wide = accumulation_dtype(x.dtype)
        wanted = (op != "none", op in ("max", "min"), shifting)
        kinds = zip(wanted, (wide, torch.int32, wide), strict=True)
        found = [pieces_of(x, launch, dtype) if some else x for some, dtype in kinds]
        read = (x, weight, *lists_read)
        start(fused_kernel, launch, True, x, lists, *found, *read, threads=threads, **flags, piece=PIECE)
        rest = (values, selected_slot, shifted, *found, x, launch.pieces, *lists_read)
        start(join_kernel, launch, False, x, lists, *rest, **flags, adding=False)


def launch_sums(kernel: Any, out: Tensor, x: Tensor, lists: Lists, *read: Tensor, **flags: Any) -> None:
    """Start a kernel that sums over the neighbours; long lists piece by piece, which are then added up."""
    for launch in launches(lists, *limits(lists)):
        if launch.pieces == 1:
            start(kernel, launch, launch.shared, x, lists, out, *read, piece=0, **flags)
            continue
        sums = pieces_of(x, launch, accumulation_dtype(out.dtype))
        piece_flags: dict[str, Any] = {name: name != "adding" and flag for name, flag in flags.items()}
        start(kernel, launch, True, x, lists, sums, *read, piece=PIECE, **piece_flags)
        rest = (out, out, out, sums, sums, sums, x, launch.pieces, lists.rowptr, lists.col)
        whole: dict[str, Any] = {"op": "none", "closed": False, "shifting": True, "adding": flags.get("adding", False)}
        start(join_kernel, launch, False, x, lists, *rest, **whole)


@on_its_device
def hop_backward(
    grad: Tensor,
    selected_slot: Tensor,
    grad_shifted: Tensor | None,
    graph: GraphTensors,
    closed: bool,
    scale: Tensor | None = None,
) -> Tensor:
    """See :func:`graphact.kernels.reference.hop_backward`, of ``scale * grad``; the same on every run."""
    grad, selected_slot, weight = grad.contiguous(), selected_slot.contiguous(), graph.weight_t.contiguous()
    out = allocate(grad.shape, grad.dtype, grad.device)
    if out.numel():
        shifting, lists = grad_shifted is not None, graph.outgoing
        given = grad if grad_shifted is None else grad_shifted.contiguous()
        factors = weight if scale is None else scale.expand(grad.size(-1)).contiguous()
        around = (factors, graph.incoming_slot, graph.incoming.rowptr, lists.rowptr, lists.col)
        flags: dict[str, Any] = {"closed": closed, "shifting": shifting, "scaled": scale is not None}
        flags["threads"] = THREADS if shifting else 32
        launch_sums(hop_backward_kernel, out, grad, lists, grad, selected_slot, given, weight, *around, **flags)
    return out


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
def fused_kernel(
    values, selected_slot, shifted, x, weight, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, piece: tl.constexpr, op: tl.constexpr, closed: tl.constexpr, shifting: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.fused_neighbor_pass`; ``op`` is "max", "min", "kernel" or "none".

    With ``piece``, programs read so many neighbours each, and write what they find piece after piece.
    """
    selecting: tl.constexpr = op == "max" or op == "min"
    largest: tl.constexpr = op == "max"
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask_own = alive[:, None] & inside[None, :]
    loser: tl.constexpr = float("-inf") if largest else float("inf")
    best = tl.full((lanes, block), loser if selecting else 0.0, dtype=wide)
    slot = tl.zeros((lanes, block), dtype=tl.int32) + (enter - begin).to(tl.int32)[:, None]
    total = tl.zeros((lanes, block), dtype=wide)
    center = total
    if op == "kernel":
        center = tl.load(x + own, mask=mask_own, other=0.0).to(wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            j = tl.load(col + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            value = tl.load(x + at, mask=mask, other=loser if selecting and not shifting else 0.0).to(wide)
            if shifting:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                total += factor[:, None] * value
            if selecting:
                if shifting:
                    value = tl.where(mask, value, loser)
                ahead = value > best if largest else value < best
                slot = tl.where(ahead, (position - begin).to(tl.int32)[:, None], slot)
                best = more_extreme(best, value, largest)
            if op == "kernel":
                distance = tl.where(mask, center - value, 0.0)
                best += distance * distance
    if selecting:
        best, slot = resolve_selection(
            best, slot, x, col, base, begin, enter, stop, steps, column, inside, mask_own, columns, largest, shared,
            lanes, block, wide
        )  # fmt: skip
    if shared:
        if shifting:
            total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
        if op == "kernel":
            best = tl.sum(best, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
    mask = writes[:, None] & inside[None, :]
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
        exists = (begin + tl.program_id(2).to(tl.int64) * piece < end)[:, None]
        slot = tl.where(exists, slot, -1)
    elif selecting:
        best = tl.where((end > begin)[:, None], best, 0.0)
        if closed:
            itself = tl.load(x + own, mask=mask_own, other=0.0).to(wide)
            best, slot = with_own(best, slot, itself, col, begin, end, node, largest)
    if op != "none":
        tl.store(values + own, best.to(values.dtype.element_ty), mask=mask)
    if selecting:
        tl.store(selected_slot + own, slot.to(selected_slot.dtype.element_ty), mask=mask)
    if shifting:
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "last", "rows", "pieces"])
def join_kernel(
    values, selected_slot, shifted, found_values, found_slots, found_sums, x, pieces, rowptr, col, order, count, last,
    rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr,
    ordered: tl.constexpr, batched: tl.constexpr, op: tl.constexpr, closed: tl.constexpr, shifting: tl.constexpr,
    adding: tl.constexpr
):  # fmt: skip
    """Put together what :func:`fused_kernel` and others found piece by piece, or add it to the sums that are there."""
    tl.static_assert(not shared)
    selecting: tl.constexpr = op == "max" or op == "min"
    largest: tl.constexpr = op == "max"
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, False, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, _, _ = list_of_row(rowptr, node, alive, False, lanes, False)
    item = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    mask = writes[:, None] & inside[None, :]
    best = tl.full((lanes, block), (float("-inf") if largest else float("inf")) if selecting else 0.0, dtype=wide)
    slot = tl.full((lanes, block), -1, dtype=tl.int32)
    total = tl.zeros((lanes, block), dtype=wide)
    for number in range(0, pieces):
        at = ((number * rows + item) * columns)[:, None] + column[None, :]
        if shifting:
            total += tl.load(found_sums + at, mask=mask, other=0.0)
        if op == "kernel":
            best += tl.load(found_values + at, mask=mask, other=0.0)
        if selecting:
            value = tl.load(found_values + at, mask=mask, other=0.0)
            where = tl.load(found_slots + at, mask=mask, other=-1)
            wins = (where >= 0) & (is_ahead(value, best, largest) | (slot < 0))
            best = tl.where(wins, value, best)
            slot = tl.where(wins, where, slot)
    own = ((base + node) * columns)[:, None] + column[None, :]
    if adding:
        total += tl.load(shifted + own, mask=mask, other=0.0).to(wide)
    if closed and selecting:
        itself = tl.load(x + own, mask=mask, other=0.0).to(wide)
        best, slot = with_own(best, slot, itself, col, begin, end, node, largest)
    if op != "none":
        tl.store(values + own, best.to(values.dtype.element_ty), mask=mask)
    if selecting:
        tl.store(selected_slot + own, slot.to(selected_slot.dtype.element_ty), mask=mask)
    if shifting:
        tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def hop_backward_kernel(
    out, grad, selected_slot, grad_shifted, weight, scale, incoming_slot, rowptr_in, rowptr, col, order, count, last,
    rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr,
    ordered: tl.constexpr, batched: tl.constexpr, piece: tl.constexpr, closed: tl.constexpr, shifting: tl.constexpr,
    scaled: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.hop_backward`; a gradient is read only where this edge was selected."""
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    total = tl.zeros((lanes, block), dtype=wide)
    linear = total
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            i = tl.load(col + position, mask=there, other=0).to(tl.int64)
            here = tl.load(incoming_slot + position, mask=there, other=-1)
            at = ((base + i) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            selected = mask & (tl.load(selected_slot + at, mask=mask, other=0).to(tl.int32) == here[:, None])
            total += tl.load(grad + at, mask=selected, other=0.0).to(wide)
            if shifting:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                part = factor[:, None] * tl.load(grad_shifted + at, mask=mask, other=0.0).to(wide)
                if scaled:
                    linear += part
                else:
                    total += part
    if shared:
        total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
        if scaled and shifting:
            linear = tl.sum(linear, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = writes[:, None] & inside[None, :]
    if closed and (piece == 0 or tl.program_id(2) == 0):
        listed = tl.load(rowptr_in + node + 1, mask=alive, other=0) - tl.load(rowptr_in + node, mask=alive, other=0)
        slot = tl.load(selected_slot + own, mask=mask, other=0).to(tl.int32)
        itself = mask & (slot == listed.to(tl.int32)[:, None])
        total += tl.load(grad + own, mask=itself, other=0.0).to(wide)
    if scaled:
        total = tl.where(total == 0, 0.0, total * tl.load(scale + column, mask=inside, other=0.0).to(wide)[None, :])
        if shifting:
            total += linear
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
    tl.store(out + own, total.to(out.dtype.element_ty), mask=mask)
