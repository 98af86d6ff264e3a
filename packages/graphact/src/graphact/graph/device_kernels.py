"""Building graphs on a GPU by a few Triton kernels around torch's sorts.

Indices are compared with the number of nodes before anything is read at them: edges that are out of bounds are set
aside like self-loops.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact._triton import launch
from graphact.graph.device import COUNTED, INT32, Facts, Sorted, most_groups

P = ParamSpec("P")
T = TypeVar("T")

BLOCK, NODES = 1024, 256  # edges, and nodes, that a program has

# compiled once for graphs of all sizes
any_size = triton.jit(
    do_not_specialize=["num_edges", "num_nodes", "edge_blocks", "most", "steps", "count"],
    do_not_specialize_on_alignment=["target", "source", "weight", "weight_t", "diagonal"],
)

# where the facts lie that are found on the device; all begin with zero, and the table of groups follows
LOWEST = tl.constexpr(0)
HIGHEST = tl.constexpr(1)
NOT_FINITE = tl.constexpr(2)
REPEATED = tl.constexpr(3)
KEPT = tl.constexpr(4)
PATTERN_DIFFERS = tl.constexpr(5)
WEIGHTS_DIFFER = tl.constexpr(6)
GROUPS = tl.constexpr(7)  # how many distinct lengths incoming and outgoing lists have
TABLE = tl.constexpr(9)  # those lengths, and where the first list of each stands in the order by length


def on_its_device(function: Callable[Concatenate[Tensor, P], T]) -> Callable[Concatenate[Tensor, P], T]:
    """Let Triton, which launches on the current device, launch on that of the first tensor."""

    @wraps(function)
    def launching(tensor: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
            return function(tensor, *args, **kwargs)
        with torch.cuda.device(tensor.device):
            return function(tensor, *args, **kwargs)

    return launching


@on_its_device
def sort_edges(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, is_coalesced: bool, checks: bool
) -> Sorted:
    """See :func:`graphact.graph.device.sort_edges`."""
    target, source, weight = target.contiguous(), source.contiguous(), weight.detach().contiguous()
    device, num_edges = target.device, target.numel()
    size, edge_blocks = (num_edges, num_nodes), -(-num_edges // BLOCK)
    most = most_groups(num_nodes, num_edges)
    facts = torch.zeros(TABLE.value + 4 * most, dtype=torch.int64, device=device)

    fits_32_bits = is_coalesced or num_nodes * num_nodes < INT32
    key = torch.empty(num_edges, dtype=torch.int32 if fits_32_bits else torch.int64, device=device)
    by_edge = {"fused": not is_coalesced, "block": BLOCK}
    launch(key_kernel, (edge_blocks,), target, source, weight, key, facts, *size, checks=checks, **by_edge)
    key, edge = stable_sort(key)

    row, key_t = (torch.empty(num_edges, dtype=torch.int32, device=device) for _ in range(2))
    col, moved = torch.empty_like(edge), torch.empty_like(weight)
    launch(edge_kernel, (edge_blocks,), key, edge, source, weight, row, key_t, col, moved, facts, *size, **by_edge)
    row_t, edge_t = stable_sort(key_t)

    rowptr, rowptr_t = (torch.empty(num_nodes + 1, dtype=torch.int64, device=device) for _ in range(2))
    degree = torch.empty((2, num_nodes), dtype=torch.int32, device=device)
    lists, steps = (row, row_t, rowptr, rowptr_t, degree), num_edges.bit_length()
    launch(node_kernel, (num_nodes // NODES + 1, 2), *lists, facts, *size, steps, block=NODES)
    degree, order = stable_sort(degree)

    col_t, weight_t, slot = torch.empty_like(col), torch.empty_like(moved), torch.empty_like(row)
    tensors = (row, col, moved, row_t, edge_t, rowptr, col_t, weight_t, slot, degree, facts)
    blocks = edge_blocks + -(-2 * num_nodes // BLOCK)
    launch(transpose_kernel, (blocks,), *tensors, *size, edge_blocks, most, block=BLOCK)

    known, sizes = known_facts(facts, num_nodes, most)
    sides = (rowptr, rowptr_t), (order[0], order[1])
    return Sorted(edge, row, col, moved, edge_t, col_t, weight_t, slot, *sides, sizes, known)


def known_facts(facts: Tensor, num_nodes: int, most: int) -> tuple[Facts, tuple[Tensor, Tensor]]:
    """What was found on the device, and the sizes of groups of equal degree, with one read-back.

    Where the transpose has the same pattern, so are the sizes of both sides.
    """
    *found, one, other = (read := read_back(facts))[: TABLE.value].tolist()
    known, table = Facts(*found), read[TABLE.value :].reshape(2, most, 2)
    sizes = sizes_of(table[0, :one], num_nodes)
    return known, (sizes, sizes_of(table[1, :other], num_nodes) if known.pattern_differs else sizes)


def read_back(facts: Tensor) -> "np.ndarray[Any, Any]":
    """The numbers on the host, by way of pinned memory."""
    if not facts.is_cuda:
        return facts.numpy()
    read = torch.empty(facts.shape, dtype=facts.dtype, pin_memory=True)
    read.copy_(facts, non_blocking=True)
    torch.cuda.current_stream(facts.device).synchronize()
    return read.numpy()


def sizes_of(groups: "np.ndarray[Any, Any]", num_nodes: int) -> Tensor:
    """Degree and number of nodes of each group, from degrees and where groups begin, which come in any order."""
    groups = groups[groups[:, 1].argsort()]
    begins = np.append(groups[:, 1], num_nodes)
    groups[:, 1] = begins[1:] - begins[:-1]
    return torch.from_numpy(groups)


def stable_sort(key: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers in ascending order along the last dimension, and where they stood.

    A few are sorted by one kernel that compares all of them with each, which takes less than starting those of
    torch.sort.
    """
    count = key.size(-1)
    if count > COUNTED:
        return torch.sort(key, stable=True)
    ascending, index = torch.empty_like(key), torch.empty(key.shape, dtype=torch.int64, device=key.device)
    grid = (-(-count // RANKED), key.numel() // count)
    launch(rank_kernel, grid, key, ascending, index, count, block=RANKED, chunk=COMPARED)
    return ascending, index


RANKED, COMPARED = 64, 512  # numbers that a program places, and that it compares them with at a time


@any_size
def rank_kernel(key, ascending, index, count, block: tl.constexpr, chunk: tl.constexpr):
    """Put each number where as many stand before it as are smaller, or equal and came before it."""
    first = tl.program_id(1).to(tl.int64) * count
    i = tl.program_id(0) * block + tl.arange(0, block)
    number = tl.load(key + first + i, mask=i < count, other=0)
    rank = tl.zeros((block,), dtype=tl.int32)
    for left in range(0, count, chunk):
        j = left + tl.arange(0, chunk)
        other = tl.load(key + first + j, mask=j < count, other=0)[None, :]
        before = (other < number[:, None]) | ((other == number[:, None]) & (j[None, :] < i[:, None]))
        rank += tl.sum((before & (j < count)[None, :]).to(tl.int32), 1)
    tl.store(ascending + first + rank, number, mask=i < count)
    tl.store(index + first + rank, i.to(tl.int64), mask=i < count)


@any_size
def key_kernel(
    target, source, weight, key, facts, num_edges, num_nodes, fused: tl.constexpr, checks: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """The number to sort each edge by: of its target and its source or, if not fused, of its target."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    there = at < num_edges
    row = tl.load(target + at, mask=there, other=0)
    col = tl.load(source + at, mask=there, other=0)
    aside = (row == col) | (tl.minimum(row, col) < 0) | (tl.maximum(row, col) >= num_nodes)
    nodes = tl.zeros_like(row) + num_nodes  # 64 bits
    number = row * nodes + col if fused else row
    number = tl.where(aside, nodes * nodes if fused else nodes, number)
    tl.store(key + at, number.to(key.dtype.element_ty), mask=there)
    if checks:
        note_checks(row, col, tl.load(weight + at, mask=there, other=0.0), facts, num_edges, num_nodes)


@triton.jit
def note_checks(row, col, weight, facts, num_edges, num_nodes):
    """Note indices that are out of bounds, and weights that are not finite or, of loops, whose sum might not be."""
    lowest = tl.min(tl.minimum(row, col), 0)
    tl.atomic_min(facts + LOWEST, lowest, mask=lowest < 0, sem="relaxed")
    highest = tl.max(tl.maximum(row, col), 0)
    tl.atomic_max(facts + HIGHEST, highest, mask=highest >= num_nodes, sem="relaxed")
    number = weight.to(tl.float64)
    bad = (number != number) | (tl.abs(number) == float("inf"))
    bad |= (row == col) & (tl.abs(number) > most_of(weight.dtype) / num_edges)
    count = tl.sum(bad.to(tl.int64), 0)
    tl.atomic_add(facts + NOT_FINITE, count, mask=count > 0, sem="relaxed")


@triton.jit
def most_of(dtype: tl.constexpr):
    """What sums of a type can reach, or a little less."""
    most: tl.constexpr = 1.7e308 if dtype == tl.float64 else 6.5e4 if dtype == tl.float16 else 3.3e38
    return tl.full((), most, tl.float64)


@any_size
def edge_kernel(
    key, edge, source, weight, row, key_t, col, moved, facts, num_edges, num_nodes, fused: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """Target, source and weight of each sorted edge, and how many are repeated."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    there = at < num_edges
    number = tl.load(key + at, mask=there, other=0)
    e = tl.load(edge + at, mask=there, other=0)
    if fused:
        i = number // num_nodes  # both positive, in as many bits as the key has
        j = (number - i * num_nodes).to(tl.int64)
        before = tl.load(key + at - 1, mask=there & (at > 0), other=-1)
        repeated = there & (number == before) & (i < num_nodes)
        count = tl.sum(repeated.to(tl.int64), 0)
        tl.atomic_add(facts + REPEATED, count, mask=count > 0, sem="relaxed")
    else:
        i = number
        j = tl.load(source + e, mask=there, other=0)
    j = tl.where(i < num_nodes, j, num_nodes)
    tl.store(row + at, i.to(tl.int32), mask=there)
    tl.store(key_t + at, j.to(tl.int32), mask=there)
    tl.store(col + at, j, mask=there)
    tl.store(moved + at, tl.load(weight + e, mask=there), mask=there)


@any_size
def node_kernel(
    row, row_t, rowptr, rowptr_t, degree, facts, num_edges, num_nodes, steps, block: tl.constexpr
):  # fmt: skip
    """Where the list of each node begins, by bisection, and how long it is."""
    node = tl.program_id(0) * block + tl.arange(0, block)
    if tl.program_id(1) == 0:
        begin = first_from(row, node, num_edges, steps)
        end = first_from(row, node + 1, num_edges, steps)
        tl.store(rowptr + node, begin, mask=node <= num_nodes)
        tl.store(degree + node, (end - begin).to(tl.int32), mask=node < num_nodes)
        tl.store(facts + KEPT + 0 * node, begin, mask=node == num_nodes)
    else:
        begin = first_from(row_t, node, num_edges, steps)
        end = first_from(row_t, node + 1, num_edges, steps)
        tl.store(rowptr_t + node, begin, mask=node <= num_nodes)
        tl.store(degree + num_nodes + node, (end - begin).to(tl.int32), mask=node < num_nodes)


@triton.jit
def first_from(ascending, bound, count, steps):
    """Where the first number stands that is not below each bound."""
    left = tl.zeros_like(bound).to(tl.int64)
    right = left + count
    for _ in range(0, steps):
        middle = (left + right) // 2
        below = (left < right) & (tl.load(ascending + middle, mask=left < right, other=0) < bound)
        right = tl.where(below | (left >= right), right, middle)
        left = tl.where(below, middle + 1, left)
    return left


@any_size
def transpose_kernel(
    row, col, weight, row_t, edge_t, rowptr, col_t, weight_t, slot, degree, facts, num_edges, num_nodes, edge_blocks,
    most, block: tl.constexpr,
):  # fmt: skip
    """The edges of the transpose, whether they differ, and (by further programs) where groups of equal degree begin."""
    if tl.program_id(0) < edge_blocks:
        at = tl.program_id(0) * block + tl.arange(0, block)
        i_t = tl.load(row_t + at, mask=at < num_edges, other=0)
        there = (at < num_edges) & (i_t < num_nodes)
        e = tl.load(edge_t + at, mask=there, other=0)
        j_t = tl.load(row + e, mask=there, other=0)
        tl.store(col_t + at, j_t.to(tl.int64), mask=there)
        tl.store(slot + at, (e - tl.load(rowptr + j_t, mask=there, other=0)).to(tl.int32), mask=there)
        i = tl.load(row + at, mask=there, other=0)
        j = tl.load(col + at, mask=there, other=0)
        differs = there & ((i != i_t) | (j != j_t))
        number_t = tl.load(weight + e, mask=there, other=0.0)
        tl.store(weight_t + at, number_t, mask=there)
        number = tl.load(weight + at, mask=there, other=0.0)
        unequal = number.to(tl.float64) != number_t.to(tl.float64)
        any_differs = tl.max(differs.to(tl.int64), 0)
        any_unequal = tl.max(unequal.to(tl.int64), 0)
        tl.atomic_max(facts + PATTERN_DIFFERS, any_differs, mask=any_differs > 0, sem="relaxed")
        tl.atomic_max(facts + WEIGHTS_DIFFER, any_unequal, mask=any_unequal > 0, sem="relaxed")
    else:
        at = (tl.program_id(0) - edge_blocks) * block + tl.arange(0, block)
        there = at < 2 * num_nodes
        side = (at >= num_nodes).to(tl.int64)
        node = at - side * num_nodes
        length = tl.load(degree + at, mask=there, other=0)
        before = tl.load(degree + at - 1, mask=there & (node > 0), other=-1)
        begins = there & ((node == 0) | (length != before))
        place = tl.atomic_add(facts + GROUPS + side, tl.full((block,), 1, tl.int64), mask=begins, sem="relaxed")
        group = facts + TABLE + 2 * (side * most + place)
        tl.store(group, length.to(tl.int64), mask=begins)
        tl.store(group + 1, node, mask=begins)
