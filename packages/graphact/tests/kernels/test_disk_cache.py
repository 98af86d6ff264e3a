"""Compiled kernels on disk."""

import pytest

pytest.importorskip("numba")
from graphact.kernels.numba import launch
from graphact.kernels.numba.disk_cache import DataFiles


def test_processes_that_compile_at_once_do_not_mix_up_their_code(tmp_path):
    """The index of the first one is lost, or it comes back, while the code of both is there."""
    one, other = (DataFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
    one.save("float32", "code for float32")
    index = (tmp_path / "kernel.nbi").read_bytes()
    one.flush()  # as if the other had read the index before
    other.save("float64", "code for float64")
    assert other.load("float32") is None
    (tmp_path / "kernel.nbi").write_bytes(index)  # as if the first had written it last
    assert one.load("float32") == "code for float32"
    newer = DataFiles(str(tmp_path), "kernel", "another stamp")
    newer.save("float32", "newer code")
    assert newer.load("float32") == "newer code"
    (tmp_path / "kernel.nbi").write_bytes(index)
    assert one.load("float32") == "code for float32"


def test_kernels_keep_their_code_in_such_files():
    compiled = launch.kernel(lambda number: number + 1)
    assert type(compiled._cache._cache_file) is DataFiles
