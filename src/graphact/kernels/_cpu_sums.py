"""Compiled sums over neighbours. See `_cpu_walk.py` for how they go through a signal."""

from functools import partial

import numpy as np

from graphact.kernels._cpu_lanes import ALL, fill, load, store
from graphact.kernels._cpu_run import Array, Size, helper, kernel
from graphact.kernels._cpu_walk import look_ahead, row_of, whole_blocks

ZERO, ONE = np.uint64(0), np.uint64(1)


@kernel
def shift(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    ahead: Size,
    lanes: Size,
    weight: Array,
    x: Array,
    out: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """``out[i] = sum_j weight[i, j] x[j]``."""
    for task in range(first, last):
        base, i, left, right = row_of(task, pointers, columns, number, width)
        edge, stop, o = pointers[i], pointers[i + ONE], (base + i) * columns
        if ahead:
            look_ahead(x, members, edge, stop, ahead, base, columns, left, right)
        cut = whole_blocks(left, right, lanes)
        for low in range(left, cut, lanes):
            _shift(members, weight, x, out, edge, stop, base, o, columns, low, ALL)
        if cut < right:
            _shift(members, weight, x, out, edge, stop, base, o, columns, cut, right - cut)


@helper
def _shift(
    members: Array,
    weight: Array,
    x: Array,
    out: Array,
    edge: Size,
    stop: Size,
    base: Size,
    o: Size,
    columns: Size,
    low: Size,
    live: Size | None,
) -> None:
    total = fill(x.dtype.type(0), load(x, o + low, live))
    for e in range(edge, stop):
        total = total + fill(weight[e], total) * load(x, (base + members[e]) * columns + low, live)
    store(out, o + low, live, total)


@kernel
def spread(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    ahead: Size,
    lanes: Size,
    shifting: bool,
    weight: Array,
    x: Array,
    out: Array,
    shifted: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """``out[i] = sum_j (x[i] - x[j])^2`` and, if it is wanted, the shift."""
    for task in range(first, last):
        base, i, left, right = row_of(task, pointers, columns, number, width)
        edge, stop, o = pointers[i], pointers[i + ONE], (base + i) * columns
        if ahead:
            look_ahead(x, members, edge, stop, ahead, base, columns, left, right)
        cut = whole_blocks(left, right, lanes)
        for low in range(left, cut, lanes):
            _spread(members, shifting, weight, x, out, shifted, edge, stop, base, o, columns, low, ALL)
        if cut < right:
            _spread(members, shifting, weight, x, out, shifted, edge, stop, base, o, columns, cut, right - cut)


@helper
def _spread(
    members: Array,
    shifting: bool,
    weight: Array,
    x: Array,
    out: Array,
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
    squares = fill(x.dtype.type(0), own)
    total = squares
    for e in range(edge, stop):
        value = load(x, (base + members[e]) * columns + low, live)
        apart = own - value
        squares = squares + apart * apart
        if shifting:
            total = total + fill(weight[e], own) * value
    store(out, o + low, live, squares)
    if shifting:
        store(shifted, o + low, live, total)


@kernel
def pull(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    ahead: Size,
    lanes: Size,
    seen_by_pointers: Array,
    seen_by: Array,
    grad: Array,
    x: Array,
    out: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """``out[i] = grad[i] sum_j (x[i] - x[j]) + sum_l grad[l] (x[i] - x[l])``."""
    for task in range(first, last):
        base, i, left, right = row_of(task, pointers, columns, number, width)
        edge, stop, o = pointers[i], pointers[i + ONE], (base + i) * columns
        begin, end = seen_by_pointers[i], seen_by_pointers[i + ONE]
        if ahead:
            look_ahead(x, members, edge, stop, ahead, base, columns, left, right)
            look_ahead(x, seen_by, begin, end, ahead, base, columns, left, right)
            look_ahead(grad, seen_by, begin, end, ahead, base, columns, left, right)
        cut = whole_blocks(left, right, lanes)
        for low in range(left, cut, lanes):
            _pull(members, seen_by, grad, x, out, edge, stop, begin, end, base, o, columns, low, ALL)
        if cut < right:
            _pull(members, seen_by, grad, x, out, edge, stop, begin, end, base, o, columns, cut, right - cut)


@helper
def _pull(
    members: Array,
    seen_by: Array,
    grad: Array,
    x: Array,
    out: Array,
    edge: Size,
    stop: Size,
    begin: Size,
    end: Size,
    base: Size,
    o: Size,
    columns: Size,
    low: Size,
    live: Size | None,
) -> None:
    own = load(x, o + low, live)
    total = fill(x.dtype.type(0), own)
    for e in range(edge, stop):
        total = total + (own - load(x, (base + members[e]) * columns + low, live))
    total = total * load(grad, o + low, live)
    for e in range(begin, end):
        at = (base + seen_by[e]) * columns + low
        total = total + load(grad, at, live) * (own - load(x, at, live))
    store(out, o + low, live, total)


@partial(
    kernel, fastmath=frozenset({"reassoc"})
)  # a sum over columns in lanes; numbers that are not finite stay what they are
def shift_weight_grad(
    first: Size, last: Size, pointers: Array, members: Array, grad: Array, x: Array, out: Array, columns: Size
) -> None:
    """``out[i, j] = sum grad[i] x[j]`` over samples and columns; there is one plane."""
    nodes = np.uint64(pointers.size) - ONE
    numbers = nodes * columns
    for i in range(first, last):
        for e in range(pointers[i], pointers[i + ONE]):
            o, a = i * columns, members[e] * columns
            total = x.dtype.type(0)
            for sample in range(ZERO, np.uint64(x.size), numbers):
                part = x.dtype.type(0)
                for c in range(columns):
                    part += grad[sample + o + c] * x[sample + a + c]
                total += part
            out[e] = total
