"""The Triton kernels that build graphs are compiled for a GPU, on any machine.

The interpreter accepts what a compiler does not, such as a value of one type in one branch and of another in the other.
"""

import importlib.util

import pytest

from graphact.graph import device

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")

POINTERS = {"weight": "*fp32", "weight_t": "*fp32", "moved": "*fp32", "row": "*i32", "slot": "*i32", "degree": "*i32"}
POINTERS |= dict.fromkeys(("offset", "offset_t", "bucketed_t"), "*i32")
POINTERS |= {"row_t": "*i32", "key": "*i32", "key_t": "*i32", "ascending": "*i32"}
SIZES = {"num_edges", "num_nodes", "edge_blocks", "steps", "most", "count"}
LISTS, NODES = {"block": 32, "chunk": 32}, {"nodes": 16, "compared": 256}
CASES = [
    *(("counting_kernels", "histogram_kernel", {"checks": checks, "block": 32}) for checks in (True, False)),
    ("counting_kernels", "scan_kernel", {"chunk": 2048}),
    ("counting_kernels", "scatter_kernel", {"block": 32}),
    ("counting_kernels", "sort_rows_kernel", LISTS),
    *(("counting_kernels", "transpose_kernel", {"fused": fused, **LISTS, **NODES}) for fused in (True, False)),
    *(("device_kernels", "key_kernel", {"fused": fused, "checks": fused, "block": 1024}) for fused in (True, False)),
    *(("device_kernels", "edge_kernel", {"fused": fused, "block": 1024}) for fused in (True, False)),
    ("device_kernels", "node_kernel", {"block": 256}),
    ("device_kernels", "transpose_kernel", {"block": 1024}),
    ("device_kernels", "rank_kernel", {"block": 64, "chunk": 512}),
]


NOTES = [("counting_kernels", "histogram_kernel", {"checks": True, "block": 32})]
NOTES += [("device_kernels", "key_kernel", {"fused": True, "checks": True, "block": 1024})]  # they look at weights


@pytest.mark.parametrize(
    ("module", "name", "constants", "weight"),
    [*((*case, "*fp32") for case in CASES), *((*case, kind) for case in NOTES for kind in ("*fp64", "*fp16", "*bf16"))],
)
def test_kernels_compile_for_a_gpu(module, name, constants, weight):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(importlib.import_module(f"{device.__package__}.{module}"), name)
    pointers = POINTERS | {"weight": weight}
    kinds = {argument: "i32" if argument in SIZES else pointers.get(argument, "*i64") for argument in kernel.arg_names}
    signature = {argument: "constexpr" if argument in constants else kind for argument, kind in kinds.items()}
    places = {(kernel.arg_names.index(constant),): value for constant, value in constants.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"enable_fp_fusion": True})
    assert f".entry {name}" in compiled.asm["ptx"]
