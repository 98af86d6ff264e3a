"""The Triton kernels on the CPU, in Triton's interpreter; started by `test_gpu_interpreted.py`."""

import pytest
from support.kernel_cases import KernelCases

# NumPy, which computes in place of the GPU, warns of what torch does silently
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


class TestInterpreted(KernelCases):
    subnormal = False

    @pytest.fixture
    def module(self, monkeypatch):
        import triton.language as tl

        from graphact.kernels import _gpu_median, _gpu_select, _gpu_sums, gpu

        assert gpu.INTERPRETED, "set TRITON_INTERPRET=1"
        # the interpreter is slow: let short lists take the ways that are meant for long ones, and look ahead less
        monkeypatch.setattr(gpu, "RANKED", 6)
        monkeypatch.setattr(gpu, "ALONE", 12)
        monkeypatch.setattr(_gpu_sums, "UNROLL", tl.constexpr(3))
        monkeypatch.setattr(_gpu_select, "UNROLL", tl.constexpr(3))
        monkeypatch.setattr(_gpu_median, "AHEAD", tl.constexpr(2))
        return gpu
