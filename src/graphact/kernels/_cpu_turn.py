"""The compiled way back: what flows from those who chose to those who were chosen, and through the shift.

Every node looks at those whose neighbour it is and takes what is meant for it, so nothing is added to by two threads,
and no order is left to chance.
"""

import numpy as np

from graphact.kernels._cpu_lanes import ALL, fill, load, load_beside, select, store
from graphact.kernels._cpu_run import Array, Number, Size, helper, kernel
from graphact.kernels._cpu_walk import look_ahead, row_of, whole_blocks

ONE = np.uint64(1)


@kernel
def turn(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    ahead: Size,
    lanes: Size,
    ends: Array,
    shifting: bool,
    weight: Array,
    positions: Array,
    closed: bool,
    grad: Array,
    places: Array,
    grad_shifted: Array,
    out: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """``out[j] = sum_i [places[i] = position of j in the list of i] grad[i] + weight[i, j] grad_shifted[i]``.

    In closed neighbourhoods a node that chose itself, the place at the end of its list, keeps what it sends.
    """
    for task in range(first, last):
        base, j, left, right = row_of(task, pointers, columns, number, width)
        edge, stop, o = pointers[j], pointers[j + ONE], (base + j) * columns
        if ahead:
            look_ahead(grad, members, edge, stop, ahead, base, columns, left, right)
            look_ahead(places, members, edge, stop, ahead, base, columns, left, right)
            if shifting:
                look_ahead(grad_shifted, members, edge, stop, ahead, base, columns, left, right)
        cut = whole_blocks(left, right, lanes)
        end = np.int32(ends[j + ONE] - ends[j])
        for low in range(left, cut, lanes):
            _turn(
                members,
                shifting,
                weight,
                positions,
                closed,
                end,
                grad,
                places,
                grad_shifted,
                out,
                edge,
                stop,
                base,
                o,
                columns,
                low,
                ALL,
            )
        if cut < right:
            _turn(
                members,
                shifting,
                weight,
                positions,
                closed,
                end,
                grad,
                places,
                grad_shifted,
                out,
                edge,
                stop,
                base,
                o,
                columns,
                cut,
                right - cut,
            )


@helper
def _turn(
    members: Array,
    shifting: bool,
    weight: Array,
    positions: Array,
    closed: bool,
    end: Number,
    grad: Array,
    places: Array,
    grad_shifted: Array,
    out: Array,
    edge: Size,
    stop: Size,
    base: Size,
    o: Size,
    columns: Size,
    low: Size,
    live: Size | None,
) -> None:
    own = load(grad, o + low, live)
    zero = fill(grad.dtype.type(0), own)
    total = zero
    if closed:
        total = select(load_beside(places, o + low, live, own) == fill(places.dtype.type(end), own), own, zero)
    for e in range(edge, stop):
        at = (base + members[e]) * columns + low
        here = load_beside(places, at, live, own) == fill(places.dtype.type(positions[e]), own)
        total = total + select(here, load(grad, at, live), zero)
        if shifting:
            total = total + fill(weight[e], own) * load(grad_shifted, at, live)
    store(out, o + low, live, total)
