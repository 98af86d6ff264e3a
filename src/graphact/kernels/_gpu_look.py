"""One look at the neighbours by Triton kernels; long lists piece by piece."""

from typing import Any

import torch
from torch import Tensor

from graphact.kernels._gpu_hop import hop_kernel, join_kernel
from graphact.kernels._gpu_launch import rows_of, walk
from graphact.kernels._gpu_walk import PIECE, THREADS, Launch, launches, limits
from graphact.kernels.reference import Lists, accumulation_dtype


def look(
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
    flags: dict[str, Any] = {"op": op, "closed": closed, "shifting": shifting}
    threads = 32 if op in ("max", "min") and shifting else THREADS
    lists_read = (lists.pointers, lists.members)
    for launch in launches(lists, *sorted({longer_than, *limits(lists)} - {-1})):
        if launch.longest <= longer_than:
            continue
        if launch.pieces == 1:
            read = (x, weight, *lists_read)
            walk(
                hop_kernel,
                launch,
                launch.shared,
                x,
                lists,
                values,
                places,
                shifted,
                *read,
                threads=threads,
                **flags,
                piece=0,
            )
            continue
        wide = accumulation_dtype(x.dtype)
        wanted = (op != "none", op in ("max", "min"), shifting)
        kinds = zip(wanted, (wide, torch.int32, wide), strict=True)
        found = [pieces_of(x, launch, dtype) if some else x for some, dtype in kinds]
        walk(hop_kernel, launch, True, x, lists, *found, x, weight, *lists_read, threads=threads, **flags, piece=PIECE)
        rest = (values, places, shifted, *found, x, launch.pieces, *lists_read)
        walk(join_kernel, launch, False, x, lists, *rest, **flags, adding=False)


def join_sums(out: Tensor, sums: Tensor, x: Tensor, launch: Launch, lists: Lists, adding: bool) -> None:
    """Add up what was summed piece by piece."""
    rest = (out, out, out, sums, sums, sums, x, launch.pieces, lists.pointers, lists.members)
    walk(join_kernel, launch, False, x, lists, *rest, op="none", closed=False, shifting=True, adding=adding)


def pieces_of(x: Tensor, launch: Launch, dtype: torch.dtype) -> Tensor:
    """Room for what is found piece by piece."""
    return torch.empty((launch.pieces, rows_of(x, launch), x.size(-1)), dtype=dtype, device=x.device)
