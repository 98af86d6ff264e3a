"""Compiled passes that give several functions of the neighbours' values and the shift at once, and their gradient.

What is not wanted is None, so that each combination is compiled for itself. See `lanes.py` for how kernels go through a
signal. In the backward pass every node adds to the gradients of its neighbours, whose rows it alone reads once; threads
have their own columns or nodes to add to, so no order is left to chance.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors
from graphact.kernels.numba import launch
from graphact.kernels.numba.lanes import (
    blend,
    fill,
    load,
    load_beside,
    look_ahead,
    over_blocks,
    rank,
    row_of,
    some,
    square_root,
    store,
)
from graphact.kernels.numba.launch import WIDEST, Array, Layout, Number, Size, flat, helper, indices, kernel, layout_of
from graphact.kernels.numba.shift import fused_neighbor_pass
from graphact.kernels.reference import SELECTIONS, has_mean, slot_dtype

ONE = np.uint64(1)


def neighborhood_functions(
    x: Tensor, graph: GraphTensors, ops: str, closed: bool, shifting: bool, max_degree: int
) -> tuple[Tensor, ...]:
    """See :func:`graphact.kernels.reference.neighborhood_functions`; the median comes from a pass of its own."""
    layout, names, nothing = layout_of(x), ops.split(","), x.new_empty(0)
    slots = dict.fromkeys(SELECTIONS, nothing.byte())
    results = {"median": nothing}
    if "median" in names:
        alone = shifting and len(names) == 1
        results["median"], slots["median"], shifted = fused_neighbor_pass(x, graph, "median", closed, alone, max_degree)
        if len(names) == 1:
            results["shift"], shifting = shifted, False
    wanted = {"shift": shifting, "max": "max" in names, "min": "min" in names, "mean": has_mean(ops), "std": "std" in names}
    made = {op: layout.empty() if is_wanted else None for op, is_wanted in wanted.items()}
    made_slots = {op: layout.empty(slot_dtype(max_degree)) if wanted[op] else None for op in ("max", "min")}
    if any(wanted.values()):
        weight = flat(graph.weight.to(layout.dtype)) if shifting else None
        arrays = [None if each is None else flat(each) for each in (*made.values(), *made_slots.values())]
        layout.run(functions_kernel, graph.incoming, weight, closed, layout.enter(x), *arrays)
    for op, each in made.items():
        dtype = layout.dtype if op in ("mean", "std") else x.dtype
        results.setdefault(op, nothing.to(dtype) if each is None else layout.leave(each, dtype))
    slots |= {op: layout.leave(each, each.dtype) for op, each in made_slots.items() if each is not None}
    order = ("shift", *SELECTIONS, "mean", "std")
    return *(results[op] for op in order), *(slots[op] for op in SELECTIONS)


def neighborhood_functions_backward(*inputs: Any) -> Tensor:
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`."""
    *tensors, graph, closed = inputs
    given = next(each for each in (*tensors[:4], tensors[11], *tensors[4:6]) if each is not None)
    layout = layout_of(given)
    out = layout.empty()
    if out.numel():
        slots = tensors[6:9]
        arrays = [
            None if each is None else layout.enter(each, each.dtype if any(each is slot for slot in slots) else None)
            for each in tensors
        ]
        weight = None if tensors[0] is None else flat(graph.weight.to(layout.dtype))
        work, before, after = _cut_for_threads(layout, graph)
        launch.run(functions_backward_kernel, work, *before, weight, closed, *arrays, flat(out), *after)
    return layout.leave(out)


