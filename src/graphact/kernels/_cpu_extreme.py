"""Compiled maxima and minima of neighbours. See `_cpu_walk.py` for how they go through a signal."""

import numpy as np

from graphact.kernels._cpu_lanes import ALL, fill, load, select, some, store
from graphact.kernels._cpu_run import Array, Number, Size, helper, kernel
from graphact.kernels._cpu_walk import look_ahead, rank, row_of, whole_blocks

ZERO, ONE = np.uint64(0), np.uint64(1)


@kernel
def extreme(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    ahead: Size,
    lanes: Size,
    shifting: bool,
    weight: Array,
    flip: Number | None,
    closed: bool,
    named: bool,
    x: Array,
    out: Array,
    chosen: Array,
    shifted: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """The maximum of ``x`` over neighbours, which of them it is and, if it is wanted, the shift.

    The chosen neighbour is given by its name or by its place in the list. The lowest among ties is chosen, the first
    NaN if there are any.
    """
    nobody = np.uint64(pointers.size) - ONE if named else ZERO
    for task in range(first, last):
        base, i, left, right = row_of(task, pointers, columns, number, width)
        edge, stop, o = pointers[i], pointers[i + ONE], (base + i) * columns
        if ahead:
            look_ahead(x, members, edge, stop, ahead, base, columns, left, right)
        # what the node itself is called, and which of those chosen come after it
        self_called, after = (i, i) if named else (stop - edge, rank(members, edge, stop, i) - edge if closed else ZERO)
        names = np.int32(self_called), np.int32(after), np.int32(nobody)
        cut = whole_blocks(left, right, lanes)
        for low in range(left, cut, lanes):
            _extreme(
                members,
                shifting,
                weight,
                flip,
                closed,
                named,
                names,
                x,
                out,
                chosen,
                shifted,
                edge,
                stop,
                base,
                o,
                columns,
                low,
                ALL,
            )
        if cut < right:
            _extreme(
                members,
                shifting,
                weight,
                flip,
                closed,
                named,
                names,
                x,
                out,
                chosen,
                shifted,
                edge,
                stop,
                base,
                o,
                columns,
                cut,
                right - cut,
            )


@helper
def _extreme(
    members: Array,
    shifting: bool,
    weight: Array,
    flip: Number | None,
    closed: bool,
    named: bool,
    names: tuple[Number, Number, Number],
    x: Array,
    out: Array,
    chosen: Array,
    shifted: Array,
    edge: Size,
    stop: Size,
    base: Size,
    o: Size,
    columns: Size,
    low: Size,
    live: Size | None,
) -> None:
    own = load(x, o + low, live)
    total = fill(x.dtype.type(0), own)
    best = fill(x.dtype.type(-np.inf), own)
    name = fill(np.int32(members[edge] if named else ZERO) if stop > edge else names[2], own)
    for e in range(edge, stop):
        value = load(x, (base + members[e]) * columns + low, live)
        total = total + (fill(weight[e], own) * value if shifting else value)
        if flip is not None:
            value = fill(flip, own) * value
        wins = value > best
        best = select(wins, value, best)
        name = select(wins, fill(np.int32(members[e] if named else e - edge), own), name)
    if some(total != total):  # so it is if a neighbour is NaN
        for back in range(edge, stop):
            e = stop - ONE - (back - edge)
            value = load(x, (base + members[e]) * columns + low, live)
            best = select(value != value, value, best)
            name = select(value != value, fill(np.int32(members[e] if named else e - edge), own), name)
    if closed:
        if flip is not None:
            own = fill(flip, own) * own
        both_nan = (own != own) & (best != best)
        tied = ((own == best) | both_nan) & (name >= fill(names[1], own))
        wins = (own > best) | ((own != own) & (best == best)) | tied
        best = select(wins, own, best)
        name = select(wins, fill(names[0], own), name)
    if flip is not None:
        best = fill(flip, own) * best
    if stop == edge and not closed:
        best = fill(x.dtype.type(0), own)
    store(out, o + low, live, best)
    store(chosen, o + low, live, name)
    if shifting:
        store(shifted, o + low, live, total)
