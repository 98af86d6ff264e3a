"""The memory allocator of the C library, set for training."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of the GNU C library
MAX_TRIM_THRESHOLD = 2**31 - 1
MAX_MMAP_THRESHOLD = 32 * 2**20  # the library accepts no more


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the next step instead of returning it to the system.

    A step on the CPU allocates and frees the same tens of megabytes again and again; fetching their pages again
    takes about a quarter of its time. It is for programs that train fleets and then end, such as the command line.

    Returns:
        Whether it was done: with the GNU C library alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(M_TRIM_THRESHOLD, MAX_TRIM_THRESHOLD)) and bool(
        library.mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)
    )
