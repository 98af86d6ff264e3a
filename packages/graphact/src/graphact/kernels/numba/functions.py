"""Compiled passes that give functions of the neighbours' values and the shift at once, and their gradient.

What is not wanted is None, so that each combination is compiled for itself. See `lanes.py` for how kernels go through a
signal. In the backward pass every node gathers from those whose neighbour it is, so no two threads add to one number.
"""

from collections.abc import Collection

import numpy as np
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors, Lists
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
from graphact.kernels.numba.launch import Array, Layout, Number, Size, flat, helper, indices, kernel, layout_of
from graphact.kernels.numba.median import run_median
from graphact.kernels.reference import RESULTS, Results, first_given, wanted_results

ZERO, ONE = np.uint64(0), np.uint64(1)
RETURNED = tuple(name for name in RESULTS if "median" not in name)
ABSENT = (None,) * (len(RETURNED) - 1)
FEW = np.uint64(64)  # neighbours for which one pass gives the deviation to a few units of rounding
FAR = 17 / 16  # squared offset of the center over the mean square around it: four deviations


def neighborhood_functions(
    x: Tensor, graph: GraphTensors, ops: Collection[str], closed: bool, shifting: bool, max_degree: int
) -> dict[str, Tensor]:
    """See :func:`graphact.kernels.reference.neighborhood_functions`; the median comes from a pass of its own."""
    layout, types = layout_of(x), wanted_results(x, ops, shifting, max_degree)
    values, weights = layout.enter(x), (True, flat(graph.weight.to(layout.dtype))) if shifting else layout.nothing
    apart = [
        name
        for name in types
        if "median" in name or (shifting and name == "shift" and len(ops) == 1 and "median" in ops)
    ]
    found: dict[str, Tensor] = {}
    # memory is asked for pass by pass: all at once, it would go back to the system, page by page, after every call
    for names in (apart, [name for name in types if name not in apart]):
        kinds = {name: types[name] if "slot" in name else None for name in names}
        made = {name: layout.empty(dtype) for name, dtype in kinds.items()}
        arrays = {name: flat(result) for name, result in made.items()}
        options = weights if "shift" in made else layout.nothing
        if "median" in made:
            results = arrays["median"], arrays["median slot"], arrays.get("shift")
            run_median(layout, graph.incoming, *options, closed, False, values, *results)
        elif made:
            run_functions(layout, graph.incoming, *options, closed, values, arrays)
        found |= {name: layout.leave(result, types[name]) for name, result in made.items()}
    return found


def run_functions(
    layout: Layout, lists: Lists, shifting: bool, weight: Array, closed: bool, values: Array, found: dict[str, Array],
    by_node: bool = False
) -> None:  # fmt: skip
    """Write those results that have an array."""
    shifted, *others = (found.get(name) for name in RETURNED)
    shifted = layout.nothing[1] if shifted is None else shifted
    layout.run(functions_kernel, lists, shifting, weight, closed, by_node, values, shifted, *others)


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    layout = layout_of(x)
    out = layout.empty()
    weights = flat(weight.to(layout.dtype))
    layout.run(functions_kernel, lists, True, weights, False, False, layout.enter(x), flat(out), *ABSENT)
    return layout.leave(out)


