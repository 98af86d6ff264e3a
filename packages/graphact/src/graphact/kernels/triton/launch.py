"""Grids of Triton kernels: the rows and columns of each program, and their launch.

Signals are read as contiguous ``(B, N, F)``. A program has a tile of ``lanes`` x ``block`` numbers: columns of the
signal along the second dimension and, along the first, one row (a node of a sample) per lane; or, for the rows of hubs
(``shared``), one row whose neighbours the lanes take turns in reading. Rows run faster than column blocks, so that all
programs at work at one time read the same few columns, which fit in the cache.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from graphact._triton import PLAIN_TENSORS
from graphact.graph import Neighborhoods
from graphact.graph.neighborhoods import BALANCED
from graphact.kernels.graph_tensors import Lists, OneLaunchLists
from graphact.kernels.triton import record

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 64
BYTES_PER_THREAD = 16  # the widest load
WIDEST_BLOCK = 128
SHARED_LANES = 8  # how many times the lanes of an ordinary tile, for a row that all lanes share
ALONE = 256  # the most neighbours that one lane walks alone
PIECE = 2048  # the most neighbours that the lanes of one program share
MAX_PROGRAMS = 65_535  # in the second and third direction of a launch


def ceil_div(a: int, b: int) -> int:
    """Rounded up; Triton's own, which also serves kernels, takes microseconds, several times a launch."""
    return -(-a // b)


def padded_size(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


class Launch(NamedTuple):
    """Rows ``order[last]``, ``order[last - 1]``, ... of every sample, or all rows in their own order.

    No list of these rows is longer than ``longest``.
    """

    group: int
    rows: int
    last: int
    ordered: bool
    longest: int

    @property
    def shared(self) -> bool:
        """True if all lanes of a program walk one list."""
        return self.longest > ALONE

    @property
    def pieces(self) -> int:
        """The number of programs that share a list."""
        return max(1, ceil_div(self.longest, PIECE))


def limits(lists: Lists | OneLaunchLists) -> tuple[int, ...]:
    """Return the lengths up to which one lane walks a list, one program shares it, then 8, 64, ... programs."""
    if isinstance(lists, OneLaunchLists):
        return (ALONE,)
    longest = lists.groups[-1][0] if isinstance(lists, Neighborhoods) else int(lists.sizes[-1, 0])
    bounds = [ALONE, PIECE]
    while bounds[-1] < longest:
        bounds.append(8 * bounds[-1])
    return tuple(bounds)


class Tile(NamedTuple):
    """The shape of a program's tile, the threads that share it and the number of programs in each direction."""

    lanes: int
    block: int
    warps: int
    grid: tuple[int, int]


def launches(lists: Lists | OneLaunchLists, *limits: int) -> Sequence[Launch]:
    """Split the rows where the degree exceeds each of the limits: group 0 up to the first, and so on, shortest first.

    The many short lists keep the device busy while the few launches for hubs are prepared. Read from the sizes on the
    CPU: nothing waits for the device.
    """
    if isinstance(lists, OneLaunchLists):
        return (Launch(0, lists.rowptr.size(0) - 1, 0, False, ALONE),)
    if not isinstance(lists, Neighborhoods):
        return tuple(_split(lists, limits))
    known = _launches_of.setdefault(lists, {})
    if limits not in known:
        known[limits] = tuple(_split(lists, limits))
    return known[limits]


_launches_of: WeakKeyDictionary[Neighborhoods, dict[tuple[int, ...], tuple[Launch, ...]]] = WeakKeyDictionary()


def _split(lists: Lists, limits: tuple[int, ...]) -> Iterator[Launch]:
    degrees, counts = lists.sizes.numpy().T
    rows, longest = lists.order.numel(), int(degrees[-1])
    if longest <= limits[0] and longest * rows <= BALANCED * (lists.col.numel() + rows):
        yield Launch(0, rows, 0, False, longest)
        return
    up_to = np.concatenate([[0], counts.cumsum()])
    ends = [0, *up_to[np.searchsorted(degrees, limits, side="right")].tolist(), rows]
    for group in range(len(limits) + 1):
        if ends[group + 1] > ends[group]:
            bound = longest if group == len(limits) else min(limits[group], longest)
            yield Launch(group, ends[group + 1] - ends[group], ends[group + 1] - 1, True, bound)


def tile(rows: int, columns: int, bytes_per_number: int, shared: bool, threads: int = THREADS, loads: int = 1) -> Tile:
    """A tile for ``rows`` rows (over all samples): each load of a thread takes 16 bytes where the columns allow it."""
    block = min(padded_size(int(columns)), WIDEST_BLOCK)
    if shared:
        lanes = max(1, THREADS * BYTES_PER_THREAD // bytes_per_number // block) * SHARED_LANES
        return Tile(lanes, block, 8, (rows, ceil_div(columns, block)))
    lanes = max(1, loads * threads * BYTES_PER_THREAD // bytes_per_number // block)
    if type(rows) is int:  # compiled code that fits any number of rows has a symbol
        lanes = min(lanes, padded_size(rows))
    return Tile(lanes, block, threads // 32, (ceil_div(rows, lanes), ceil_div(columns, block)))


def wide_type(signal: Tensor) -> Any:
    """The type to sum numbers of a signal in."""
    return tl.float64 if signal.element_size() == 8 else tl.float32


def start(
    kernel: Any, launch: Launch, shared: bool, x: Tensor, lists: Lists, *tensors: Any, shape: Tile | None = None,
    threads: int = THREADS, loads: int = 1, pieces: int | None = None, **flags: Any
) -> None:  # fmt: skip
    """Start the programs of one launch on signals like ``x``: the kernel takes tensors, order, sizes, then constants.

    With ``shared`` all lanes of a program walk one list. ``pieces`` programs lie in the third direction, by default as
    many as share a list; ``threads`` are those of a program with the usual tile, in which each has so many ``loads`` of
    a row.
    """
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = rows_of(x, launch)
    lanes, block, warps, grid = shape or tile(rows, columns, x.element_size(), shared, threads, loads)
    if pieces is None:
        pieces = launch.pieces if flags.get("piece") else 1
    sizes = (launch.rows, launch.last, rows, nodes, columns)
    flags |= {"shared": shared, "ordered": launch.ordered, "batched": samples > 1}
    options = {"lanes": lanes, "block": block, "wide": wide_type(x), "num_warps": warps}
    # unread unless ``ordered``; Inductor takes every tensor used in the address of a store for one that is written
    order = lists.order if launch.ordered or type(x) in PLAIN_TENSORS else None
    record.launch(kernel, (*grid, pieces), *tensors, order, *sizes, **options, **flags)


def start_each_row(kernel: Any, x: Tensor, *tensors: Tensor, **options: Any) -> None:
    """Start the programs that visit every number of signals like ``x`` once."""
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = samples * nodes
    lanes, block, warps, grid = tile(rows, columns, x.element_size(), False)
    options |= {"lanes": lanes, "block": block, "batched": samples > 1, "num_warps": warps}
    kernel[grid](*tensors, rows=rows, nodes=nodes, columns=columns, **options)


def rows_of(x: Tensor, launch: Launch) -> int:
    """The rows of a launch over all samples."""
    return math.prod(x.shape[:-2]) * launch.rows


def on_its_device(function: Callable[Concatenate[Tensor, P], T]) -> Callable[Concatenate[Tensor, P], T]:
    """Let Triton, which launches on the current device, launch on that of the first tensor."""

    @wraps(function)
    def launching(x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not x.is_cuda or x.device.index == torch.cuda.current_device():
            return function(x, *args, **kwargs)
        with torch.cuda.device(x.device):
            return function(x, *args, **kwargs)

    return launching
