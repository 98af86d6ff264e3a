"""The passes over the neighbours as Triton kernels, with the names, signatures and results of `reference.py`.

Signals are read as contiguous ``(B, N, F)``. Nothing waits for the device. The memory used beyond the results is at
most one more signal in the type that sums are taken in, or 2^24 numbers, and for lists of more than 2,048 neighbours
what is found piece by piece: far fewer numbers than those lists have.
"""

from collections.abc import Collection

import torch
from torch import Tensor

from graphact.kernels.graph_tensors import GraphTensors
from graphact.kernels.reference import wanted_results
from graphact.kernels.triton.backward import (
    neighborhood_functions_backward,
    shift_weight_grad,
    sum_products,
    sum_sq_diff_backward,
)
from graphact.kernels.triton.functions import launch_functions, shift, sum_sq_diff
from graphact.kernels.triton.launch import on_its_device
from graphact.kernels.triton.median import launch_median
from graphact.kernels.triton.mix import mix, mix_backward
from graphact.kernels.triton.plan import choose_plan
from graphact.kernels.triton.record import allocate
from graphact.kernels.triton.select import gather_rows, scatter_selected, select

__all__ = [
    "DTYPES",
    "MIXED_DTYPES",
    "choose_plan",
    "gather_rows",
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
def neighborhood_functions(
    x: Tensor, graph: GraphTensors, ops: Collection[str], closed: bool, shifting: bool, max_degree: int
) -> dict[str, Tensor]:
    """See :func:`graphact.kernels.reference.neighborhood_functions`; the median comes from a pass of its own."""
    x, weight, types = x.contiguous(), graph.weight.contiguous(), wanted_results(x, ops, shifting, max_degree)
    found = {name: allocate(x.shape, dtype, x.device) for name, dtype in types.items()}
    rest = found.copy()
    if "median" in found and x.numel():
        values, slots = rest.pop("median"), rest.pop("median slot")
        shifted = rest.pop("shift", None) if len(ops) == 1 else None
        launch_median(values, slots, shifted, x, weight, graph.incoming, closed)
    if rest:
        launch_functions(rest, x, weight, graph.incoming, closed)
    return found
