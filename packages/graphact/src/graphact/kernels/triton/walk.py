"""Device functions that walk the neighbour lists; see `launch.py` for the tiles.

Offsets are 64 bits wide.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import triton
import triton.language as tl

UNROLL = tl.constexpr(4)  # neighbours whose numbers are on their way at the same time


@triton.jit
def rows_of_program(
    order, count, last, rows, nodes, lanes: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr
):  # fmt: skip
    """For every lane its node, the number of its sample times ``nodes``, whether it has a row, whether it writes it."""
    lane = tl.arange(0, lanes)
    item = tl.program_id(0).to(tl.int64)
    item = item + 0 * lane if shared else item * lanes + lane
    alive = item < rows
    sample = 0 * item
    row = item
    if batched:
        sample = item // count
        row = item - sample * count
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
def list_of_row(rowptr, node, alive, closed: tl.constexpr, lanes: tl.constexpr, shared: tl.constexpr):
    """Return begin and end of the list of each lane, the position where it starts, and the most steps of any lane.

    In a closed neighbourhood, the position before the first stands for the node itself. A lane without a row has an
    empty list.
    """
    begin = tl.load(rowptr + node, mask=alive, other=0).to(tl.int64)
    end = tl.load(rowptr + node + 1, mask=alive, other=-1).to(tl.int64)
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
    """Return where the lanes that share one row start in their piece of its list, its end, and the most steps."""
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


@triton.jit
def tile_of_program(
    order, count, last, rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, shared: tl.constexpr,
    ordered: tl.constexpr, batched: tl.constexpr
):  # fmt: skip
    """The rows and columns of a program, the places of its own numbers, and which of them exist and are written."""
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    own = ((base + node) * columns)[:, None] + column[None, :]
    exists = alive[:, None] & inside[None, :]
    written = writes[:, None] & inside[None, :]
    return node, base, alive, column, inside, own, exists, written


@triton.jit
def lists_of_program(rowptr, node, alive, lanes: tl.constexpr, shared: tl.constexpr, piece: tl.constexpr):
    """The lists of its rows, and how far and in how many steps it walks them; with ``piece``, so many neighbours.

    Apart from :func:`tile_of_program`: Inductor takes every tensor used in the address of a store for a written one.
    """
    begin, end, enter, steps = list_of_row(rowptr, node, alive, False, lanes, shared)
    stop = end
    if piece > 0:
        enter, stop, steps = piece_of_list(begin, end, piece, lanes)
    return begin, end, enter, stop, steps


@triton.jit
def place_of_piece(own, column, rows, columns, piece: tl.constexpr):
    """The place that a program writes to: its own or, with ``piece``, that of its piece."""
    if piece > 0:
        own = ((tl.program_id(2).to(tl.int64) * rows + tl.program_id(0)) * columns + column)[None, :] + 0 * own
    return own


@triton.jit
def sum_of_lanes(total, shared: tl.constexpr):
    """The sum over lanes that share a row, in each of them."""
    return tl.sum(total, 0)[None, :] + tl.zeros_like(total) if shared else total


@triton.jit
def candidates_at(
    candidates, source_index, col, node, base, begin, end, position, column, inside, nodes, columns,
    closed: tl.constexpr, indexed: tl.constexpr
):  # fmt: skip
    """The values of the candidates at a position, the nodes they come from, and whether there are any."""
    there = position < end
    j = tl.load(col + position, mask=there & (position >= begin), other=0).to(tl.int64)
    if closed:
        j = tl.where(position < begin, node, j)
    at = ((base + j) * columns)[:, None] + column[None, :]
    mask = there[:, None] & inside[None, :]
    value = tl.load(candidates + at, mask=mask, other=0.0)
    if indexed:
        index = tl.load(source_index + at, mask=mask, other=nodes).to(tl.int32)
    else:
        index = j.to(tl.int32)[:, None] + 0 * column[None, :]
    return value, index, mask


@triton.jit
def slot_of_own(col, begin, end, node):
    """Return the number of neighbours with a lower number than the node itself."""
    low = begin
    high = tl.maximum(begin, end)
    while tl.max((high - low).to(tl.int32), 0) > 0:
        middle = (low + high) // 2
        searching = low < high
        lower = searching & (tl.load(col + middle, mask=searching, other=0) < node)
        high = tl.where(lower, high, tl.where(searching, middle, high))
        low = tl.where(lower, middle + 1, low)
    return (low - begin).to(tl.int32)
