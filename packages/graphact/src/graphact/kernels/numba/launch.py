"""Declaration of compiled kernels, their distribution over threads, and the memory layout of their signals.

Kernels are compiled for one thread, release the GIL, and take the range of work they do; a thread pool runs them on
several ranges at once. Numba's own threading layers are not used: of the two that come with it, one aborts when two
Python threads call at once and the other when a forked process calls, and both compile several times slower.
"""

import math
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numba
import numpy as np
import torch
from torch import Tensor

from graphact.graph import Neighborhoods
from graphact.kernels.graph_tensors import Lists
from graphact.kernels.numba.disk_cache import separate_files
from graphact.kernels.reference import ACCUMULATION

# what compiled code takes; the types it really has are those of the first call
Array = Any
Number = Any
Size = Any

SMALL = 1_000_000  # elements read; less than that takes less time than waking a thread
ROW_COST = 2  # what a row costs beside its neighbours, in neighbours
BYTES = 128  # of a signal in a block of columns, which a kernel keeps in registers
SHORT_ROW = 64  # shorter rows of several samples are joined, see Layout
WIDEST = 1024  # columns in a section
# rows of neighbours are prefetched where they are short and the signal exceeds a cache: a processor foresees long rows
AHEAD = 16  # edges
SHORT = 1024  # bytes of a row
CACHE = 2**22  # bytes
MAX_CACHED_SIZES = 64  # of signals, for the lists of each graph
NOTHING = {torch.float32: (False, np.empty(0, np.float32)), torch.float64: (False, np.empty(0, np.float64))}

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(
    function: Callable[..., None], fastmath: frozenset[str] = frozenset(), allocates: bool = False
) -> Callable[..., None]:
    """Compile at the first call for each precision, and keep the result on disk where there is a place for it.

    Code that does not allocate does not count who holds which array: that would be done for every block of columns.
    """
    options = {**OPTIONS, "fastmath": set(fastmath), "_nrt": allocates}
    try:
        compiled: Callable[..., None] = separate_files(numba.njit(cache=True, **options)(function))
        return compiled
    except RuntimeError:  # neither the package nor the home folder can be written
        return numba.njit(**options)(function)


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into kernels."""
    options = {**OPTIONS, "forceinline": True, "_nrt": False}
    return numba.njit(**options)(function)


def sections(columns: int, widest: int) -> tuple[int, int]:
    """Cut columns into sections of equal width, a multiple of 16; return their number and the width."""
    number = -(-columns // widest)
    width = -(-columns // (16 * number)) * 16
    return -(-columns // width), width


def ranges(rowptr: np.ndarray[Any, Any], planes: int, work: int) -> list[tuple[np.uint64, np.uint64]]:
    """Cut ``planes`` times all rows into ranges of about the same number of neighbours.

    A range counts rows on and on through the planes.
    """
    rows = len(rowptr) - 1
    threads = torch.get_num_threads()
    if threads == 1 or work < SMALL:
        return [(np.uint64(0), np.uint64(planes * rows))]
    pieces = min(threads * 4, work // (SMALL // 8), planes * rows)
    each = int(rowptr[-1]) + ROW_COST * rows
    cuts = [0]
    for piece in range(1, pieces):
        plane, rest = divmod(planes * each * piece // pieces, each)
        cuts.append(plane * rows + bisect_left(range(rows), rest, key=lambda i: int(rowptr[i]) + ROW_COST * i))
    cuts.append(planes * rows)
    return [(np.uint64(a), np.uint64(b)) for a, b in pairwise(cuts) if a < b]


def run(function: Callable[..., None], work: Iterable[tuple[np.uint64, np.uint64]], *arguments: Any) -> None:
    """Call ``function(first, last, *arguments)`` for every range of the work, on as many threads as torch may use."""
    left = deque(work)
    if len(left) == 1:
        function(*left[0], *arguments)
        return

    def until_done() -> None:
        while True:
            try:
                first, last = left.popleft()
            except IndexError:
                return
            function(first, last, *arguments)

    helpers: list[Future[None]] = []
    with suppress(RuntimeError):  # the interpreter is shutting down: no new threads
        for _ in range(min(torch.get_num_threads(), len(left)) - 1):
            helpers.append(_helpers().submit(until_done))
    try:
        until_done()
    finally:
        for helper in helpers:
            if not helper.cancel():
                helper.result()


def _helpers() -> ThreadPoolExecutor:
    """The threads that help. A call never waits for one that has not begun, so no call can block another."""
    process = os.getpid()  # threads do not live on in a forked process
    if process not in _pools:
        _pools[process] = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="graphact")
    return _pools[process]


_pools: dict[int, ThreadPoolExecutor] = {}


class Layout:
    """Memory layout of a signal ``(..., N, F)`` in kernels: ``(samples, N, columns)``.

    Several samples with short rows become one sample with a long row ``(1, N, samples * F)``, for kernels are fast
    along a row.
    """

    def __init__(self, shape: torch.Size, dtype: torch.dtype, join: bool) -> None:
        self.shape = shape
        self.source_dtype, self.dtype = dtype, ACCUMULATION.get(dtype, dtype)
        self.nodes, features = shape[-2:]
        batch = math.prod(shape[:-2])
        self.joined = join and batch > 1 and features < SHORT_ROW
        self.split = (batch, self.nodes, features)
        self.samples, self.columns = (1, batch * features) if self.joined else (batch, features)
        self.inner_shape = (self.samples, self.nodes, self.columns) if self.joined else shape

    @property
    def nothing(self) -> tuple[bool, Array]:
        """No shift is wanted, so there are no weights."""
        return NOTHING[self.dtype]

    def enter(self, x: Tensor, dtype: torch.dtype | None = None) -> Array:
        """Return the numbers of a signal in the layout of kernels."""
        dtype = dtype or self.dtype
        if x.dtype is not dtype:
            x = x.to(dtype)
        if self.joined:
            x = x.reshape(self.split).transpose(0, 1)
        return flat(x.contiguous())

    def empty(self, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(self.inner_shape, dtype=dtype or self.dtype, device="cpu")

    def leave(self, result: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """A result of kernels in the shape of the signal, in its precision unless told otherwise."""
        if self.joined:
            samples, nodes, features = self.split
            result = result.view(nodes, samples, features).transpose(0, 1).contiguous().view(self.shape)
        dtype = dtype or self.source_dtype
        return result if result.dtype is dtype else result.to(dtype)

    def run(self, kernel: Any, lists: Lists, *arguments: Any) -> None:
        """Call a kernel for all rows of all planes."""
        if self.samples * self.nodes * self.columns == 0:
            return
        work, before, after = self.sizes(lists)
        run(kernel, work, *before, *arguments, *after)

    def sizes(self, lists: Lists) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]:
        """The work, and what kernels take before and after their own arguments; kept as long as the lists live.

        And as long as they stay where they are: arrays do not follow a tensor that moves to shared memory.
        """
        if not isinstance(lists, Neighborhoods):
            return self._find_sizes(lists)
        known = _sizes_of.setdefault(lists, {})
        addresses = lists.rowptr.data_ptr(), lists.col.data_ptr()
        key = (self.shape, self.dtype, self.joined, torch.get_num_threads(), addresses)
        found = known.get(key)
        if found is None:
            if len(known) >= MAX_CACHED_SIZES:
                known.clear()
            found = known[key] = self._find_sizes(lists)
        return found

    def _find_sizes(self, lists: Lists) -> tuple[list[Any], tuple[Any, ...], tuple[Any, ...]]:
        rowptr, col = indices(lists.rowptr), indices(lists.col)
        number, width = sections(self.columns, WIDEST)
        planes = self.samples * number
        work = ranges(rowptr, planes, (col.size + self.nodes) * self.samples * self.columns)
        size = self.dtype.itemsize
        scattered = self.nodes * self.columns * size > CACHE and width * size <= SHORT
        steps = (np.uint64(AHEAD if scattered else 0), np.uint64(BYTES // size))
        return work, (rowptr, col, *steps), tuple(np.uint64(count) for count in (self.columns, number, width))


_sizes_of: WeakKeyDictionary[Neighborhoods, dict[Any, Any]] = WeakKeyDictionary()


def layout_of(x: Tensor, join: bool = True) -> Layout:
    """The layout of a signal; short rows stay apart unless they may ``join``."""
    return _layout(x.shape, x.dtype, join)


@lru_cache(maxsize=256)
def _layout(shape: torch.Size, dtype: torch.dtype, join: bool) -> Layout:
    return Layout(shape, dtype, join)


def flat(tensor: Tensor) -> Array:
    """The numbers of a contiguous tensor, in the same memory."""
    return tensor.detach().numpy().reshape(-1)


def indices(tensor: Tensor) -> Array:
    """The same for indices, as kernels take them."""
    return tensor.numpy().view(np.uint64)
