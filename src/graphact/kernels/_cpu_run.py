"""How a compiled kernel is declared, and how its work is shared among threads.

Kernels are compiled for one thread, release the GIL, and take the range of work they do; a thread pool runs them on
several ranges at once. Numba's own threading layers are not used: of the two that come with it, one aborts when two
Python threads call at once and the other when a forked process calls, and both compile several times slower.
"""

import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import torch

# what compiled code takes; the types it really has are those of the first call
Array = Any
Number = Any
Size = Any

SMALL = 1_000_000  # elements read; less than that takes less time than waking a thread
ROW_COST = 2  # what a row costs beside its neighbours, in neighbours


OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(
    function: Callable[..., None], fastmath: frozenset[str] = frozenset(), allocates: bool = False
) -> Callable[..., None]:
    """Compile at the first call for each precision, and keep the result on disk where there is a place for it.

    Code that does not allocate does not count who holds which array: that would be done for every block of columns.
    """
    options = {**OPTIONS, "fastmath": set(fastmath), "_nrt": allocates}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package nor the home folder can be written
        return numba.njit(**options)(function)


def helper(function: Callable[..., Any]) -> Callable[..., Any]:
    """What kernels call; it is compiled into each of them."""
    options = {**OPTIONS, "forceinline": True, "_nrt": False}
    return numba.njit(**options)(function)


def sections(columns: int, widest: int) -> tuple[int, int]:
    """Cut columns into sections of equal width, a multiple of 16; return their number and the width."""
    number = -(-columns // widest)
    width = -(-columns // (16 * number)) * 16
    return -(-columns // width), width


def ranges(pointers: np.ndarray[Any, Any], planes: int, work: int) -> list[tuple[np.uint64, np.uint64]]:
    """Cut ``planes`` times all rows into ranges of about the same number of neighbours.

    A range counts rows on and on through the planes.
    """
    rows = len(pointers) - 1
    threads = torch.get_num_threads()
    if threads == 1 or work < SMALL:
        return [(np.uint64(0), np.uint64(planes * rows))]
    pieces = min(threads * 4, work // (SMALL // 8), planes * rows)
    each = int(pointers[-1]) + ROW_COST * rows
    cuts = [0]
    for piece in range(1, pieces):
        plane, rest = divmod(planes * each * piece // pieces, each)
        cuts.append(plane * rows + bisect_left(range(rows), rest, key=lambda i: int(pointers[i]) + ROW_COST * i))
    cuts.append(planes * rows)
    return [(np.uint64(a), np.uint64(b)) for a, b in pairwise(cuts) if a < b]


def run(function: Callable[..., None], work: Iterable[tuple[np.uint64, np.uint64]], *arguments: Any) -> None:
    """Call ``function(first, last, *arguments)`` for every range of the work, on as many threads as torch may use."""
    left = deque(work)

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
