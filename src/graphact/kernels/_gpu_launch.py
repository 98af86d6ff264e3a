"""Starting Triton kernels on signals, which are read as contiguous ``(B, N, F)``."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from graphact.kernels._gpu_walk import THREADS, Launch, Tile, tile, wide_type
from graphact.kernels.reference import Lists

P = ParamSpec("P")
T = TypeVar("T")


def walk(
    kernel: Any,
    launch: Launch,
    shared: bool,
    x: Tensor,
    lists: Lists,
    *tensors: Any,
    shape: Tile | None = None,
    threads: int = THREADS,
    pieces: int | None = None,
    **flags: Any,
) -> None:
    """Start the programs of one launch on signals like ``x``.

    Args:
        kernel: takes the tensors, then the order of the rows and sizes.
        launch: the rows.
        shared: whether all lanes of a program walk one list.
        x: the signal.
        lists: the neighbours.
        tensors: what the kernel reads and writes.
        shape: the tile of a program; the usual one by default.
        threads: of a program with the usual tile.
        pieces: programs in the third direction; by default as many as share a list.
        flags: constants of the kernel.
    """
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = rows_of(x, launch)
    lanes, block, warps, grid = shape or tile(rows, columns, x.element_size(), shared, threads)
    if pieces is None:
        pieces = launch.pieces if flags.get("piece") else 1
    sizes = (launch.rows, launch.last, rows, nodes, columns)
    flags |= {"shared": shared, "ordered": launch.ordered, "batched": samples > 1}
    options = {"lanes": lanes, "block": block, "wide": wide_type(x), "num_warps": warps}
    kernel[(*grid, pieces)](*tensors, lists.order, *sizes, **options, **flags)


def each_row(kernel: Any, x: Tensor, *tensors: Tensor, **options: Any) -> None:
    """Start the programs that visit every number of signals like ``x`` once."""
    samples, (nodes, columns) = math.prod(x.shape[:-2]), x.shape[-2:]
    rows = samples * nodes
    lanes, block, warps, grid = tile(rows, columns, x.element_size(), False)
    options |= {"lanes": lanes, "block": block, "batched": samples > 1, "num_warps": warps}
    kernel[grid](*tensors, rows=rows, nodes=nodes, columns=columns, **options)


def rows_of(x: Tensor, launch: Launch) -> int:
    """The rows of a launch over all samples."""
    return math.prod(x.shape[:-2]) * launch.rows


def on_its_device(function: Callable[Concatenate[Tensor, P], T]) -> Callable[Concatenate[Tensor, P], T]:
    """Let Triton, which launches on the current device, launch on that of the first tensor."""

    @wraps(function)
    def launching(x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            return function(x, *args, **kwargs)

    return launching
