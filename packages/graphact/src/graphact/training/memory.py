"""Memory of training: kept between steps, and fewer models at a time where there is too little of it."""

import ctypes
import sys
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of the GNU C library
LARGEST = 2**31 - 1
MOST_MAPPED = 32 * 2**20  # the library accepts no more


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the next step instead of returning it to the system.

    A step on the CPU allocates and frees the same tens of megabytes again and again; fetching their pages anew takes
    about a quarter of its time. For programs that train fleets and then end, such as the command line. Does nothing
    and returns False where the C library is another one.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(M_TRIM_THRESHOLD, LARGEST)) and bool(library.mallopt(M_MMAP_THRESHOLD, MOST_MAPPED))


def in_parts(count: int, size: int, train: Callable[[slice], T]) -> list[T]:
    """What ``train`` makes of consecutive slices of ``count`` models, as large as memory allows.

    A slice has at most ``size`` models, and half as many from then on whenever a device runs out of memory.
    """
    made, start = list[T](), 0
    while start < count:
        part = slice(start, min(start + size, count))
        try:
            made.append(train(part))
            start = part.stop
        except torch.OutOfMemoryError:
            size = (part.stop - part.start) // 2
            if size == 0:
                raise
        if start < part.stop:  # behind the error, which holds what was allocated
            torch.cuda.empty_cache()
    return made
