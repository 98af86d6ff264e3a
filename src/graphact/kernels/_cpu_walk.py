"""How compiled kernels go through a signal.

Signals are flat arrays of B x N x C numbers. A plane is a section of the columns of one sample; a range of work counts
rows on and on through the planes. A row is done block by block of columns (see `_cpu_lanes.py`): along the list of
neighbours, all that adds up stays in registers. Neighbours come one after another in the order of the list, so results
depend neither on the number of threads nor on how the work is cut. All integers are unsigned: an index that could be
negative would have to be looked at before each use.
"""

import numpy as np

from graphact.kernels._cpu_lanes import prefetch
from graphact.kernels._cpu_run import Array, Size, helper

ONE, TWO = np.uint64(1), np.uint64(2)
LINE = np.uint64(16)  # numbers in a line of memory


@helper
def row_of(task: Size, pointers: Array, columns: Size, number: Size, width: Size) -> tuple[Size, Size, Size, Size]:
    """For a row of the work: the first node of its sample, its own node, and the columns it goes from and to."""
    nodes = np.uint64(pointers.size) - ONE
    plane = task // nodes
    left = plane % number * width
    return plane // number * nodes, task % nodes, left, min(left + width, columns)


@helper
def whole_blocks(left: Size, right: Size, lanes: Size) -> Size:
    """Where the last block begins that is cut short."""
    return left + (right - left) // lanes * lanes


@helper
def look_ahead(
    x: Array, members: Array, edge: Size, stop: Size, ahead: Size, base: Size, columns: Size, left: Size, right: Size
) -> None:
    """Ask for the rows of neighbours that will be read soon, ``ahead`` edges from here."""
    edges = np.uint64(members.size)
    for e in range(min(edge + ahead, edges), min(stop + ahead, edges)):
        at = (base + members[e]) * columns
        for c in range(left, right, LINE):
            prefetch(x, at + c)


@helper
def rank(members: Array, edge: Size, stop: Size, i: Size) -> Size:
    """Where node i would stand among the members from ``edge`` to ``stop``, which ascend."""
    while edge < stop:
        middle = (edge + stop) // TWO
        if members[middle] < i:
            edge = middle + ONE
        else:
            stop = middle
    return edge
