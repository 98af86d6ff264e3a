"""Rows of a table by their numbers."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels._gpu_launch import on_its_device
from graphact.kernels._gpu_walk import ceil_div, padded_size

NUMBERS = 2048  # that a program copies


@triton.jit(do_not_specialize=["rows"])
def take_rows_kernel(out, table, index, rows, width, lanes: tl.constexpr, block: tl.constexpr):
    """``out[r] = table[index[r]]``."""
    row = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    column = tl.program_id(1) * block + tl.arange(0, block)
    source = tl.load(index + row, mask=row < rows, other=0).to(tl.int64)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(table + source[:, None] * width + column[None, :], mask=mask)
    tl.store(out + row[:, None] * width + column[None, :], value, mask=mask)


@on_its_device
def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.take_rows`."""
    table, index = table.contiguous(), index.contiguous()
    out = torch.empty((index.numel(), table.size(1)), dtype=table.dtype, device=table.device)
    if out.numel():
        rows, width = out.shape
        block = min(padded_size(width), 128)
        lanes = max(1, NUMBERS // block)
        grid = (ceil_div(rows, lanes), ceil_div(width, block))
        take_rows_kernel[grid](out, table, index, rows, width, lanes=lanes, block=block)
    return out.view(*index.shape, table.size(1))