def _cut_for_threads(layout: Layout, graph: GraphTensors) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """Tasks with their own columns and, where there are too few, their own nodes to add to; the kernel's sizes."""
    _, (rowptr, col, ahead, lanes), _ = layout.sizes(graph.incoming)
    numbers = (col.size + layout.nodes) * layout.samples * layout.columns
    threads = torch.get_num_threads() if numbers >= launch.SMALL else 1
    number, width = launch.sections(layout.columns, min(WIDEST, max(16, layout.columns * layout.samples // threads)))
    parts = -(-threads // (layout.samples * number))
    ends = indices(graph.outgoing.rowptr) + np.arange(layout.nodes + 1, dtype=np.uint64)
    cuts = np.searchsorted(ends, np.linspace(0, int(ends[-1]), parts + 1)).astype(np.uint64)
    work = [(np.uint64(task), np.uint64(task + 1)) for task in range(layout.samples * number * parts)]
    sizes = tuple(np.uint64(size) for size in (layout.columns, number, width))
    return work, (rowptr, col, ahead, lanes, cuts), sizes


@kernel
def functions_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, weight: Array | None, closed: bool,
    x: Array, shifted: Array | None, largest: Array | None, smallest: Array | None, mean: Array | None,
    std: Array | None, largest_slot: Array | None, smallest_slot: Array | None, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """The functions that are wanted, over the neighbours of each node."""
    for task in range(first, last):
        base, i, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
        after = np.int32(rank(col, edge, stop, i) - edge) if closed else np.int32(0)
        results = shifted, largest, smallest, mean, std, largest_slot, smallest_slot
        over_blocks(
            _functions_block, left, right, lanes,
            (col, weight, closed, after, x, *results, edge, stop, base, o, columns),
        )  # fmt: skip


@helper
def _functions_block(
    low: Size, live: Size | None, col: Array, weight: Array | None, closed: bool, after: Number, x: Array,
    shifted: Array | None, largest: Array | None, smallest: Array | None, mean: Array | None, std: Array | None,
    largest_slot: Array | None, smallest_slot: Array | None, edge: Size, stop: Size, base: Size, o: Size, columns: Size
) -> None:  # fmt: skip
    own = load(x, o + low, live)
    zero = fill(x.dtype.type(0), own)
    total, plain, apart, squares = zero, zero, zero, zero
    best, least = fill(x.dtype.type(-np.inf), own), fill(x.dtype.type(np.inf), own)
    best_slot = fill(np.int32(0), own)
    least_slot = best_slot
    center = own
    if stop > edge and not closed:
        center = load(x, (base + col[edge]) * columns + low, live)
    for e in range(edge, stop):
        value = load(x, (base + col[e]) * columns + low, live)
        plain = plain + value
        if weight is not None:
            total = total + fill(weight[e], own) * value
        if largest is not None:
            wins = value > best
            best = blend(wins, value, best)
            best_slot = blend(wins, fill(np.int32(e - edge), own), best_slot)
        if smallest is not None:
            wins = value < least
            least = blend(wins, value, least)
            least_slot = blend(wins, fill(np.int32(e - edge), own), least_slot)
        if std is not None:
            difference = value - center
            apart = apart + difference
            squares = squares + difference * difference
    if some(plain != plain) and (largest is not None or smallest is not None):  # so it is if a neighbour is NaN
        for back in range(edge, stop):
            e = stop - ONE - (back - edge)
            value = load(x, (base + col[e]) * columns + low, live)
            unknown, slot = value != value, fill(np.int32(e - edge), own)
            best, best_slot = blend(unknown, value, best), blend(unknown, slot, best_slot)
            least, least_slot = blend(unknown, value, least), blend(unknown, slot, least_slot)
    members = stop - edge
    if closed:
        itself, place = fill(np.int32(members), own), fill(after, own)
        members += ONE
        plain = plain + own
        squares = squares + (own - center)  # 0, or NaN if it is not finite
        unknown = own != own
        wins = (own > best) | (unknown & (best == best)) | (((own == best) | (unknown & (best != best))) & (best_slot >= place))
        best, best_slot = blend(wins, own, best), blend(wins, itself, best_slot)
        wins = (own < least) | (unknown & (least == least)) | (
            ((own == least) | (unknown & (least != least))) & (least_slot >= place)
        )
        least, least_slot = blend(wins, own, least), blend(wins, itself, least_slot)
    elif members == 0:
        best, least = zero, zero
    count = fill(x.dtype.type(max(members, ONE)), own)
    if weight is not None:
        store(shifted, o + low, live, total)
    if largest is not None:
        store(largest, o + low, live, best)
        store(largest_slot, o + low, live, best_slot)
    if smallest is not None:
        store(smallest, o + low, live, least)
        store(smallest_slot, o + low, live, least_slot)
    if std is not None:
        apart = apart / count
        variance = squares / count - apart * apart
        store(std, o + low, live, square_root(blend(variance < zero, zero, variance)))
        average = center + apart if members > 0 else zero
        store(mean, o + low, live, blend(average == average, average, plain / count))
    elif mean is not None:
        store(mean, o + low, live, plain / count)


@kernel
def functions_backward_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, cuts: Array, weight: Array | None,
    closed: bool, grad_shifted: Array | None, grad_max: Array | None, grad_min: Array | None,
    grad_median: Array | None, grad_mean: Array | None, grad_std: Array | None, max_slot: Array | None,
    min_slot: Array | None, median_slot: Array | None, mean: Array | None, std: Array | None, x: Array | None,
    out: Array, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """Add what each node owes to the gradients of its neighbours; a task counts nodes ``cuts`` of a plane."""
    nodes, parts = np.uint64(rowptr.size) - ONE, np.uint64(cuts.size) - ONE
    for task in range(first, last):
        plane, begin, end = task // parts, cuts[task % parts], cuts[task % parts + ONE]
        for j in range(begin, end):
            _, _, o, _, _, left, right = row_of(plane * nodes + j, rowptr, columns, number, width)
            for c in range(o + left, o + right):
                out[c] = 0
        for i in range(nodes):
            base, _, o, start, stop, left, right = row_of(plane * nodes + i, rowptr, columns, number, width)
            edge, members = start, stop - start
            if parts > ONE:
                edge, stop = rank(col, start, stop, begin), rank(col, start, stop, end)
            adds_to_own = closed and begin <= i < end
            if edge == stop and not adds_to_own:
                continue
            if ahead:
                look_ahead(out, col, edge, stop, ahead, base, columns, left, right)
                if x is not None:
                    look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
            grads = grad_shifted, grad_max, grad_min, grad_median, grad_mean, grad_std
            rest = max_slot, min_slot, median_slot, mean, std, x, out
            row = closed, adds_to_own, start, members, edge, stop, base, o, columns
            over_blocks(_functions_backward_block, left, right, lanes, (col, weight, *grads, *rest, *row))


@helper
def _functions_backward_block(
    low: Size, live: Size | None, col: Array, weight: Array | None, grad_shifted: Array | None,
    grad_max: Array | None, grad_min: Array | None, grad_median: Array | None, grad_mean: Array | None,
    grad_std: Array | None, max_slot: Array | None, min_slot: Array | None, median_slot: Array | None,
    mean: Array | None, std: Array | None, x: Array | None, out: Array, closed: bool, adds_to_own: bool, start: Size,
    members: Size, edge: Size, stop: Size, base: Size, o: Size, columns: Size
) -> None:  # fmt: skip
    at_own = o + low
    zero = fill(out.dtype.type(0), load(out, at_own, live))
    count = fill(out.dtype.type(max(members + (ONE if closed else ONE - ONE), ONE)), zero)
    shared, scale, middle = zero, zero, zero
    if grad_mean is not None:
        shared = load(grad_mean, at_own, live) / count
    if grad_std is not None:
        middle, spread = load(mean, at_own, live), load(std, at_own, live)
        scale = blend(spread == zero, zero, load(grad_std, at_own, live) / (count * spread))
    for e in range(edge, stop + ONE if adds_to_own else stop):
        at = (base + col[e]) * columns + low if e < stop else at_own
        slot = e - start if e < stop else members
        total = load(out, at, live)
        if weight is not None and e < stop:
            total = total + fill(weight[e], zero) * load(grad_shifted, at_own, live)
        if grad_max is not None:
            here = load_beside(max_slot, at_own, live, zero) == fill(max_slot.dtype.type(slot), zero)
            total = total + blend(here, load(grad_max, at_own, live), zero)
        if grad_min is not None:
            here = load_beside(min_slot, at_own, live, zero) == fill(min_slot.dtype.type(slot), zero)
            total = total + blend(here, load(grad_min, at_own, live), zero)
        if grad_median is not None:
            here = load_beside(median_slot, at_own, live, zero) == fill(median_slot.dtype.type(slot), zero)
            total = total + blend(here, load(grad_median, at_own, live), zero)
        if grad_mean is not None:
            total = total + shared
        if grad_std is not None:
            total = total + scale * (load(x, at, live) - middle)
        store(out, at, live, total)
