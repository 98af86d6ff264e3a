"""The Triton kernels on the CPU, in Triton's interpreter; started by `test_gpu_interpreted.py`."""

import pytest
from support.kernel_cases import KernelCases, shorten_lists

# NumPy, which computes in place of the GPU, warns of what torch does silently
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


class TestInterpreted(KernelCases):
    subnormal = False

    @pytest.fixture
    def module(self, monkeypatch):
        import triton.language as tl

        from graphact.kernels import _gpu_hop, _gpu_median, _gpu_select, _gpu_sums, _gpu_turn, gpu

        assert gpu.INTERPRETED, "set TRITON_INTERPRET=1"
        # the interpreter is slow: let short lists take the ways that are meant for long ones, and look ahead less
        shorten_lists(monkeypatch, gpu)
        for kernels in (_gpu_hop, _gpu_select, _gpu_sums, _gpu_turn):
            monkeypatch.setattr(kernels, "UNROLL", tl.constexpr(3))
        for name in ("AHEAD", "FURTHER_AHEAD"):
            monkeypatch.setattr(_gpu_median, name, tl.constexpr(2))
        return gpu
