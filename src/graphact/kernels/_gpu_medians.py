"""The median of all nodes by Triton kernels: of short lists by sorting them, of longer ones by counting."""

import math
from typing import Any

import torch
from torch import Tensor

from graphact.kernels._gpu_held import HELD, LAID, REGISTERS, held_median_kernel, holding_tile, laid_tile, longest_laid
from graphact.kernels._gpu_hub import POSITIONS, counting_tile, hub_median_kernel, lay_out_kernel, laying_tile
from graphact.kernels._gpu_launch import rows_of, walk
from graphact.kernels._gpu_look import look
from graphact.kernels._gpu_median import searched_median_kernel, searching_tile
from graphact.kernels._gpu_network import FUSED, SIZES, network_median_kernel, network_tile, sorting_network
from graphact.kernels._gpu_walk import MOST_PROGRAMS, Launch, ceil_div, launches, limits, wide_type
from graphact.kernels.reference import Lists, accumulation_dtype

LAID_OUT = 2**24  # numbers of long lists that may always lie side by side


def median(
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
    sizes = [size - closed for size in (*SIZES, *HELD, *LAID)]
    sorted_up_to = SIZES[-1] - closed
    fused = max(size for size in SIZES if size <= FUSED) - closed
    for launch in launches(lists, *sizes, *(limit for limit in limits(lists) if limit > sizes[-1])):
        if launch.longest <= sorted_up_to:
            along = shifting and launch.longest <= fused
            short_median(values, places, shifted, x, weight, lists, launch, closed, along)
        else:
            long_median(values, places, x, lists, launch, closed)
    if shifting and int(lists.sizes[-1, 0]) > fused:
        look(values, places, shifted, x, weight, lists, "none", False, True, longer_than=fused)


def short_median(
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
    flags: dict[str, Any] = {"size": size, "network": sorting_network(size), "closed": closed, "shifting": shifting}
    tensors = (values, places, shifted, x, weight, lists.pointers, lists.members)
    shape = network_tile(rows_of(x, launch), x.size(-1), size)
    walk(network_median_kernel, launch, False, x, lists, *tensors, shape=shape, **flags)


def long_median(values: Tensor, places: Tensor, x: Tensor, lists: Lists, launch: Launch, closed: bool) -> None:
    """The median of longer lists: held where they fit, laid out first where they do not."""
    rows, columns = rows_of(x, launch), x.size(-1)
    size = next((size for size in HELD if launch.longest + closed <= size), None)
    shape = None if size is None else holding_tile(rows, columns, size, bytes_held(x))
    if shape is not None and shape.grid[1] <= MOST_PROGRAMS:
        flags: dict[str, Any] = {"closed": closed, "laid": False, "maxnreg": REGISTERS}
        tensors = (values, places, x, lists.pointers, lists.members, 0)
        walk(held_median_kernel, launch, False, x, lists, *tensors, shape=shape, **flags)
    elif columns <= MOST_PROGRAMS:
        hub_median(values, places, x, lists, launch, closed)
    else:
        searched_median(values, places, x, lists, launch, closed)


def hub_median(values: Tensor, places: Tensor, x: Tensor, lists: Lists, launch: Launch, closed: bool) -> None:
    """The median of long lists, as many at a time as a signal has room for."""
    samples, columns, stride = math.prod(x.shape[:-2]), x.size(-1), launch.longest + closed
    at_once = min(launch.rows, max(1, max(x.numel(), LAID_OUT) // (samples * columns * stride)))
    numbers = torch.empty((samples * at_once, columns, stride), dtype=accumulation_dtype(x.dtype), device=x.device)
    around = (lists.pointers, lists.members, stride)
    for done in range(0, launch.rows, at_once):
        some = launch._replace(rows=min(at_once, launch.rows - done), last=launch.last - done)
        rows = samples * some.rows
        tiles = ceil_div(stride, POSITIONS)
        each = ceil_div(tiles, MOST_PROGRAMS)  # tiles that a program lays out
        pieces: dict[str, Any] = {"piece": POSITIONS, "pieces": ceil_div(tiles, each)}
        shape = laying_tile(rows, columns)
        walk(lay_out_kernel, some, False, x, lists, numbers, x, *around, each, shape=shape, closed=closed, **pieces)
        tensors = (values, places, numbers, *around)
        if stride <= longest_laid(bytes_held(x)):
            shape = laid_tile(rows, columns, stride, bytes_held(x))
            walk(held_median_kernel, some, False, x, lists, *tensors, shape=shape, closed=closed, laid=True)
        else:
            shape = counting_tile(rows, columns)
            walk(hub_median_kernel, some, False, x, lists, *tensors, shape=shape, closed=closed)


def searched_median(values: Tensor, places: Tensor, x: Tensor, lists: Lists, launch: Launch, closed: bool) -> None:
    """The median of long lists of more columns than programs can be started for."""
    flags: dict[str, Any] = {"closed": closed, "labelled": False, "placing": True}
    tensors = (values, places, x, x, places, lists.pointers, lists.members)
    shape = searching_tile(rows_of(x, launch), x.size(-1))
    walk(searched_median_kernel, launch, True, x, lists, *tensors, shape=shape, **flags)


def bytes_held(x: Tensor) -> int:
    """Of a number, in registers."""
    return int(wide_type(x).primitive_bitwidth) // 8
