"""Edges sorted and transposed on a device, with all that the host must know about them read back in one vector.

Here by operations of torch, on any device; `device_kernels.py` has the same steps as Triton kernels, for GPUs, on which
launching so many operations takes longer than sorting 100,000 edges, and `counting_kernels.py` fewer of them for small
graphs.
"""

import importlib.util
import math
import os
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from graphact.graph.eager import is_plain
from graphact.graph.edges import sum_of

INT32 = 2**31
MOST = 2**30  # nodes or edges that the Triton kernels take: twice as many, and a block, are counted in 32 bits
COUNTED = 16_384  # nodes and edges, up to which each is compared with all others
DTYPES = {torch.int64, torch.float32, torch.float64, torch.bfloat16, torch.float16}  # those of the Triton kernels


class Facts(NamedTuple):
    """What the host must know."""

    lowest: int  # node index, if it is negative
    highest: int  # node index, if it is too high
    not_finite: int  # whether weights, or only their sum, may not be
    repeated: int  # how many edges repeat the one before them
    kept: int  # how many are no self-loops
    pattern_differs: int  # whether that of the transpose does
    weights_differ: int


class Sorted(NamedTuple):
    """Edges sorted by target, then by source, and those of the transpose; in both, self-loops stand at the end.

    Attributes:
        edge: where each edge stood.
        row: target of each edge.
        col: source of each edge.
        weight: weight of each edge, without gradients.
        edge_t: where each edge of the transpose stands.
        col_t: target of each edge of the transpose.
        weight_t: weight of each edge of the transpose, without gradients.
        slot: where each edge of the transpose stands in the incoming list that holds it.
        rowptr: where the incoming lists begin, and the outgoing ones.
        order: nodes by the length of their incoming lists, and of their outgoing ones.
        sizes: length and number of the incoming lists of each length, and of the outgoing ones; on the CPU.
        facts: what was read back.
    """

    edge: Tensor
    row: Tensor
    col: Tensor
    weight: Tensor
    edge_t: Tensor
    col_t: Tensor
    weight_t: Tensor
    slot: Tensor
    rowptr: tuple[Tensor, Tensor]
    order: tuple[Tensor, Tensor]
    sizes: tuple[Tensor, Tensor]
    facts: Facts

    def without_loops(self) -> "Sorted":
        """The edges alone."""
        kept, by_edge = self.facts.kept, self._fields[:8]
        return self._replace(**{name: getattr(self, name)[:kept] for name in by_edge})


def has_kernels_for(*tensors: Tensor) -> bool:
    """Whether Triton is there, and can read these tensors, which lie on one device."""
    return (
        (tensors[0].is_cuda or os.environ.get("TRITON_INTERPRET") == "1")
        and is_plain(*tensors)
        and all(tensor.dtype in DTYPES for tensor in tensors)
        and _is_installed()
    )


@cache
def _is_installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def sort_edges(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, *, is_coalesced: bool, checks: bool
) -> Sorted:
    """Sort and transpose at least one edge, with one read-back.

    Args:
        target: row of each entry.
        source: column of each entry.
        weight: value of each entry.
        num_nodes: number of nodes.
        is_coalesced: whether the entries are sorted by source, then by target, without repetition.
        checks: whether the facts about bounds and weights are wanted. An index that is out of bounds does no harm.
    """
    if max(num_nodes, target.numel()) < MOST and has_kernels_for(target, source, weight):
        from graphact.graph import counting_kernels, device_kernels

        kernels = counting_kernels if max(num_nodes, target.numel()) <= COUNTED else device_kernels
        return kernels.sort_edges(target, source, weight, num_nodes, is_coalesced, checks)
    return sort_with_torch(target, source, weight, num_nodes, is_coalesced, checks)


