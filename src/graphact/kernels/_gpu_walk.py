"""How the programs of a Triton kernel walk the neighbour lists, and how many of them are launched.

A program holds a tile of ``lanes`` x ``block`` numbers: columns of the signal along the second dimension and, along the
first, one row (a node of a sample) per lane; or, for the rows of hubs (``shared``), one row whose neighbours the lanes
take turns in reading. Offsets are 64 bits wide, and rows run faster than column blocks, so that all programs at work
at one time read the same few columns, which fit in the cache.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.reference import Lists

THREADS = 64
BYTES_PER_THREAD = 16  # the widest load
WIDEST_BLOCK = 128
UNROLL = tl.constexpr(4)  # neighbours whose numbers are on their way at the same time
SHARED_LANES = 8  # how many times the lanes of an ordinary tile, for a row that all lanes share
ALONE = 256  # the most neighbours that one lane walks alone
PIECE = 2048  # the most neighbours that the lanes of one program share
MOST_PROGRAMS = 65_535  # in the second and third direction of a launch
BALANCED = 4  # longest row over the mean, up to which rows keep their own order, which is the kindest to the cache


def ceil_div(a: int, b: int) -> int:
    """Rounded up; Triton's own, which also serves kernels, takes microseconds, several times a launch."""
    return -(-a // b)


def padded_size(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


class Launch(NamedTuple):
    """Rows ``order[last]``, ``order[last - 1]``, ... of every sample, or all rows in their own order.

    No list of theirs is longer than ``longest``.
    """

    group: int
    rows: int
    last: int
    ordered: bool
    longest: int

    @property
    def shared(self) -> bool:
        """Whether all lanes of a program walk one list."""
        return self.longest > ALONE

    @property
    def pieces(self) -> int:
        """The number of programs that share a list."""
        return max(1, ceil_div(self.longest, PIECE))


def limits(lists: Lists) -> tuple[int, ...]:
    """Where walks change: lists that a lane walks alone, that a program shares, and that more and more programs do."""
    longest, bounds = int(lists.sizes[-1, 0]), [ALONE, PIECE]
    while bounds[-1] < longest:
        bounds.append(8 * bounds[-1])
    return tuple(bounds)


class Tile(NamedTuple):
    """The shape of a program's tile, the threads that share it and the number of programs in each direction."""

    lanes: int
    block: int
    warps: int
    grid: tuple[int, int]


def launches(lists: Lists, *limits: int) -> Iterator[Launch]:
    """Split the rows where the degree exceeds each of the limits: group 0 up to the first, and so on, shortest first.

    The many short lists keep the device busy while the few launches for hubs are prepared. Read from the sizes on the
    CPU: nothing waits for the device.
    """
    degrees, counts = lists.sizes.numpy().T
    rows, longest = lists.order.numel(), int(degrees[-1])
    if longest <= limits[0] and longest * rows <= BALANCED * (lists.members.numel() + rows):
        yield Launch(0, rows, 0, False, longest)
        return
    up_to = np.concatenate([[0], counts.cumsum()])
    ends = [0, *up_to[np.searchsorted(degrees, limits, side="right")].tolist(), rows]
    for group in range(len(limits) + 1):
        if ends[group + 1] > ends[group]:
            bound = longest if group == len(limits) else min(limits[group], longest)
            yield Launch(group, ends[group + 1] - ends[group], ends[group + 1] - 1, True, bound)


def tile(
    rows: int,
    columns: int,
    bytes_per_number: int,
    shared: bool,
    threads: int = THREADS,
) -> Tile:
    """A tile for ``rows`` rows (over all samples): every thread loads 16 bytes at once where the columns allow it."""
    block = min(padded_size(columns), WIDEST_BLOCK)
    if shared:
        lanes = max(1, THREADS * BYTES_PER_THREAD // bytes_per_number // block) * SHARED_LANES
        return Tile(lanes, block, 8, (rows, ceil_div(columns, block)))
    lanes = max(1, threads * BYTES_PER_THREAD // bytes_per_number // block)
    lanes = min(lanes, padded_size(rows))
    return Tile(lanes, block, threads // 32, (ceil_div(rows, lanes), ceil_div(columns, block)))


def wide_type(signal: Tensor) -> Any:
    """The type to sum numbers of a signal in."""
    return tl.float64 if signal.element_size() == 8 else tl.float32


@triton.jit
def rows_of_program(
    order,
    count,
    last,
    rows,
    nodes,
    lanes: tl.constexpr,
    shared: tl.constexpr,
    ordered: tl.constexpr,
    batched: tl.constexpr,
):
    """For every lane its node, the number of its sample times ``nodes``, whether it has a row, whether it writes it."""
    lane = tl.arange(0, lanes)
    slot = tl.program_id(0).to(tl.int64)
    slot = slot + 0 * lane if shared else slot * lanes + lane
    alive = slot < rows
    sample = 0 * slot
    row = slot
    if batched:
        sample = slot // count
        row = slot - sample * count
    node = row
    if ordered:
        node = tl.load(order + (last - row), mask=alive, other=0).to(tl.int64)
    writes = alive
    if shared:
        writes = alive & (lane == 0)
    return node, sample * nodes, alive, writes


@triton.jit
def row_of_program(order, count, last, nodes, ordered: tl.constexpr, batched: tl.constexpr):
    """For a program that has one row, its node and the number of its sample times ``nodes``."""
    row = tl.program_id(0).to(tl.int64)
    base = row * 0
    if batched:
        base = row // count * nodes
        row = row % count
    node = row
    if ordered:
        node = tl.load(order + (last - row)).to(tl.int64)
    return node, base


@triton.jit
def list_of_row(pointers, node, alive, closed: tl.constexpr, lanes: tl.constexpr, shared: tl.constexpr):
    """Where the list of each lane's row begins and ends, where the lane enters it, and the most steps of any lane.

    In a closed neighbourhood, the position before the first stands for the node itself. A lane without a row has an
    empty list.
    """
    begin = tl.load(pointers + node, mask=alive, other=0).to(tl.int64)
    end = tl.load(pointers + node + 1, mask=alive, other=-1).to(tl.int64)
    enter = begin
    if closed:
        enter = begin - 1
    if shared:
        enter = enter + tl.arange(0, lanes)
        steps = (end - enter + lanes - 1) // lanes
    else:
        steps = end - enter
    return begin, end, enter, tl.max(steps, 0).to(tl.int32)


@triton.jit
def piece_of_list(begin, end, piece: tl.constexpr, lanes: tl.constexpr):
    """Where the lanes of a program that shares one row enter their piece of its list, its end, and the most steps."""
    start = begin + tl.program_id(2).to(tl.int64) * piece
    stop = tl.minimum(end, start + piece)
    enter = start + tl.arange(0, lanes)
    steps = (stop - enter + lanes - 1) // lanes
    return enter, stop, tl.max(steps, 0).to(tl.int32)


@triton.jit
def columns_of_program(columns, block: tl.constexpr):
    """The columns of the tile, and which of them exist."""
    column = tl.program_id(1) * block + tl.arange(0, block)
    return column, column < columns
