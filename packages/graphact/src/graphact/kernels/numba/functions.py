"""Compiled passes that give several functions of the neighbours' values and the shift at once, and their gradient.

What is not wanted is None, so that each combination is compiled for itself. See `lanes.py` for how kernels go through a
signal. In the backward pass every node gathers from those whose neighbour it is, so no two threads add to one number.
"""

from typing import Any

import numpy as np
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors
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
from graphact.kernels.numba.launch import Array, Number, Size, flat, helper, indices, kernel, layout_of
from graphact.kernels.numba.shift import fused_neighbor_pass, hop_backward
from graphact.kernels.reference import RESULTS, complete_results, select_apart, wanted_results

ONE = np.uint64(1)


def neighborhood_functions(
    x: Tensor, graph: GraphTensors, ops: str, closed: bool, shifting: bool, max_degree: int
) -> tuple[Tensor, ...]:
    """See :func:`graphact.kernels.reference.neighborhood_functions`.

    The median comes from a pass of its own, and so does a single function.
    """
    layout, types = layout_of(x), wanted_results(x, ops, shifting, max_degree)
    found = select_apart(fused_neighbor_pass, x, graph, ops, closed, shifting, max_degree)
    made = {
        name: layout.empty(None if dtype.is_floating_point else dtype)
        for name, dtype in types.items()
        if name not in found
    }
    if made:
        weight = flat(graph.weight.to(layout.dtype)) if "shift" in made else None
        arrays = [flat(made[name]) if name in made else None for name in RESULTS if "median" not in name]
        layout.run(functions_kernel, graph.incoming, weight, closed, layout.enter(x), *arrays)
    return complete_results(x, found | {name: layout.leave(result, types[name]) for name, result in made.items()})


