"""Compiled kernels on disk, where several processes may compile at once."""

import hashlib
from typing import Any

from numba.core.caching import IndexDataCacheFile


class DataFiles(IndexDataCacheFile):
    """The cached code of one function, each signature in a file named after it.

    Numba numbers the files. Two processes that compile different signatures at once take the same number, and one of
    them finds the code of the other under its signature.
    """

    def save(self, key: Any, data: Any) -> None:
        """Save the code of a signature; an entry of the index that another process loses is compiled again."""
        digest = hashlib.sha256(repr((self._source_stamp, key)).encode()).hexdigest()
        name = self._data_name_pattern.format(number=int(digest[:12], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


def separate_files(function: Any) -> Any:
    """Let a function that Numba caches keep each signature in a file of its own."""
    cache = function._cache
    stamp = cache._impl.locator.get_source_stamp()
    cache._cache_file = DataFiles(cache._cache_path, cache._impl.filename_base, stamp)
    return function
