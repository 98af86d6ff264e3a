"""Shifts by Triton kernels, and their gradients with respect to the weights."""

# mypy: allow-untyped-defs, allow-incomplete-defs

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels.graph_tensors import Lists
from graphact.kernels.reference import accumulation_dtype
from graphact.kernels.triton.fused import launch_fused
from graphact.kernels.triton.launch import on_its_device, padded_size, wide_type
from graphact.kernels.triton.record import allocate


@on_its_device
def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    x, weight, out = x.contiguous(), weight.contiguous(), allocate(x.shape, x.dtype, x.device)
    if out.numel():
        launch_fused(out, out, out, x, weight, lists, op="none", closed=False, shifting=True)
    return out


@on_its_device
def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    grad, x = grad.contiguous(), x.contiguous()
    out = torch.zeros(lists.col.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel() and x.numel():
        nodes, columns = x.shape[-2:]
        sizes = {"lanes": 16, "block": min(padded_size(columns), 128), "wide": wide_type(x)}
        samples = math.prod(x.shape[:-2])
        weight_grad_kernel[(nodes,)](out, grad, x, lists.rowptr, lists.col, samples, nodes, columns, **sizes)
    return out


@triton.jit
def weight_grad_kernel(
    out, grad, x, rowptr, col, samples, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.shift_weight_grad`; a program for each row, a lane for each neighbour."""
    lane = tl.arange(0, lanes)
    column = tl.arange(0, block)
    node = tl.program_id(0).to(tl.int64) + 0 * lane
    begin = tl.load(rowptr + node)
    end = tl.load(rowptr + node + 1)
    steps = tl.max((end - begin + lanes - 1) // lanes, 0).to(tl.int32)
    for step in range(0, steps):
        position = begin + step * lanes + lane
        there = position < end
        j = tl.load(col + position, mask=there, other=0).to(tl.int64)
        total = tl.zeros((lanes, block), dtype=wide)
        base = 0 * node
        for _sample in range(0, samples):
            for left in range(0, columns, block):
                mask = there[:, None] & (left + column < columns)[None, :]
                here = ((base + node) * columns)[:, None] + (left + column)[None, :]
                at = ((base + j) * columns)[:, None] + (left + column)[None, :]
                value = tl.load(x + at, mask=mask, other=0.0).to(wide)
                total += tl.load(grad + here, mask=mask, other=0.0).to(wide) * value
            base += nodes
        tl.store(out + position, tl.sum(total, 1).to(out.dtype.element_ty), mask=there)
