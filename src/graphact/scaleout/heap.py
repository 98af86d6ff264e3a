"""Memory that was needed only for a while."""

import ctypes
from contextlib import suppress


def return_freed_memory() -> None:
    """Give freed memory back to the system where the C library can; building a part needs twice what it keeps."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
