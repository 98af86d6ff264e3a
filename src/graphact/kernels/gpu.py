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
from graphact.kernels._gpu_held import HELD, held_median_kernel, holding_tile
from graphact.kernels._gpu_hop import hop_kernel, join_kernel
from graphact.kernels._gpu_hub import POSITIONS, counting_tile, hub_median_kernel, lay_out_kernel, laying_tile
from graphact.kernels._gpu_median import RANKED, ranked_median_kernel, searched_median_kernel
from graphact.kernels._gpu_mix import mix, mix_gradients
from graphact.kernels._gpu_network import FUSED, SIZES, network_median_kernel, network_tile, sorting_network
from graphact.kernels._gpu_rows import take_rows
from graphact.kernels._gpu_select import extreme_kernel, take_kernel
from graphact.kernels._gpu_streams import Beside
from graphact.kernels._gpu_sums import pull_kernel, route_kernel, weight_grad_kernel
from graphact.kernels._gpu_turn import turn_kernel
from graphact.kernels._gpu_walk import (
    ALONE,
    PIECE,
    THREADS,
    Launch,
    Tile,
    launches,
    limits,
    tile,
    wide_type,
)
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

SEARCHED_BLOCK, SEARCHED_LANES, SEARCHED_WARPS = 8, 64, 2
MOST_PROGRAMS = 65_535  # in the second and third direction of a launch
LAID_OUT = 2**24  # numbers of long lists that may always lie side by side
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTERPRETED = not isinstance(hop_kernel, triton.runtime.JITFunction)


