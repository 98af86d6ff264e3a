"""Compiled choices among neighbours by comparison, and the way back. See `_cpu_walk.py` for the layout."""

import numpy as np

from graphact.kernels._cpu_run import Array, Number, Size, kernel

ONE = np.uint64(1)


@kernel
def take(
    first: Size, last: Size, nodes: Size, x: Array, labels: Array, out: Array, columns: Size, empty: Number
) -> None:
    """``out[i] = x[labels[i]]`` for each column, ``empty`` for the label N; the range counts rows of all samples."""
    for row in range(first, last):
        base = row // nodes * nodes
        for c in range(columns):
            at = row * columns + c
            label = np.uint64(labels[at])
            out[at] = x[(base + label) * columns + c] if label < nodes else empty


@kernel
def route(
    first: Size,
    last: Size,
    nodes: Size,
    grad: Array,
    chosen: Array,
    out: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """The adjoint of taking; the range counts planes, so that whatever a thread adds to is its own."""
    for plane in range(first, last):
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(base, base + nodes):
            for c in range(size):
                out[i * columns + low + c] = 0
        for i in range(base, base + nodes):
            o = i * columns + low
            for c in range(size):
                label = np.uint64(chosen[o + c])
                if label < nodes:
                    out[(base + label) * columns + low + c] += grad[o + c]


@kernel
def extreme_labelled(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    _ahead: Size,
    _lanes: Size,
    sign: Number,
    closed: bool,
    x: Array,
    labels: Array,
    out: Array,
    chosen: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """The maximum of ``sign * x`` where node j offers ``x[j]`` under the name ``labels[j]``; 0 if nobody has a name."""
    nodes = np.uint64(pointers.size) - ONE
    nobody = np.int32(nodes)
    for plane in range(first // nodes, (last + nodes - ONE) // nodes):
        start = plane * nodes
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(max(first, start) - start, min(last - start, nodes)):
            o = (base + i) * columns + low
            for c in range(size):
                out[o + c] = -np.inf
                chosen[o + c] = nobody
            edge, stop = pointers[i], pointers[i + ONE]
            for e in range(edge, stop + ONE if closed else stop):
                a = (base + (members[e] if e < stop else i)) * columns + low
                for c in range(size):
                    best, label, value, name = out[o + c], chosen[o + c], sign * x[a + c], labels[a + c]
                    ahead = (value > best) | ((value != value) & (best == best))
                    tied = (value == best) | ((value != value) & (best != best))
                    wins = ahead | (tied & (name < label))
                    out[o + c] = value if wins else best
                    chosen[o + c] = name if wins else label
            for c in range(size):
                out[o + c] = sign * out[o + c] if chosen[o + c] < nobody else 0
