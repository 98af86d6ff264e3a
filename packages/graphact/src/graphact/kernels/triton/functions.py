"""Triton kernels for several functions of the neighbours' values and the shift in one pass, and for their gradient.

The backward kernel lets each node gather from those whose neighbour it is. Beyond the results nothing is held but the
slots of selected neighbours and the mean that a standard deviation needs.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors, Lists
from graphact.kernels.reference import complete_results, num_members, wanted_results
from graphact.kernels.triton.fused import (
    launch_fused,
    launch_sums,
    more_extreme,
    pieces_of,
    resolve_selection,
    with_own,
)
from graphact.kernels.triton.launch import PIECE, THREADS, Launch, launches, limits, on_its_device, start
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.walk import (
    UNROLL,
    columns_of_program,
    list_of_row,
    piece_of_list,
    rows_of_program,
)


def launch_functions(
    x: Tensor, graph: GraphTensors, ops: str, closed: bool, shifting: bool, max_degree: int, found: dict[str, Tensor]
) -> tuple[Tensor, ...]:  # fmt: skip
    """Add the results that are not found yet; all are computed from a contiguous signal."""
    types, lists, weight = wanted_results(x, ops, shifting, max_degree), graph.incoming, graph.weight.contiguous()
    made = {name: allocate(x.shape, dtype, x.device) for name, dtype in types.items() if name not in found}
    flags: dict[str, Any] = {f"has_{name}": name in made for name in ("shift", "max", "min", "mean", "std")}
    order = ("shift", "max", "min", "mean", "std", "max slot", "min slot")
    tensors = [made.get(name, x) for name in order]
    for launch in launches(lists, *limits(lists)) if made and x.numel() else ():
        if launch.pieces == 1:
            read = (x, weight, lists.rowptr, lists.col)
            start(functions_kernel, launch, launch.shared, x, lists, *tensors, *read, **flags, closed=closed, piece=0)
        elif "mean" in made:
            _moments_of_hubs(launch, x, lists, made, closed)
    if max_degree > PIECE and x.numel():  # lists that programs share piece by piece, in a pass for each selection
        for at, op in enumerate([op for op in ("max", "min") if op in made] or ["none"]):
            with_shift = at == 0 and "shift" in made
            results = (made.get(op, x), made.get(f"{op} slot", x), made["shift"] if with_shift else x)
            hubs: dict[str, Any] = {"op": op, "closed": closed, "shifting": with_shift, "longer_than": PIECE}
            if op != "none" or with_shift:
                launch_fused(*results, x, weight, lists, **hubs)
    return complete_results(x, found | made)


def _moments_of_hubs(launch: Launch, x: Tensor, lists: Lists, made: dict[str, Tensor], closed: bool) -> None:
    """The moments of nodes with lists so long that several programs share one, from the sums of their pieces."""
    mean = made["mean"]
    sums = [pieces_of(x, launch, mean.dtype) for _ in range(3)]
    results = (sums[0], x, x, *sums[1:], x, x)
    flags: dict[str, Any] = {"has_shift": False, "has_max": False, "has_min": False, "has_mean": True, "has_std": True}
    read = (x, x, lists.rowptr, lists.col)
    start(functions_kernel, launch, True, x, lists, *results, *read, **flags, closed=closed, piece=PIECE)
    nodes = lists.order[launch.last - launch.rows + 1 : launch.last + 1].flip(0)
    shape = (-1, launch.rows, x.size(-1))
    plain, apart, squares = (part.sum(0).view(shape) for part in sums)
    signal = x.view(-1, *x.shape[-2:])
    own = signal.index_select(-2, nodes).to(mean.dtype)
    center = own if closed else signal.index_select(-2, lists.col[lists.rowptr[nodes]]).to(mean.dtype)
    if closed:
        plain, squares = plain + own, squares + (own - center)
    count = num_members(lists, closed)[nodes].to(mean.dtype)
    apart = apart / count
    average = torch.where((center + apart).isnan(), plain / count, center + apart)
    mean.view(-1, *x.shape[-2:]).index_copy_(-2, nodes, average)
    if "std" in made:
        deviation = (squares / count - apart.square()).clamp(min=0).sqrt()
        made["std"].view(-1, *x.shape[-2:]).index_copy_(-2, nodes, deviation)


@on_its_device
def neighborhood_functions_backward_on_device(given: Tensor, *inputs: Any) -> Tensor:
    """See :func:`neighborhood_functions_backward`; ``given`` has the shape and type of the result."""
    *tensors, graph, closed = inputs
    out = allocate(given.shape, given.dtype, given.device)
    if out.numel():
        names = ("shift", "max", "min", "median", "mean", "std")
        flags: dict[str, Any] = {f"has_{name}": grad is not None for name, grad in zip(names, tensors, strict=False)}
        read = [given if tensor is None else tensor.contiguous() for tensor in tensors]
        lists, weight = graph.outgoing, graph.weight_t.contiguous()
        around = (weight, graph.incoming_slot, graph.incoming.rowptr, lists.rowptr, lists.col)
        launch_sums(
            functions_backward_kernel, out, given, lists, *read, *around, **flags, closed=closed, threads=THREADS
        )
    return out


def neighborhood_functions_backward(*inputs: Any) -> Tensor:
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`."""
    given = next(each for each in (*inputs[:4], inputs[11], *inputs[4:6]) if each is not None)
    return neighborhood_functions_backward_on_device(given.contiguous(), *inputs)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def functions_kernel(
    shifted, largest, smallest, mean, std, largest_slot, smallest_slot, x, weight, rowptr, col, order, count, last,
    rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr,
    ordered: tl.constexpr, batched: tl.constexpr, piece: tl.constexpr, closed: tl.constexpr, has_shift: tl.constexpr,
    has_max: tl.constexpr, has_min: tl.constexpr, has_mean: tl.constexpr, has_std: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.neighborhood_functions`.

    With ``piece``, programs read so many neighbours each, and write three sums, piece after piece: of the values into
    ``shifted``, of the differences to one of them into ``mean``, of their squares into ``std``.
    """
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask_own = alive[:, None] & inside[None, :]
    zero = tl.zeros((lanes, block), dtype=wide)
    total = zero
    plain = zero
    apart = zero
    squares = zero
    best = tl.full((lanes, block), float("-inf"), dtype=wide)
    least = tl.full((lanes, block), float("inf"), dtype=wide)
    best_slot = tl.zeros((lanes, block), dtype=tl.int32) + (enter - begin).to(tl.int32)[:, None]
    least_slot = best_slot
    itself = zero
    if closed:
        itself = tl.load(x + own, mask=mask_own, other=0.0).to(wide)
    center = itself
    if has_std and not closed:
        exists = begin < end
        first = tl.load(col + begin, mask=exists, other=0).to(tl.int64)
        at = ((base + first) * columns)[:, None] + column[None, :]
        center = tl.load(x + at, mask=exists[:, None] & inside[None, :], other=0.0).to(wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            j = tl.load(col + position, mask=there, other=0).to(tl.int64)
            at = ((base + j) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            value = tl.load(x + at, mask=mask, other=0.0).to(wide)
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
            if has_max:
                candidate = tl.where(mask, value, float("-inf"))
                best_slot = tl.where(candidate > best, slot, best_slot)
                best = more_extreme(best, candidate, True)
            if has_min:
                candidate = tl.where(mask, value, float("inf"))
                least_slot = tl.where(candidate < least, slot, least_slot)
                least = more_extreme(least, candidate, False)
    if shared:
        total = tl.sum(total, 0)[None, :] + zero
        plain = tl.sum(plain, 0)[None, :] + zero
        apart = tl.sum(apart, 0)[None, :] + zero
        squares = tl.sum(squares, 0)[None, :] + zero
    mask = writes[:, None] & inside[None, :]
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
        tl.store(shifted + own, plain, mask=mask)
        tl.store(mean + own, apart, mask=mask)
        tl.store(std + own, squares, mask=mask)
    else:
        listed = (end > begin)[:, None]
        if has_shift:
            tl.store(shifted + own, total.to(shifted.dtype.element_ty), mask=mask)
        if has_max:
            best, best_slot = resolve_selection(
                best, best_slot, x, col, base, begin, enter, stop, steps, column, inside, mask_own, columns, True,
                shared, lanes, block, wide
            )  # fmt: skip
            best = tl.where(listed, best, 0.0)
            if closed:
                best, best_slot = with_own(best, best_slot, itself, col, begin, end, node, True)
            tl.store(largest + own, best.to(largest.dtype.element_ty), mask=mask)
            tl.store(largest_slot + own, best_slot.to(largest_slot.dtype.element_ty), mask=mask)
        if has_min:
            least, least_slot = resolve_selection(
                least, least_slot, x, col, base, begin, enter, stop, steps, column, inside, mask_own, columns, False,
                shared, lanes, block, wide
            )  # fmt: skip
            least = tl.where(listed, least, 0.0)
            if closed:
                least, least_slot = with_own(least, least_slot, itself, col, begin, end, node, False)
            tl.store(smallest + own, least.to(smallest.dtype.element_ty), mask=mask)
            tl.store(smallest_slot + own, least_slot.to(smallest_slot.dtype.element_ty), mask=mask)
        if has_mean:
            members = end - begin
            if closed:
                members += 1
                plain += itself
                squares += itself - center
            number = tl.maximum(members, 1).to(wide)[:, None]
            average = plain / number
            if has_std:
                apart = apart / number
                variance = squares / number - apart * apart
                variance = tl.where(variance < 0, 0.0, variance)
                tl.store(std + own, tl.sqrt(variance), mask=mask)
                average = tl.where(center + apart == center + apart, center + apart, average)
            tl.store(mean + own, average, mask=mask)


@triton.jit(do_not_specialize=["count", "last", "rows"])
def functions_backward_kernel(
    out, grad_shifted, grad_max, grad_min, grad_median, grad_mean, grad_std, max_slot, min_slot, median_slot, mean,
    std, x, weight, incoming_slot, rowptr_in, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, piece: tl.constexpr, closed: tl.constexpr, has_shift: tl.constexpr, has_max: tl.constexpr,
    has_min: tl.constexpr, has_median: tl.constexpr, has_mean: tl.constexpr, has_std: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`."""
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    stride: tl.constexpr = lanes if shared else 1
    own = ((base + node) * columns)[:, None] + column[None, :]
    center = tl.zeros((lanes, block), dtype=wide)
    if has_std:
        center = tl.load(x + own, mask=alive[:, None] & inside[None, :], other=0.0).to(wide)
    total = tl.zeros((lanes, block), dtype=wide)
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            there = position < stop
            i = tl.load(col + position, mask=there, other=0).to(tl.int64)
            slot = tl.load(incoming_slot + position, mask=there, other=-1)
            at = ((base + i) * columns)[:, None] + column[None, :]
            mask = there[:, None] & inside[None, :]
            if has_shift:
                factor = tl.load(weight + position, mask=there, other=0.0).to(wide)
                total += factor[:, None] * tl.load(grad_shifted + at, mask=mask, other=0.0).to(wide)
            total += shares_of(
                center, at, mask, there, i, slot, grad_max, grad_min, grad_median, grad_mean, grad_std, max_slot,
                min_slot, median_slot, mean, std, rowptr_in, closed, has_max, has_min, has_median, has_mean, has_std,
                wide
            )  # fmt: skip
    if shared:
        total = tl.sum(total, 0)[None, :] + tl.zeros((lanes, block), dtype=wide)
    mask = writes[:, None] & inside[None, :]
    if closed and (piece == 0 or tl.program_id(2) == 0):
        listed = tl.load(rowptr_in + node + 1, mask=alive, other=0) - tl.load(rowptr_in + node, mask=alive, other=0)
        total += shares_of(
            center, own, mask, alive, node, listed.to(tl.int32), grad_max, grad_min, grad_median, grad_mean, grad_std,
            max_slot, min_slot, median_slot, mean, std, rowptr_in, closed, has_max, has_min, has_median, has_mean,
            has_std, wide
        )  # fmt: skip
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
    tl.store(out + own, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def shares_of(
    center, at, mask, there, i, slot, grad_max, grad_min, grad_median, grad_mean, grad_std, max_slot, min_slot,
    median_slot, mean, std, rowptr_in, closed: tl.constexpr, has_max: tl.constexpr, has_min: tl.constexpr,
    has_median: tl.constexpr, has_mean: tl.constexpr, has_std: tl.constexpr, wide: tl.constexpr
):  # fmt: skip
    """The sum of what node i, whose numbers are at ``at``, gives to the neighbour in a slot of its list."""
    total = tl.zeros(center.shape, dtype=wide)
    if has_max:
        total += share_of_selected(grad_max, max_slot, at, mask, slot, wide)
    if has_min:
        total += share_of_selected(grad_min, min_slot, at, mask, slot, wide)
    if has_median:
        total += share_of_selected(grad_median, median_slot, at, mask, slot, wide)
    if has_mean or has_std:
        members = tl.load(rowptr_in + i + 1, mask=there, other=1) - tl.load(rowptr_in + i, mask=there, other=0)
        if closed:
            members += 1
        number = tl.maximum(members, 1).to(wide)[:, None]
        if has_mean:
            total += tl.load(grad_mean + at, mask=mask, other=0.0).to(wide) / number
        if has_std:
            deviation = tl.load(std + at, mask=mask, other=0.0)
            divisor = tl.where(deviation == 0.0, 1.0, number * deviation)
            scale = tl.load(grad_std + at, mask=mask, other=0.0).to(wide) / divisor
            apart = center - tl.load(mean + at, mask=mask, other=0.0)
            total += tl.where(deviation == 0.0, 0.0, scale * apart)
    return total


@triton.jit
def share_of_selected(grad, selected_slot, at, mask, slot, wide: tl.constexpr):
    """A gradient where this slot was selected; it is read only there."""
    selected = mask & (tl.load(selected_slot + at, mask=mask, other=0).to(tl.int32) == slot[:, None])
    return tl.load(grad + at, mask=selected, other=0.0).to(wide)