def supports(x: Tensor) -> bool:
    """Floating-point signals on a CUDA device; with Triton's interpreter, on the CPU, too."""
    return x.dtype in DTYPES and (x.is_cuda or INTERPRETED)


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
            _median(values, places, shifted, x, weight, lists, closed, shifting)
        else:
            _look(values, places, shifted, x, weight, lists, op, closed, shifting)
    return values, places, shifted


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.shift`."""
    x, weight, out = x.contiguous(), weight.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        _look(out, out, out, x, weight, lists, "none", False, True)
    return out


def spread(x: Tensor, lists: Lists) -> Tensor:
    """See :func:`graphact.kernels.reference.spread`."""
    x, out = x.contiguous(), torch.empty(x.shape, dtype=accumulation_dtype(x.dtype), device=x.device)
    if out.numel():
        _look(out, out, out, x, x, lists, "kernel", False, False)
    return out


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
    flags = {"closed": closed, "shifting": shifting}
    for launch in launches(outgoing, *limits(outgoing)):
        if launch.pieces == 1:
            _walk(turn_kernel, launch, launch.shared, grad, outgoing, out, *read, **flags, piece=0)
            continue
        sums = _pieces(grad, launch, accumulation_dtype(grad.dtype))
        _walk(turn_kernel, launch, True, grad, outgoing, sums, *read, **flags, piece=PIECE)
        _join_sums(out, sums, grad, launch, outgoing, False)
    return out


def _look(
    values: Tensor,
    places: Tensor,
    shifted: Tensor,
    x: Tensor,
    weight: Tensor,
    lists: Lists,
    op: str,
    closed: bool,
    shifting: bool,
    longer_than: int = -1,
) -> None:
    """One look at the neighbours of all nodes, or of those that have more than some number."""
    flags = {"op": op, "closed": closed, "shifting": shifting}
    lists_read = (lists.pointers, lists.members)
    for launch in launches(lists, *sorted({longer_than, *limits(lists)} - {-1})):
        if launch.longest <= longer_than:
            continue
        if launch.pieces == 1:
            read = (x, weight, *lists_read)
            _walk(hop_kernel, launch, launch.shared, x, lists, values, places, shifted, *read, **flags, piece=0)
            continue
        wide = accumulation_dtype(x.dtype)
        found = [_pieces(x, launch, dtype) for dtype in (wide, torch.int32, wide)]
        _walk(hop_kernel, launch, True, x, lists, *found, x, weight, *lists_read, **flags, piece=PIECE)
        rest = (values, places, shifted, *found, x, launch.pieces, *lists_read)
        _walk(join_kernel, launch, False, x, lists, *rest, **flags, adding=False)


def _join_sums(out: Tensor, sums: Tensor, x: Tensor, launch: Launch, lists: Lists, adding: bool) -> None:
    """Add up what was summed piece by piece."""
    rest = (out, out, out, sums, sums, sums, x, launch.pieces, lists.pointers, lists.members)
    _walk(join_kernel, launch, False, x, lists, *rest, op="none", closed=False, shifting=True, adding=adding)


def _median(
    values: Tensor,
    places: Tensor,
    shifted: Tensor,
    x: Tensor,
    weight: Tensor,
    lists: Lists,
    closed: bool,
    shifting: bool,
) -> None:
    """The median of all nodes: of short lists by sorting them, of longer ones by counting."""
    fused = max(size for size in SIZES if size <= FUSED) - closed
    with Beside(x.device) as beside:
        for launch in launches(lists, *(size - closed for size in (*SIZES, *HELD)), *limits(lists)[1:]):
            if launch.longest + closed <= SIZES[-1]:
                along = shifting and launch.longest <= fused
                _short_median(values, places, shifted, x, weight, lists, launch, closed, along)
                continue
            with beside.second():
                _long_median(values, places, x, lists, launch, closed)
        if shifting and int(lists.sizes[-1, 0]) > fused:
            with beside.second():
                _look(values, places, shifted, x, weight, lists, "none", False, True, longer_than=fused)


def _short_median(
    values: Tensor,
    places: Tensor,
    shifted: Tensor,
    x: Tensor,
    weight: Tensor,
    lists: Lists,
    launch: Launch,
    closed: bool,
    shifting: bool,
) -> None:
    """The median of short lists, and the shift where wanted."""
    size = next(size for size in SIZES if launch.longest + closed <= size)
    flags = {"size": size, "network": sorting_network(size), "closed": closed, "shifting": shifting}
    tensors = (values, places, shifted, x, weight, lists.pointers, lists.members)
    shape = network_tile(_rows(x, launch), x.size(-1), size)
    _walk(network_median_kernel, launch, False, x, lists, *tensors, shape=shape, **flags)


def _long_median(values: Tensor, places: Tensor, x: Tensor, lists: Lists, launch: Launch, closed: bool) -> None:
    """The median of longer lists: held where they fit, laid out where they do not."""
    around = (lists.pointers, lists.members)
    if launch.longest + closed <= HELD[-1]:
        size = next(size for size in HELD if launch.longest + closed <= size)
        shape = holding_tile(_rows(x, launch), x.size(-1), size, wide_type(x).primitive_bitwidth // 8)
        _walk(held_median_kernel, launch, False, x, lists, values, places, x, *around, shape=shape, closed=closed)
    elif x.size(-1) <= MOST_PROGRAMS:
        _hub_median(values, places, x, lists, launch, closed)
    else:
        flags = {"closed": closed, "labelled": False, "placing": True}
        _walk(searched_median_kernel, launch, True, x, lists, values, places, x, x, places, *around, **flags)


def _hub_median(values: Tensor, places: Tensor, x: Tensor, lists: Lists, launch: Launch, closed: bool) -> None:
    """The median of long lists, as many at a time as a signal has room for."""
    samples, columns, stride = math.prod(x.shape[:-2]), x.size(-1), launch.longest + closed
    at_once = min(launch.rows, max(1, max(x.numel(), LAID_OUT) // (samples * columns * stride)))
    numbers = torch.empty((samples * at_once, columns, stride), dtype=accumulation_dtype(x.dtype), device=x.device)
    around = (lists.pointers, lists.members, stride)
    for done in range(0, launch.rows, at_once):
        some = launch._replace(rows=min(at_once, launch.rows - done), last=launch.last - done)
        rows = samples * some.rows
        tiles = -(-stride // POSITIONS)
        each = -(-tiles // MOST_PROGRAMS)  # tiles that a program lays out
        pieces = {"piece": POSITIONS, "pieces": -(-tiles // each)}
        shape = laying_tile(rows, columns)
        _walk(lay_out_kernel, some, False, x, lists, numbers, x, *around, each, shape=shape, closed=closed, **pieces)
        shape = counting_tile(rows, columns, stride)
        _walk(hub_median_kernel, some, False, x, lists, values, places, numbers, *around, shape=shape, closed=closed)


def _pieces(x: Tensor, launch: Launch, dtype: torch.dtype) -> Tensor:
    """Room for what is found piece by piece."""
    return torch.empty((launch.pieces, _rows(x, launch), x.size(-1)), dtype=dtype, device=x.device)


def _rows(x: Tensor, launch: Launch) -> int:
    """The rows of a launch over all samples."""
    return math.prod(x.shape[:-2]) * launch.rows


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
        flags["placing"] = False
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


def _pull(out: Tensor, grad: Tensor, x: Tensor, lists: Lists, **flags: bool) -> None:
    """The pull along the lists of one direction."""
    read = (grad, x, lists.pointers, lists.members)
    for launch in launches(lists, *limits(lists)):
        if launch.pieces == 1:
            _walk(pull_kernel, launch, launch.shared, x, lists, out, *read, piece=0, **flags)
            continue
        sums = _pieces(x, launch, out.dtype)
        _walk(pull_kernel, launch, True, x, lists, sums, *read, piece=PIECE, **(flags | {"adding": False}))
        _join_sums(out, sums, x, launch, lists, flags["adding"])


def _offers(x: Tensor, labels: Tensor, empty: float) -> Tensor:
    """``take(x, labels, empty)``: reading it once beats following the labels of every neighbour."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _each_row(take_kernel, x, out, x, labels, empty=empty)
    return out


def _walk(kernel: Any, launch: Launch, shared: bool, x: Tensor, lists: Lists, *tensors: Any, **flags: Any) -> None:
    """Start the programs of one launch on signals like ``x``."""
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = samples * launch.rows
    lanes, block, warps, grid = flags.pop("shape", None) or _tile_of(kernel, rows, x, shared, flags)
    pieces = flags.pop("pieces", launch.pieces if flags.get("piece") else 1)
    sizes = (launch.rows, launch.last, rows, nodes, columns)
    flags |= {"shared": shared, "ordered": launch.ordered, "batched": samples > 1}
    options = {"lanes": lanes, "block": block, "wide": wide_type(x), "num_warps": warps}
    with _on_device_of(x):
        kernel[(*grid, pieces)](*tensors, lists.order, *sizes, **options, **flags)


def _tile_of(kernel: Any, rows: int, x: Tensor, shared: bool, flags: dict[str, Any]) -> Tile:
    """The tile that suits a kernel, as measured."""
    columns, bytes_per_number = x.size(-1), x.element_size()
    if kernel is searched_median_kernel and shared:
        # a search reads a list many times: few columns a program, few threads to agree, and many programs
        block = min(triton.next_power_of_2(columns), SEARCHED_BLOCK)
        return Tile(SEARCHED_LANES, block, SEARCHED_WARPS, (rows, triton.cdiv(columns, block)))
    busy = kernel is hop_kernel and flags["op"] in ("max", "min") and flags["shifting"]
    sparing = kernel is turn_kernel and not flags["shifting"]
    return tile(rows, columns, bytes_per_number, shared, threads=32 if busy or sparing else THREADS)


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
