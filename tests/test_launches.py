"""Launches that know their kernels, without a device: none that was compiled for something else is taken."""

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
    monkeypatch.setattr(_triton, "_known", {})
    monkeypatch.setattr(_triton, "_compiled", {})
    return found


def test_a_kernel_is_compiled_once_for_what_is_known(started):
    kernel, x = Kernel(), torch.zeros(4)
    for count in (3, 300, 16):  # whose kinds differ, which is not looked at
        assert _triton.launch(kernel, (1,), x, count, known="float32", block=8) == 1
    assert len(kernel.compiled) == 1
    assert started == [(1, (1,), [x.data_ptr(), count], [8]) for count in (300, 16)]


@pytest.mark.parametrize(("known", "block"), [("float64", 8), ("float32", 16)])
def test_another_kind_or_constant_is_compiled_anew(started, known, block):
    kernel, x = Kernel(), torch.zeros(4)
    _triton.launch(kernel, (1,), x, 3, known="float32", block=8)
    _triton.launch(kernel, (1,), x.double() if known == "float64" else x, 3, known=known, block=block)
    assert [constants for _, constants in kernel.compiled] == [{"block": 8}, {"block": block}]
    assert not started
