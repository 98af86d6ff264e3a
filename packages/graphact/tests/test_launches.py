"""Fast launches, without a device: no kernel that was compiled for other arguments is started."""

import pytest
import torch

from graphact import _triton


class Kernel:
    """Notes what it is compiled for."""

    arg_names = ("x", "count", "block")

    def __init__(self):
        self.compiled = []

    def __getitem__(self, grid):
        return lambda *arguments, **constants: self.compiled.append((arguments, constants)) or len(self.compiled)


@pytest.fixture
def started(monkeypatch):
    found = []
    monkeypatch.setattr(_triton, "start", lambda *launched: found.append(launched))
    monkeypatch.setattr(_triton, "starts_compiled", lambda: True)
    monkeypatch.setattr(_triton, "_compiled", {})
    return found


def test_a_kernel_is_compiled_once_for_equal_specializations(started):
    kernel, x = Kernel(), torch.zeros(4)
    for count in (3, 300, 5):
        assert _triton.launch(kernel, (1,), x, count, block=8) == 1
    assert len(kernel.compiled) == 1
    assert [launched[2:] for launched in started] == [([x.data_ptr(), count], [8]) for count in (300, 5)]


@pytest.mark.parametrize(
    ("dtype", "count", "block"),
    [(torch.float64, 3, 8), (torch.float32, 16, 8), (torch.float32, 1, 8), (torch.float32, 3, 16)],
)
def test_another_specialization_or_constant_is_compiled_again(started, dtype, count, block):
    kernel, x = Kernel(), torch.zeros(4)
    _triton.launch(kernel, (1,), x, 3, block=8)
    _triton.launch(kernel, (1,), x.to(dtype), count, block=block)
    assert [constants for _, constants in kernel.compiled] == [{"block": 8}, {"block": block}]
    assert not started


class Doubling:
    """Stands for a kernel of Triton, which is launched by ``kernel[grid](...)``."""

    arg_names = ("x", "out", "count", "factor")

    class Compiled:
        function = packed_metadata = None

        def run(self, *arguments):
            raise AssertionError("started by an interface that this version may not have")

    def __getitem__(self, grid):
        def launched(x, out, count, factor, num_warps=4):
            out[:count] = factor * x[:count]
            self.launches.append((grid, num_warps))
            return self.Compiled()

        return launched

    def __init__(self):
        self.launches = []


def test_a_version_that_was_not_tested_launches_kernels_itself(monkeypatch):
    monkeypatch.setattr(_triton, "starts_compiled", lambda: False)
    kernel, x, out = Doubling(), torch.arange(4.0), torch.zeros(4)
    for _ in range(2):  # the second launch would be of a kernel compiled before
        assert _triton.launch(kernel, (2,), x, out, 3, factor=2, num_warps=1) is None
    assert out.tolist() == [0.0, 2.0, 4.0, 0.0]
    assert kernel.launches == [((2,), 1)] * 2


def test_recorded_launches_of_such_a_version_are_repeated_by_it(monkeypatch):
    pytest.importorskip("triton")
    from graphact.kernels.triton.record import allocate, launch, recording

    monkeypatch.setattr(_triton, "starts_compiled", lambda: False)
    kernel, x = Doubling(), torch.arange(4.0)
    with recording([x], []) as made:
        out = allocate((4,), torch.float32, x.device)
        launch(kernel, (2,), x, out, 4, factor=3, num_warps=1)
    assert made.finish([out])
    assert made.replay([torch.full((4,), 5.0)])[0].tolist() == [15.0] * 4
    assert kernel.launches == [((2,), 1), ((2, 1, 1), 1)]


@pytest.mark.parametrize(
    ("version", "expected"), [("3.6.0", True), ("3.6.1+git1", True), ("3.60.0", False), ("3.9.0", False)]
)
def test_the_versions_that_were_tested(monkeypatch, version, expected):
    triton = pytest.importorskip("triton")
    monkeypatch.setattr(triton, "__version__", version)
    _triton.starts_compiled.cache_clear()
    try:
        assert _triton.starts_compiled() is expected
    finally:
        _triton.starts_compiled.cache_clear()