def sort_with_torch(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, is_coalesced: bool, checks: bool
) -> Sorted:
    """See :func:`sort_edges`; by one key, then stably by source."""
    loop, nobody = target == source, num_nodes * num_nodes  # self-loops, set aside, sort last
    narrow = torch.int32 if num_nodes < INT32 else torch.int64
    if is_coalesced:
        row, edge = torch.sort(torch.where(loop, num_nodes, target).to(narrow), stable=True)
        col = torch.where(row < num_nodes, source[edge], num_nodes).to(narrow)
        repeated = torch.zeros_like(row[0])
    else:
        key = torch.where(loop, nobody, target * num_nodes + source)
        key, edge = torch.sort(key.int() if nobody < INT32 else key, stable=True)
        row = key // num_nodes
        row, col = row.to(narrow), torch.where(row < num_nodes, key - row * num_nodes, num_nodes).to(narrow)
        repeated = ((key[1:] == key[:-1]) & (key[1:] < nobody)).sum()
    row_t, edge_t = torch.sort(col, stable=True)  # the same edges seen from their sources
    col_t = row[edge_t]
    rowptr = _search(torch.stack([row, row_t]), num_nodes + 1)
    slot = (edge_t - rowptr[0][col_t.clamp(0, num_nodes)]).int()
    order, starts, degrees = _group_by_degree(rowptr.diff(dim=1), target.numel())
    moved = weight.detach().index_select(0, edge)
    moved_t = moved[edge_t]
    zero = torch.zeros_like(repeated)
    lowest, highest = torch.stack([target, source]).aminmax() if checks else (zero, zero)
    facts = (
        lowest,
        highest,
        _may_not_be_finite(weight, loop) if checks else zero,
        repeated,
        rowptr[0, -1],
        ((row != row_t) | (col != col_t)).any(),
        (moved != moved_t).any(),
    )
    read = torch.cat([torch.stack([fact.to(torch.int64) for fact in facts]), starts.flatten(), degrees.flatten()]).cpu()
    sizes = _sizes(read[len(facts) :], starts.size(1), num_nodes)
    sides = (rowptr[0], rowptr[1]), (order[0], order[1])
    known = Facts(*read[: len(facts)].tolist())
    return Sorted(edge, row, col.long(), moved, edge_t, col_t.long(), moved_t, slot, *sides, sizes, known)


def _may_not_be_finite(weight: Tensor, loop: Tensor) -> Tensor:
    """Whether a weight is not finite, or a sum of loops might not be."""
    of_loops = torch.where(loop, weight.detach().abs(), 0).sum(dtype=torch.float64)
    return ~sum_of(weight).isfinite() | (of_loops > torch.finfo(weight.dtype).max)


def _search(ascending: Tensor, count: int) -> Tensor:
    """In each row of ascending numbers, where 0..count-1 would be inserted."""
    numbers = torch.arange(count, dtype=ascending.dtype, device=ascending.device)
    return torch.searchsorted(ascending, numbers.repeat(len(ascending), 1))


def _group_by_degree(degree: Tensor, num_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """In each row, the nodes by ascending degree, where the groups of equal degree begin in them, and the degrees."""
    ascending, order = torch.sort(degree, dim=1, stable=True)
    group = torch.nn.functional.pad((ascending[:, 1:] != ascending[:, :-1]).cumsum(1), (1, 0))
    starts = _search(group, most_groups(degree.size(1), num_edges) + 1)
    return order, starts, ascending.gather(1, starts[:, :-1].clamp(max=degree.size(1) - 1))


def most_groups(num_nodes: int, num_edges: int) -> int:
    """The most distinct degrees that so many edges make, so that their number needs not be known."""
    return min(num_nodes, (1 + math.isqrt(1 + 8 * num_edges)) // 2)


def _sizes(read: Tensor, columns: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Degree and number of nodes of each group, for the rows that :func:`_group_by_degree` made."""
    starts, degrees = read[: 2 * columns].view(2, columns), read[2 * columns :].view(2, columns - 1)
    found = torch.stack([degrees, starts.diff(dim=1)], dim=2)
    one, other = (sizes[begin[:-1] < num_nodes] for sizes, begin in zip(found, starts, strict=True))
    return one, other
