"""The passes over the neighbours as Triton kernels, with the names, signatures and results of `reference.py`.

Signals are read as contiguous ``(B, N, F)``. Nothing waits for the device. The memory used beyond the results is at
most one more signal in the type that sums are taken in, or 2^24 numbers, and for lists of more than 2,048 neighbours
what is found piece by piece: far fewer numbers than those lists have.
"""

import math
from typing import Any

import torch
import triton
from torch import Tensor

from graphact.kernels import reference
from graphact.kernels._gpu_hop import hop_kernel
from graphact.kernels._gpu_launch import each_row, on_its_device, rows_of, walk
from graphact.kernels._gpu_look import join_sums, look, pieces_of
from graphact.kernels._gpu_median import RANKED, ranked_median_kernel, searched_median_kernel, searching_tile
from graphact.kernels._gpu_medians import median
from graphact.kernels._gpu_mix import mix, mix_gradients
from graphact.kernels._gpu_rows import take_rows
from graphact.kernels._gpu_select import extreme_kernel, take_kernel
from graphact.kernels._gpu_sums import pull_kernel, route_kernel, weight_grad_kernel
from graphact.kernels._gpu_turn import turn_kernel
from graphact.kernels._gpu_walk import ALONE, PIECE, THREADS, launches, limits, padded_size, wide_type
from graphact.kernels.reference import LOSES_EVERY_COMPARISON, Lists, accumulation_dtype, place_dtype, take

__all__ = [
    "hop",
    "mix",
    "mix_gradients",
    "pull",
    "route",
    "select",
    "shift",
    "shift_weight_grad",
    "spread",
    "supports",
    "take",
    "take_rows",
    "turn",
]

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTERPRETED = not isinstance(hop_kernel, triton.runtime.JITFunction)


def supports(x: Tensor) -> bool:
    """Floating-point signals on a CUDA device; with Triton's interpreter, on the CPU, too."""
    return x.dtype in DTYPES and (x.is_cuda or INTERPRETED)