def neighborhood_functions_backward(*inputs: Any) -> Tensor:
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`."""
    *tensors, graph, closed = inputs
    selected = [pair for pair in zip(tensors[1:4], tensors[6:9], strict=True) if pair[0] is not None]
    if len(selected) == 1 and tensors[4] is None and tensors[5] is None:
        return hop_backward(*selected[0], tensors[0], graph, closed)
    given = next(each for each in (*tensors[:4], tensors[11], *tensors[4:6]) if each is not None)
    layout = layout_of(given)
    out, slot_type = layout.empty(), next((slot.dtype for slot in tensors[6:9] if slot is not None), None)
    kinds = [slot_type if 6 <= at < 9 else None for at in range(12)]
    arrays = [None if each is None else layout.enter(each, kind) for each, kind in zip(tensors, kinds, strict=True)]
    shifted, *selections, grad_mean, grad_std = arrays[:6]
    mean, std, x = arrays[9:]
    shares = [None if grad is None else flat(layout.empty()) for grad in (grad_mean, grad_std)]
    if grad_mean is not None or grad_std is not None:
        layout.run(shares_kernel, graph.incoming, closed, grad_mean, grad_std, std, *shares)
    weight = None if shifted is None else flat(graph.weight_t.to(layout.dtype))
    around = indices(graph.incoming.rowptr), flat(graph.incoming_slot), weight, closed
    read = shifted, *selections, *arrays[6:9], *shares, mean, x
    layout.run(functions_backward_kernel, graph.outgoing, *around, *read, flat(out))
    return layout.leave(out, given.dtype)


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
        wins = (
            (own > best)
            | (unknown & (best == best))
            | (((own == best) | (unknown & (best != best))) & (best_slot >= place))
        )
        best, best_slot = blend(wins, own, best), blend(wins, itself, best_slot)
        wins = (
            (own < least)
            | (unknown & (least == least))
            | (((own == least) | (unknown & (least != least))) & (least_slot >= place))
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
def shares_kernel(
    first: Size, last: Size, rowptr: Array, _col: Array, _ahead: Size, lanes: Size, closed: bool,
    grad_mean: Array | None, grad_std: Array | None, std: Array | None, mean_share: Array | None,
    std_share: Array | None, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """``grad_mean / d`` and ``grad_std / (d std)``, 0 where the deviation is."""
    for task in range(first, last):
        _, _, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        members = max(stop - edge + np.uint64(closed), ONE)
        over_blocks(_shares_block, left, right, lanes, (members, grad_mean, grad_std, std, mean_share, std_share, o))


@helper
def _shares_block(
    low: Size, live: Size | None, members: Size, grad_mean: Array | None, grad_std: Array | None, std: Array | None,
    mean_share: Array | None, std_share: Array | None, o: Size
) -> None:  # fmt: skip
    if grad_mean is not None:
        grad = load(grad_mean, o + low, live)
        store(mean_share, o + low, live, grad / fill(grad_mean.dtype.type(members), grad))
    if grad_std is not None:
        grad, spread = load(grad_std, o + low, live), load(std, o + low, live)
        share = grad / (fill(grad_std.dtype.type(members), grad) * spread)
        zero = fill(grad_std.dtype.type(0), grad)
        store(std_share, o + low, live, blend(spread == zero, zero, share))


@kernel
def functions_backward_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, ends: Array, incoming_slot: Array,
    weight: Array | None, closed: bool, grad_shifted: Array | None, grad_max: Array | None, grad_min: Array | None,
    grad_median: Array | None, max_slot: Array | None, min_slot: Array | None, median_slot: Array | None,
    mean_share: Array | None, std_share: Array | None, mean: Array | None, x: Array | None, out: Array, columns: Size,
    number: Size, width: Size
) -> None:  # fmt: skip
    """The sum of what each node gets from those whose neighbour it is, and from itself in a closed neighbourhood."""
    read = grad_shifted, grad_max, grad_min, grad_median, max_slot, min_slot, median_slot, mean_share, std_share, mean
    for task in range(first, last):
        base, j, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            row = col, edge, stop, ahead, base, columns, left, right
            _look_ahead_in(grad_shifted, *row)
            _look_ahead_in(max_slot, *row)
            _look_ahead_in(grad_max, *row)
            _look_ahead_in(min_slot, *row)
            _look_ahead_in(grad_min, *row)
            _look_ahead_in(median_slot, *row)
            _look_ahead_in(grad_median, *row)
            _look_ahead_in(mean_share, *row)
            _look_ahead_in(std_share, *row)
            _look_ahead_in(mean, *row)
        end = np.int32(ends[j + ONE] - ends[j])
        around = col, incoming_slot, weight, closed, end
        over_blocks(_backward_block, left, right, lanes, (*around, *read, x, out, edge, stop, base, o, columns))


@helper
def _look_ahead_in(
    signal: Array | None, col: Array, edge: Size, stop: Size, ahead: Size, base: Size, columns: Size, left: Size,
    right: Size
) -> None:  # fmt: skip
    if signal is not None:
        look_ahead(signal, col, edge, stop, ahead, base, columns, left, right)


@helper
def _backward_block(
    low: Size, live: Size | None, col: Array, incoming_slot: Array, weight: Array | None, closed: bool, end: Number,
    grad_shifted: Array | None, grad_max: Array | None, grad_min: Array | None, grad_median: Array | None,
    max_slot: Array | None, min_slot: Array | None, median_slot: Array | None, mean_share: Array | None,
    std_share: Array | None, mean: Array | None, x: Array | None, out: Array, edge: Size, stop: Size, base: Size,
    o: Size, columns: Size
) -> None:  # fmt: skip
    zero = fill(out.dtype.type(0), load(out, o + low, live))
    total, own = zero, zero
    if x is not None:
        own = load(x, o + low, live)
    selected = max_slot, grad_max, min_slot, grad_min, median_slot, grad_median
    for e in range(edge, stop):
        at = (base + col[e]) * columns + low
        if weight is not None:
            total = total + fill(weight[e], zero) * load(grad_shifted, at, live)
        total = _add_shares(total, at, live, incoming_slot[e], *selected, mean_share, std_share, mean, own)
    if closed:
        total = _add_shares(total, o + low, live, end, *selected, mean_share, std_share, mean, own)
    store(out, o + low, live, total)


@helper
def _add_shares(
    total: Array, at: Size, live: Size | None, slot: Number, max_slot: Array | None, grad_max: Array | None,
    min_slot: Array | None, grad_min: Array | None, median_slot: Array | None, grad_median: Array | None,
    mean_share: Array | None, std_share: Array | None, mean: Array | None, own: Array
) -> Array:  # fmt: skip
    """Add what the node at ``at`` gives to its neighbour in a slot of its list."""
    if grad_max is not None:
        total = total + _if_selected(max_slot, grad_max, at, live, slot, total)
    if grad_min is not None:
        total = total + _if_selected(min_slot, grad_min, at, live, slot, total)
    if grad_median is not None:
        total = total + _if_selected(median_slot, grad_median, at, live, slot, total)
    if mean_share is not None:
        total = total + load(mean_share, at, live)
    if std_share is not None:
        total = total + load(std_share, at, live) * (own - load(mean, at, live))
    return total


@helper
def _if_selected(selected: Array, grad: Array, at: Size, live: Size | None, slot: Number, like: Array) -> Array:
    """The gradient where this slot was selected, else 0."""
    here = load_beside(selected, at, live, like) == fill(selected.dtype.type(slot), like)
    return blend(here, load(grad, at, live), fill(grad.dtype.type(0), like))
