"""The passes over the neighbours on the CPU, compiled by Numba: same names, arguments and results as the reference.

Memory is that of the signals: nothing is materialized for each edge. The result of a sum depends neither on the number
of threads nor on how the work is cut.
"""

import torch

from graphact._checks import HALF_PRECISION
from graphact.kernels.numba.functions import (
    neighborhood_functions,
    neighborhood_functions_backward,
    shift,
    sum_sq_diff,
)
from graphact.kernels.numba.mix import mix, mix_backward
from graphact.kernels.numba.products import shift_weight_grad, sum_products, sum_sq_diff_backward
from graphact.kernels.numba.select import scatter_selected, select
from graphact.kernels.numba.small import choose_plan
from graphact.kernels.reference import gather_rows

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

MIXED_DTYPES = (torch.float32, torch.float64)
DTYPES = (*MIXED_DTYPES, *HALF_PRECISION)  # half precision is computed in float32