@on_its_device
def hop(
    x: Tensor, weight: Tensor, lists: Lists, op: str, closed: bool, shifting: bool, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.hop`."""
    x, weight = x.contiguous(), weight.contiguous()
    values_dtype = accumulation_dtype(x.dtype) if op == "kernel" else x.dtype
    values = torch.empty(x.shape, dtype=values_dtype, device=x.device)
    chosen_shape, chosen_dtype = ((0,), torch.uint8) if op == "kernel" else (x.shape, place_dtype(longest))
    places = torch.empty(chosen_shape, dtype=chosen_dtype, device=x.device)
    shifted = torch.empty(x.shape if shifting else (0,), dtype=x.dtype, device=x.device)
    if x.numel():
        if op == "median":
            median(values, places, shifted, x, weight, lists, closed, shifting)
        else:
            look(values, places, shifted, x, weight, lists, op, closed, shifting)
    return values, places, shifted


@on_its_device
def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    x, weight, out = x.contiguous(), weight.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        look(out, out, out, x, weight, lists, "none", False, True)
    return out


@on_its_device
def spread(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.spread`."""
    x, out = x.contiguous(), torch.empty(x.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel():
        look(out, out, out, x, x, lists, "kernel", False, False)
    return out


@on_its_device
def turn(
    grad: Tensor,
    places: Tensor,
    grad_shifted: Tensor | None,
    turned_weight: Tensor,
    positions: Tensor,
    incoming: Lists,
    outgoing: Lists,
    closed: bool,
) -> Tensor:
    """See :func:`graphact.kernels.reference.turn`; the same on every run."""
    grad, places, weight = grad.contiguous(), places.contiguous(), turned_weight.contiguous()
    out = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    if not out.numel():
        return out
    shifting = grad_shifted is not None
    given = grad if grad_shifted is None else grad_shifted.contiguous()
    read = (grad, places, given, weight, positions, incoming.pointers, outgoing.pointers, outgoing.members)
    flags: dict[str, Any] = {"closed": closed, "shifting": shifting, "threads": THREADS if shifting else 32}
    for launch in launches(outgoing, *limits(outgoing)):
        if launch.pieces == 1:
            walk(turn_kernel, launch, launch.shared, grad, outgoing, out, *read, **flags, piece=0)
            continue
        sums = pieces_of(grad, launch, accumulation_dtype(grad.dtype))
        walk(turn_kernel, launch, True, grad, outgoing, sums, *read, **flags, piece=PIECE)
        join_sums(out, sums, grad, launch, outgoing, False)
    return out


@on_its_device
def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift_weight_grad`."""
    grad, x = grad.contiguous(), x.contiguous()
    out = torch.zeros(lists.members.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel() and x.numel():
        nodes, columns = x.shape[-2:]
        sizes = {"lanes": 16, "block": min(padded_size(columns), 128), "wide": wide_type(x)}
        samples = math.prod(x.shape[:-2])
        weight_grad_kernel[(nodes,)](out, grad, x, lists.pointers, lists.members, samples, nodes, columns, **sizes)
    return out


@on_its_device
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
    flags: dict[str, Any] = {"closed": closed, "labelled": labels is not None}
    if op == "median":
        for launch in launches(lists, RANKED - closed, ALONE):
            if launch.group == 0:
                walk(ranked_median_kernel, launch, False, x, lists, out, chosen, *read, **flags)
                continue
            shared = launch.group == 2
            shape = searching_tile(rows_of(x, launch), x.size(-1)) if shared else None
            walk(
                searched_median_kernel,
                launch,
                shared,
                x,
                lists,
                out,
                chosen,
                x,
                *read,
                shape=shape,
                placing=False,
                **flags,
            )
    else:
        flags["largest"] = op == "max"
        for launch in launches(lists, ALONE):
            walk(extreme_kernel, launch, launch.group == 1, x, lists, out, chosen, x, *read, **flags)
    return out, chosen


@on_its_device
def route(grad: Tensor, chosen: Tensor) -> Tensor:
    """See :func:`graphact.kernels.reference.route`; adds in no particular order, unless torch is told otherwise."""
    if torch.are_deterministic_algorithms_enabled() or not grad.numel():
        return reference.route(grad, chosen)
    grad, chosen = grad.contiguous(), chosen.contiguous()
    out = torch.zeros(grad.shape, dtype=accumulation_dtype(grad.dtype), device=grad.device)
    each_row(route_kernel, grad, out, grad, chosen, wide=wide_type(grad))
    return out.to(grad.dtype)


@on_its_device
def pull(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.pull`."""
    grad, x = grad.contiguous(), x.contiguous()
    out = torch.empty(x.shape, dtype=accumulation_dtype(grad.dtype), device=x.device)
    if not x.numel():
        return out.to(x.dtype)
    if incoming.members.data_ptr() == outgoing.members.data_ptr():  # all edges go both ways: both halves in one look
        _pull(out, grad, x, incoming, seen=True, seen_by=True, adding=False)
    else:
        _pull(out, grad, x, incoming, seen=True, seen_by=False, adding=False)
        _pull(out, grad, x, outgoing, seen=False, seen_by=True, adding=True)
    return out.to(x.dtype)


def _pull(out: Tensor, grad: Tensor, x: Tensor, lists: Lists, **flags: Any) -> None:
    """The pull along the lists of one direction."""
    read = (grad, x, lists.pointers, lists.members)
    for launch in launches(lists, *limits(lists)):
        if launch.pieces == 1:
            walk(pull_kernel, launch, launch.shared, x, lists, out, *read, piece=0, **flags)
            continue
        sums = pieces_of(x, launch, out.dtype)
        walk(pull_kernel, launch, True, x, lists, sums, *read, piece=PIECE, **(flags | {"adding": False}))
        join_sums(out, sums, x, launch, lists, flags["adding"])


def _offers(x: Tensor, labels: Tensor, empty: float) -> Tensor:
    """``take(x, labels, empty)``: reading it once beats following the labels of every neighbour."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    each_row(take_kernel, x, out, x, labels, empty=empty)
    return out
