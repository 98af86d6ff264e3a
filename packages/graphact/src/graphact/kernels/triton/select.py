"""Selections of one neighbour by Triton kernels, and their gradient; the median is in `median.py`."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact.kernels import reference
from graphact.kernels.graph_tensors import Lists
from graphact.kernels.reference import LOSES_EVERY_COMPARISON, accumulation_dtype
from graphact.kernels.triton.launch import (
    ALONE,
    ceil_div,
    launches,
    on_its_device,
    padded_size,
    start,
    start_each_row,
    wide_type,
)
from graphact.kernels.triton.median import launch_median
from graphact.kernels.triton.walk import UNROLL, candidates_at, columns_of_program, list_of_row, rows_of_program

NUMBERS = 2048  # that a program copies


@on_its_device
def select(x: Tensor, source_index: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    selected = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    if not out.numel():
        return out, selected
    if op == "median":
        launch_median(out, selected, None, x, x, lists, closed)
        start_each_row(nodes_kernel, x, selected, lists.rowptr, lists.col, closed=closed)
        return out, selected
    source_index = None if source_index is None else source_index.contiguous()
    candidates = x if source_index is None else _candidates(x, source_index, LOSES_EVERY_COMPARISON[op])
    index = selected if source_index is None else source_index
    flags: dict[str, Any] = {"closed": closed, "indexed": source_index is not None, "largest": op == "max"}
    for launch in launches(lists, ALONE):
        tensors = (out, selected, x, candidates, index, lists.rowptr, lists.col)
        start(extreme_kernel, launch, launch.group == 1, x, lists, *tensors, **flags)
    return out, selected


@on_its_device
def scatter_selected(grad: Tensor, selected: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.scatter_selected`; in no fixed order, unless torch is told otherwise."""
    if torch.are_deterministic_algorithms_enabled() or not grad.numel():
        return reference.scatter_selected(grad, selected)
    grad, selected = grad.contiguous(), selected.contiguous()
    out = torch.zeros(grad.shape, dtype=accumulation_dtype(grad.dtype), device=grad.device)
    start_each_row(scatter_kernel, grad, out, grad, selected, wide=wide_type(grad))
    return out.to(grad.dtype)


