"""The passes over the neighbours as Triton kernels, with the names, signatures and results of `reference.py`.

Signals are read as contiguous ``(B, N, F)``. Nothing waits for the device. The memory used beyond the results is at
most one more signal in the type that sums are taken in, or 2^24 numbers, and for lists of more than 2,048 neighbours
what is found piece by piece: far fewer numbers than those lists have.
"""

import torch
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors
from graphact.kernels.reference import accumulation_dtype, select_apart, slot_dtype
from graphact.kernels.triton.functions import launch_functions, neighborhood_functions_backward
from graphact.kernels.triton.fused import hop_backward, launch_fused
from graphact.kernels.triton.launch import on_its_device
from graphact.kernels.triton.median import launch_median
from graphact.kernels.triton.mix import mix, mix_backward
from graphact.kernels.triton.plan import choose_plan
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.select import gather_rows, scatter_selected, select
from graphact.kernels.triton.shift import shift, shift_weight_grad
from graphact.kernels.triton.sum_sq_diff import sum_products, sum_sq_diff, sum_sq_diff_backward

__all__ = [
    "DTYPES",
    "MIXED_DTYPES",
    "choose_plan",
    "fused_neighbor_pass",
    "gather_rows",
    "hop_backward",
    "mix",
    "mix_backward",
    "neighborhood_functions",
    "neighborhood_functions_backward",
    "scatter_selected",
    "select",
    "shift",
    "shift_weight_grad",
    "sum_products",
    "sum_sq_diff",
    "sum_sq_diff_backward",
]

DTYPES = MIXED_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@on_its_device
def fused_neighbor_pass(
    x: Tensor, graph: GraphTensors, op: str, closed: bool, shifting: bool, max_degree: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.fused_neighbor_pass`."""
    x, weight = x.contiguous(), graph.weight.contiguous()
    values_dtype = accumulation_dtype(x.dtype) if op == "kernel" else x.dtype
    values = allocate(x.shape, values_dtype, x.device)
    slots_shape, slots_dtype = ((0,), torch.uint8) if op == "kernel" else (x.shape, slot_dtype(max_degree))
    selected_slot = allocate(slots_shape, slots_dtype, x.device)
    shifted = allocate(x.shape if shifting else (0,), x.dtype, x.device)
    tensors = (values, selected_slot, shifted, x, weight, graph.incoming)
    if x.numel() and op == "median":
        launch_median(*tensors, closed, shifting)
    elif x.numel():
        launch_fused(*tensors, op=op, closed=closed, shifting=shifting)
    return values, selected_slot, shifted


@on_its_device
def neighborhood_functions(
    x: Tensor, graph: GraphTensors, ops: str, closed: bool, shifting: bool, max_degree: int
) -> tuple[Tensor, ...]:
    """See :func:`graphact.kernels.reference.neighborhood_functions`."""
    found = select_apart(fused_neighbor_pass, x, graph, ops, closed, shifting, max_degree)
    return launch_functions(x.contiguous(), graph, ops, closed, shifting, max_degree, found)
