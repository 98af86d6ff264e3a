"""The passes over the neighbours as Triton kernels, with the names, signatures and results of `reference.py`.

Signals are read as contiguous ``(B, N, F)``. Nothing waits for the device, and the memory used beyond the results is at
most one more signal.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from graphact.kernels import reference
from graphact.kernels._gpu_median import RANKED, ranked_median_kernel, searched_median_kernel
from graphact.kernels._gpu_mix import mix, mix_gradients
from graphact.kernels._gpu_select import extreme_kernel, take_kernel
from graphact.kernels._gpu_sums import pull_kernel, route_kernel, shift_kernel, spread_kernel, weight_grad_kernel
from graphact.kernels._gpu_walk import ALONE, Launch, launches, tile, wide_type
from graphact.kernels.reference import LOSES_EVERY_COMPARISON, Lists, accumulation_dtype, take

__all__ = ["mix", "mix_gradients", "pull", "route", "select", "shift", "shift_weight_grad", "spread", "supports"]

__all__ = ["pull", "route", "select", "shift", "shift_weight_grad", "spread", "supports", "take"]

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTERPRETED = not isinstance(shift_kernel, triton.runtime.JITFunction)


def supports(x: Tensor) -> bool:
    """Floating-point signals on a CUDA device; with Triton's interpreter, on the CPU, too."""
    return x.dtype in DTYPES and (x.is_cuda or INTERPRETED)


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    x, weight, out = x.contiguous(), weight.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        for launch in launches(lists, ALONE):
            _walk(shift_kernel, launch, launch.group == 1, x, lists, out, x, weight, lists.pointers, lists.members)
    return out


def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    grad, x = grad.contiguous(), x.contiguous()
    out = torch.zeros(lists.members.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel() and x.numel():
        nodes, columns = x.shape[-2:]
        sizes = {"lanes": 16, "block": min(triton.next_power_of_2(columns), 128), "wide": wide_type(x)}
        samples = math.prod(x.shape[:-2])
        with _on_device_of(x):
            weight_grad_kernel[(nodes,)](out, grad, x, lists.pointers, lists.members, samples, nodes, columns, **sizes)
    return out


def select(x: Tensor, labels: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    chosen = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    if not out.numel():
        return out, chosen
    labels = None if labels is None else labels.contiguous()
    offers = x if labels is None else _offers(x, labels, LOSES_EVERY_COMPARISON[op])
    names = chosen if labels is None else labels
    read = (offers, names, lists.pointers, lists.members)
    flags = {"closed": closed, "labelled": labels is not None}
    if op == "median":
        for launch in launches(lists, RANKED - closed, ALONE):
            if launch.group == 0:
                _walk(ranked_median_kernel, launch, False, x, lists, out, chosen, *read, **flags)
            else:
                _walk(searched_median_kernel, launch, launch.group == 2, x, lists, out, chosen, x, *read, **flags)
    else:
        flags["largest"] = op == "max"
        for launch in launches(lists, ALONE):
            _walk(extreme_kernel, launch, launch.group == 1, x, lists, out, chosen, x, *read, **flags)
    return out, chosen


def route(grad: Tensor, chosen: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.route`; adds in no particular order, unless torch is told otherwise."""
    if torch.are_deterministic_algorithms_enabled() or not grad.numel():
        return reference.route(grad, chosen)
    grad, chosen = grad.contiguous(), chosen.contiguous()
    out = torch.zeros(grad.shape, dtype=accumulation_dtype(grad.dtype), device=grad.device)
    _each_row(route_kernel, grad, out, grad, chosen, wide=wide_type(grad))
    return out.to(grad.dtype)


def spread(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.spread`."""
    x, out = x.contiguous(), torch.empty(x.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel():
        for launch in launches(lists, ALONE):
            _walk(spread_kernel, launch, launch.group == 1, x, lists, out, x, lists.pointers, lists.members)
    return out


def pull(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.pull`."""
    grad, x = grad.contiguous(), x.contiguous()
    if not x.numel():
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    by_incoming, by_outgoing = list(launches(incoming, ALONE)), list(launches(outgoing, ALONE))
    lists = (incoming.pointers, incoming.members, outgoing.pointers, outgoing.members)
    if len(by_incoming) == len(by_outgoing) == 1 and by_incoming[0].group == by_outgoing[0].group:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launch, shared = by_incoming[0], by_incoming[0].group == 1
        _walk(pull_kernel, launch, shared, grad, incoming, out, grad, x, *lists, seen=True, seen_by=True)
        return out
    # hubs: the lists of one node differ in length, so each direction launches its rows in its own order
    out = torch.empty(x.shape, dtype=accumulation_dtype(grad.dtype), device=x.device)
    for rows, directions in ((incoming, by_incoming), (outgoing, by_outgoing)):
        flags = {"seen": rows is incoming, "seen_by": rows is not incoming}
        for launch in directions:
            _walk(pull_kernel, launch, launch.group == 1, grad, rows, out, grad, x, *lists, **flags)
    return out.to(x.dtype)


def _offers(x: Tensor, labels: Tensor, empty: float) -> Tensor:
    """``take(x, labels, empty)``: reading it once beats following the labels of every neighbour."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _each_row(take_kernel, x, out, x, labels, empty=empty)
    return out


def _walk(kernel: Any, launch: Launch, shared: bool, x: Tensor, lists: Lists, *tensors: Tensor, **flags: bool) -> None:
    """Start the programs of one launch on signals like ``x``."""
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = samples * launch.rows
    lanes, block, warps, grid = tile(rows, columns, x.element_size(), shared)
    sizes = (launch.rows, launch.last, rows, nodes, columns)
    flags |= {"shared": shared, "ordered": launch.ordered, "batched": samples > 1}
    options = {"lanes": lanes, "block": block, "wide": wide_type(x), "num_warps": warps}
    with _on_device_of(x):
        kernel[grid](*tensors, lists.order, *sizes, **options, **flags)


def _each_row(kernel: Any, x: Tensor, *tensors: Tensor, **options: Any) -> None:
    """Start the programs that visit every number of signals like ``x`` once."""
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = samples * nodes
    lanes, block, warps, grid = tile(rows, columns, x.element_size(), False)
    options |= {"lanes": lanes, "block": block, "batched": samples > 1, "num_warps": warps}
    with _on_device_of(x):
        kernel[grid](*tensors, rows=rows, nodes=nodes, columns=columns, **options)


def _on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