def _candidates(x: Tensor, source_index: Tensor, empty: float) -> Tensor:
    """``gather_selected(x, source_index, empty)``: reading it once beats following the index of every neighbour."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    start_each_row(gather_kernel, x, out, x, source_index, empty=empty)
    return out


@on_its_device
def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.gather_rows`."""
    table, index = table.contiguous(), index.contiguous()
    out = torch.empty((index.numel(), table.size(1)), dtype=table.dtype, device=table.device)
    if out.numel():
        rows, width = out.shape
        block = min(padded_size(width), 128)
        lanes = max(1, NUMBERS // block)
        grid = (ceil_div(rows, lanes), ceil_div(width, block))
        gather_rows_kernel[grid](out, table, index, rows, width, lanes=lanes, block=block)
    return out.view(*index.shape, table.size(1))


@triton.jit(do_not_specialize=["count", "last", "rows"])
def extreme_kernel(
    out, selected, x, candidates, source_index, rowptr, col, order, count, last, rows, nodes, columns,
    lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr, shared: tl.constexpr, ordered: tl.constexpr,
    batched: tl.constexpr, largest: tl.constexpr, closed: tl.constexpr, indexed: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.select` with max or min."""
    node, base, alive, writes = rows_of_program(order, count, last, rows, nodes, lanes, shared, ordered, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, enter, steps = list_of_row(rowptr, node, alive, closed, lanes, shared)
    stride: tl.constexpr = lanes if shared else 1
    loser: tl.constexpr = float("-inf") if largest else float("inf")
    best = tl.full((lanes, block), loser, dtype=wide)
    best_index = tl.zeros((lanes, block), dtype=tl.int32) + nodes
    for step in range(0, steps, UNROLL):
        for ahead in tl.static_range(UNROLL):
            position = enter + (step + ahead) * stride
            value, index, mask = candidates_at(
                candidates, source_index, col, node, base, begin, end, position, column, inside, nodes, columns,
                closed, indexed
            )  # fmt: skip
            value = value.to(wide)
            better = value > best if largest else value < best
            better |= (value != value) & (best == best)
            equal = (value == best) | ((value != value) & (best != best))
            better = mask & (better | (equal & (index < best_index)))
            best = tl.where(better, value, best)
            best_index = tl.where(better, index, best_index)
    own = ((base + node) * columns)[:, None] + column[None, :]
    mask = writes[:, None] & inside[None, :]
    if shared:
        unknown = best != best
        numbers = tl.where(unknown, loser, best)
        winner = tl.max(numbers, 0) if largest else tl.min(numbers, 0)
        wins = tl.where(tl.max(unknown.to(tl.int32), 0)[None, :] > 0, unknown, best == winner[None, :])
        best_index = tl.min(tl.where(wins, best_index, nodes), 0)[None, :] + tl.zeros((lanes, block), dtype=tl.int32)
        source = (base[:, None] + best_index) * columns + column[None, :]
        best = tl.load(x + source, mask=mask & (best_index < nodes), other=0.0).to(wide)
    best = tl.where(best_index < nodes, best, 0.0)
    tl.store(out + own, best.to(out.dtype.element_ty), mask=mask)
    tl.store(selected + own, best_index, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def nodes_kernel(
    selected, rowptr, col, rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, batched: tl.constexpr,
    closed: tl.constexpr
):  # fmt: skip
    """Replace slots by nodes: see :func:`graphact.kernels.reference.nodes_at`."""
    node, base, alive, _ = rows_of_program(selected, nodes, 0, rows, nodes, lanes, False, False, batched)
    column, inside = columns_of_program(columns, block)
    begin, end, _, _ = list_of_row(rowptr, node, alive, False, lanes, False)
    mask = alive[:, None] & inside[None, :]
    at = ((base + node) * columns)[:, None] + column[None, :]
    slot = tl.load(selected + at, mask=mask, other=0)
    beyond = node if closed else nodes + 0 * node
    listed = mask & (slot < (end - begin)[:, None])
    neighbor = tl.load(col + begin[:, None] + slot, mask=listed, other=0)
    tl.store(selected + at, tl.where(listed, neighbor, beyond[:, None]).to(tl.int32), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def gather_kernel(
    out, x, source_index, rows, nodes, columns, empty, lanes: tl.constexpr, block: tl.constexpr, batched: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.gather_selected`."""
    node, base, alive, _ = rows_of_program(out, nodes, 0, rows, nodes, lanes, False, False, batched)
    column, inside = columns_of_program(columns, block)
    mask = alive[:, None] & inside[None, :]
    at = ((base + node) * columns)[:, None] + column[None, :]
    index = tl.load(source_index + at, mask=mask, other=nodes).to(tl.int64)
    source = (base[:, None] + index) * columns + column[None, :]
    value = tl.load(x + source, mask=mask & (index < nodes), other=empty)
    tl.store(out + at, value, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def scatter_kernel(
    out, grad, selected, rows, nodes, columns, lanes: tl.constexpr, block: tl.constexpr, wide: tl.constexpr,
    batched: tl.constexpr
):  # fmt: skip
    """See :func:`graphact.kernels.reference.scatter_selected`; ``out`` starts from zero."""
    node, base, alive, _ = rows_of_program(out, nodes, 0, rows, nodes, lanes, False, False, batched)
    column, inside = columns_of_program(columns, block)
    mask = alive[:, None] & inside[None, :]
    at = ((base + node) * columns)[:, None] + column[None, :]
    target = tl.load(selected + at, mask=mask, other=nodes).to(tl.int64)
    value = tl.load(grad + at, mask=mask, other=0.0).to(wide)
    to = (base[:, None] + target) * columns + column[None, :]
    tl.atomic_add(out + to, value, mask=mask & (target < nodes), sem="relaxed")


@triton.jit(do_not_specialize=["rows"])
def gather_rows_kernel(out, table, index, rows, width, lanes: tl.constexpr, block: tl.constexpr):
    """``out[r] = table[index[r]]``."""
    row = tl.program_id(0).to(tl.int64) * lanes + tl.arange(0, lanes)
    column = tl.program_id(1) * block + tl.arange(0, block)
    source = tl.load(index + row, mask=row < rows, other=0).to(tl.int64)
    mask = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(table + source[:, None] * width + column[None, :], mask=mask)
    tl.store(out + row[:, None] * width + column[None, :], value, mask=mask)