def sum_sq_diff(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff`."""
    layout = layout_of(x)
    out = layout.empty()
    run_functions(layout, lists, *layout.nothing, False, layout.enter(x), {"kernel": flat(out)})
    return layout.leave(out, layout.dtype)


def neighborhood_functions_backward(grads: Results, saved: Results, graph: GraphTensors, closed: bool) -> Tensor:
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`."""
    given = first_given(grads, saved)
    layout = layout_of(given)
    out = layout.empty()
    arrays = {name: layout.enter(grad) for name, grad in grads.items()}
    selections = [op for op in ("max", "min", "median") if op in grads]
    for op in selections:
        slot = saved[f"{op} slot"]
        arrays[f"{op} slot"] = layout.enter(slot, slot.dtype)
    shares = dict.fromkeys(("mean", "std"))
    if "mean" in grads or "std" in grads:
        deviation = layout.enter(saved["std"]) if "std" in grads else None
        shares = {name: flat(layout.empty()) if name in grads else None for name in shares}
        wanted = arrays.get("mean"), arrays.get("std"), deviation
        layout.run(shares_kernel, graph.incoming, closed, *wanted, *shares.values())
    weights, following = layout.nothing, layout.nothing[1]
    if "shift" in grads:
        weights, following = (True, flat(graph.weight_t.to(layout.dtype))), arrays["shift"]
    selected = [arrays.get(f"{op}{part}") for op in ("max", "min", "median") for part in (" slot", "")]
    moments = [layout.enter(saved[name]) if "std" in grads else None for name in ("mean", "x")]
    around = indices(graph.incoming.rowptr), *weights, flat(graph.incoming_slot), closed
    read = following, *selected, *shares.values(), *moments
    layout.run(functions_backward_kernel, graph.outgoing, *around, *read, flat(out))
    return layout.leave(out, given.dtype)


@kernel
def functions_kernel(
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, shifting: bool, weight: Array,
    closed: bool, by_node: bool, x: Array, shifted: Array, largest: Array | None, smallest: Array | None,
    mean: Array | None, std: Array | None, distance: Array | None, largest_slot: Array | None,
    smallest_slot: Array | None, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """The functions that are wanted, over the neighbours of each node.

    A selected neighbour is given by its slot in the list or, ``by_node``, by its index. The lowest among ties is
    selected, the first NaN if there are any.
    """
    no_node = np.uint64(rowptr.size) - ONE if by_node else ZERO
    for task in range(first, last):
        base, i, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            look_ahead(x, col, edge, stop, ahead, base, columns, left, right)
        # the index of the node itself, and which of those selected come after it
        own_index, after = (i, i) if by_node else (stop - edge, rank(col, edge, stop, i) - edge if closed else ZERO)
        own_after_none = np.int32(own_index), np.int32(after), np.int32(no_node)
        results = shifted, largest, smallest, mean, std, distance, largest_slot, smallest_slot
        around = col, shifting, weight, closed, by_node, own_after_none
        over_blocks(_functions_block, left, right, lanes, (*around, x, *results, edge, stop, base, o, columns))


@helper
def _functions_block(
    low: Size, live: Size | None, col: Array, shifting: bool, weight: Array, closed: bool, by_node: bool,
    own_after_none: tuple[Number, Number, Number], x: Array, shifted: Array, largest: Array | None,
    smallest: Array | None, mean: Array | None, std: Array | None, distance: Array | None, largest_slot: Array | None,
    smallest_slot: Array | None, edge: Size, stop: Size, base: Size, o: Size, columns: Size
) -> None:  # fmt: skip
    own = load(x, o + low, live)
    zero = fill(x.dtype.type(0), own)
    total, plain, apart, squares, distances = zero, zero, zero, zero, zero
    best, least = fill(x.dtype.type(-np.inf), own), fill(x.dtype.type(np.inf), own)
    best_slot = fill(np.int32(col[edge] if by_node else ZERO) if stop > edge else own_after_none[2], own)
    least_slot = best_slot
    center = own
    if std is not None and stop > edge and not closed:
        center = load(x, (base + col[edge]) * columns + low, live)
    for e in range(edge, stop):
        value = load(x, (base + col[e]) * columns + low, live)
        total = total + (fill(weight[e], own) * value if shifting else value)
        if mean is not None:
            plain = plain + value
        if largest is not None:
            wins = value > best
            best = blend(wins, value, best)
            best_slot = blend(wins, fill(np.int32(col[e] if by_node else e - edge), own), best_slot)
        if smallest is not None:
            wins = value < least
            least = blend(wins, value, least)
            least_slot = blend(wins, fill(np.int32(col[e] if by_node else e - edge), own), least_slot)
        if std is not None:
            difference = value - center
            apart = apart + difference
            squares = squares + difference * difference
        if distance is not None:
            difference = own - value
            distances = distances + difference * difference
    if (largest is not None or smallest is not None) and some(total != total):  # so it is if a neighbour is NaN
        for back in range(edge, stop):
            e = stop - ONE - (back - edge)
            value = load(x, (base + col[e]) * columns + low, live)
            unknown, slot = value != value, fill(np.int32(col[e] if by_node else e - edge), own)
            best, best_slot = blend(unknown, value, best), blend(unknown, slot, best_slot)
            least, least_slot = blend(unknown, value, least), blend(unknown, slot, least_slot)
    members = stop - edge
    if std is not None and members > FEW:
        length = fill(x.dtype.type(members), own)
        offset = apart / length
        # the difference of squares and square cancels where the center is far from the mean
        if some(offset * offset * fill(x.dtype.type(FAR), own) > squares / length):
            center = center + offset
            apart, squares = zero, zero
            for e in range(edge, stop):
                difference = load(x, (base + col[e]) * columns + low, live) - center
                apart = apart + difference
                squares = squares + difference * difference
    if closed:
        itself, place = fill(own_after_none[0], own), fill(own_after_none[1], own)
        members += ONE
        plain = plain + own
        difference = own - center  # mostly 0, or NaN if it is not finite
        apart = apart + difference
        squares = squares + difference * difference
        unknown = own != own
        tied = ((own == best) | (unknown & (best != best))) & (best_slot >= place)
        wins = (own > best) | (unknown & (best == best)) | tied
        best, best_slot = blend(wins, own, best), blend(wins, itself, best_slot)
        tied = ((own == least) | (unknown & (least != least))) & (least_slot >= place)
        wins = (own < least) | (unknown & (least == least)) | tied
        least, least_slot = blend(wins, own, least), blend(wins, itself, least_slot)
    elif members == 0:
        best, least = zero, zero
    count = fill(x.dtype.type(max(members, ONE)), own)
    if shifting:
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
    if distance is not None:
        store(distance, o + low, live, distances)


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
    first: Size, last: Size, rowptr: Array, col: Array, ahead: Size, lanes: Size, ends: Array, shifting: bool,
    weight: Array, incoming_slot: Array, closed: bool, grad_shifted: Array, max_slot: Array | None,
    grad_max: Array | None, min_slot: Array | None, grad_min: Array | None, median_slot: Array | None,
    grad_median: Array | None, mean_share: Array | None, std_share: Array | None, mean: Array | None, x: Array | None,
    out: Array, columns: Size, number: Size, width: Size
) -> None:  # fmt: skip
    """The sum of what each node gets from those whose neighbour it is, and from itself in a closed neighbourhood."""
    read = max_slot, grad_max, min_slot, grad_min, median_slot, grad_median, mean_share, std_share, mean
    for task in range(first, last):
        base, j, o, edge, stop, left, right = row_of(task, rowptr, columns, number, width)
        if ahead:
            row = col, edge, stop, ahead, base, columns, left, right
            if shifting:
                look_ahead(grad_shifted, *row)
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
        around = col, shifting, weight, incoming_slot, closed, end, grad_shifted
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
    low: Size, live: Size | None, col: Array, shifting: bool, weight: Array, incoming_slot: Array, closed: bool,
    end: Number, grad_shifted: Array, max_slot: Array | None, grad_max: Array | None, min_slot: Array | None,
    grad_min: Array | None, median_slot: Array | None, grad_median: Array | None, mean_share: Array | None,
    std_share: Array | None, mean: Array | None, x: Array | None, out: Array, edge: Size, stop: Size, base: Size,
    o: Size, columns: Size
) -> None:  # fmt: skip
    zero = fill(out.dtype.type(0), load(out, o + low, live))
    total, own = zero, zero
    if x is not None:
        own = load(x, o + low, live)
    read = max_slot, grad_max, min_slot, grad_min, median_slot, grad_median, mean_share, std_share, mean, own
    if closed:
        total = _add_shares(total, o + low, live, end, *read)
    for e in range(edge, stop):
        at = (base + col[e]) * columns + low
        total = _add_shares(total, at, live, incoming_slot[e], *read)
        if shifting:
            total = total + fill(weight[e], zero) * load(grad_shifted, at, live)
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
