"""Compiled sums over neighbours.

Signals are flat arrays of B x N x C numbers. A plane is a section of the columns of one sample; a range of work counts
rows on and on through the planes. Four neighbours are added at a time, so that the sum stays in registers meanwhile,
and one after another, so that the result does not depend on it. All integers are unsigned: an index that could be
negative would keep the loops over columns from being vectorised.
"""

from functools import partial

import numpy as np

from graphact.kernels._cpu_run import Array, Size, kernel

ZERO, ONE, TWO, FOUR = (np.uint64(number) for number in (0, 1, 2, 4))


@kernel
def shift(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    weight: Array,
    x: Array,
    out: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """``out[i] = sum_j weight[i, j] x[j]``."""
    nodes = np.uint64(pointers.size) - ONE
    for plane in range(first // nodes, (last + nodes - ONE) // nodes):
        start = plane * nodes
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(max(first, start) - start, min(last - start, nodes)):
            o = (base + i) * columns + low
            for c in range(size):
                out[o + c] = 0
            edge, stop = pointers[i], pointers[i + ONE]
            for e in range(edge, edge + (stop - edge) % FOUR):
                w = weight[e]
                a = (base + members[e]) * columns + low
                for c in range(size):
                    out[o + c] += w * x[a + c]
            for e in range(edge + (stop - edge) % FOUR, stop, FOUR):
                w0, w1, w2, w3 = weight[e], weight[e + ONE], weight[e + TWO], weight[e + TWO + ONE]
                a0 = (base + members[e]) * columns + low
                a1 = (base + members[e + ONE]) * columns + low
                a2 = (base + members[e + TWO]) * columns + low
                a3 = (base + members[e + TWO + ONE]) * columns + low
                for c in range(size):
                    out[o + c] = (((out[o + c] + w0 * x[a0 + c]) + w1 * x[a1 + c]) + w2 * x[a2 + c]) + w3 * x[a3 + c]


@kernel
def spread(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
    x: Array,
    out: Array,
    columns: Size,
    number: Size,
    width: Size,
) -> None:
    """``out[i] = sum_j (x[i] - x[j])^2``."""
    nodes = np.uint64(pointers.size) - ONE
    for plane in range(first // nodes, (last + nodes - ONE) // nodes):
        start = plane * nodes
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(max(first, start) - start, min(last - start, nodes)):
            o = (base + i) * columns + low
            for c in range(size):
                out[o + c] = 0
            edge, stop = pointers[i], pointers[i + ONE]
            for e in range(edge, edge + (stop - edge) % FOUR):
                a = (base + members[e]) * columns + low
                for c in range(size):
                    out[o + c] += (x[o + c] - x[a + c]) ** 2
            for e in range(edge + (stop - edge) % FOUR, stop, FOUR):
                a0 = (base + members[e]) * columns + low
                a1 = (base + members[e + ONE]) * columns + low
                a2 = (base + members[e + TWO]) * columns + low
                a3 = (base + members[e + TWO + ONE]) * columns + low
                for c in range(size):
                    own = x[o + c]
                    d0, d1, d2, d3 = own - x[a0 + c], own - x[a1 + c], own - x[a2 + c], own - x[a3 + c]
                    out[o + c] = (((out[o + c] + d0 * d0) + d1 * d1) + d2 * d2) + d3 * d3


@kernel
def pull(
    first: Size,
    last: Size,
    pointers: Array,
    members: Array,
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
    nodes = np.uint64(pointers.size) - ONE
    for plane in range(first // nodes, (last + nodes - ONE) // nodes):
        start = plane * nodes
        base = plane // number * nodes
        low = plane % number * width
        size = min(width, columns - low)
        for i in range(max(first, start) - start, min(last - start, nodes)):
            o = (base + i) * columns + low
            for c in range(size):
                out[o + c] = 0
            edge, stop = pointers[i], pointers[i + ONE]
            for e in range(edge, edge + (stop - edge) % FOUR):
                a = (base + members[e]) * columns + low
                for c in range(size):
                    out[o + c] += x[o + c] - x[a + c]
            for e in range(edge + (stop - edge) % FOUR, stop, FOUR):
                a0 = (base + members[e]) * columns + low
                a1 = (base + members[e + ONE]) * columns + low
                a2 = (base + members[e + TWO]) * columns + low
                a3 = (base + members[e + TWO + ONE]) * columns + low
                for c in range(size):
                    own = x[o + c]
                    d0, d1, d2, d3 = own - x[a0 + c], own - x[a1 + c], own - x[a2 + c], own - x[a3 + c]
                    out[o + c] = (((out[o + c] + d0) + d1) + d2) + d3
            for c in range(size):
                out[o + c] *= grad[o + c]
            edge, stop = seen_by_pointers[i], seen_by_pointers[i + ONE]
            for e in range(edge, edge + (stop - edge) % TWO):
                a = (base + seen_by[e]) * columns + low
                for c in range(size):
                    out[o + c] += grad[a + c] * (x[o + c] - x[a + c])
            for e in range(edge + (stop - edge) % TWO, stop, TWO):
                a0 = (base + seen_by[e]) * columns + low
                a1 = (base + seen_by[e + ONE]) * columns + low
                for c in range(size):
                    own = x[o + c]
                    s0, s1 = grad[a0 + c] * (own - x[a0 + c]), grad[a1 + c] * (own - x[a1 + c])
                    out[o + c] = (out[o + c] + s0) + s1


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
