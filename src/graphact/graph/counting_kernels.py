"""Building small graphs on a GPU by counting: a number belongs where as many stand before it as are smaller.

Comparing all numbers with each takes three kernels; sorting takes more, and starting one costs more than it does here.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact._triton import launch
from graphact.graph.device import Sorted, most_groups
from graphact.graph.device_kernels import (
    GROUPS,
    KEPT,
    PATTERN_DIFFERS,
    REPEATED,
    TABLE,
    WEIGHTS_DIFFER,
    any_size,
    first_from,
    known_facts,
    note_checks,
    on_its_device,
)

RANKED, COMPARED = 32, 128  # numbers that a program places, and that it compares them with at a time


@on_its_device
def sort_edges(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, is_coalesced: bool, checks: bool
) -> Sorted:
    """See :func:`graphact.graph.device.sort_edges`."""
    target, source, weight = target.contiguous(), source.contiguous(), weight.detach().contiguous()
    device, num_edges = target.device, target.numel()
    size, edge_blocks, node_blocks = (num_edges, num_nodes), -(-num_edges // RANKED), num_nodes // RANKED + 1
    most = most_groups(num_nodes, num_edges)
    facts = torch.zeros(TABLE.value + 4 * most, dtype=torch.int64, device=device)
    tile: dict[str, Any] = {"block": RANKED, "chunk": COMPARED}

    edge, col, edge_t, col_t = (torch.empty(num_edges, dtype=torch.int64, device=device) for _ in range(4))
    row, slot = (torch.empty(num_edges, dtype=torch.int32, device=device) for _ in range(2))
    moved, weight_t = torch.empty_like(weight), torch.empty_like(weight)
    flags = {"fused": not is_coalesced, "checks": checks}
    tile["known"] = (weight.dtype, device.index)  # tensors made here are aligned, and sizes small
    launch(edges_kernel, (edge_blocks,), target, source, weight, edge, row, col, moved, facts, *size, **flags, **tile)

    rowptr, rowptr_t = (torch.empty(num_nodes + 1, dtype=torch.int64, device=device) for _ in range(2))
    degree = torch.empty((2, num_nodes), dtype=torch.int32, device=device)
    tensors = (row, col, moved, edge_t, col_t, weight_t, slot, rowptr, rowptr_t, degree, facts)
    sizes_of_lists = (*size, edge_blocks, num_edges.bit_length())
    launch(lists_kernel, (edge_blocks + 2 * node_blocks,), *tensors, *sizes_of_lists, fused=not is_coalesced, **tile)

    order = torch.empty((2, num_nodes), dtype=torch.int64, device=device)
    launch(order_kernel, (node_blocks, 2), degree, order, facts, num_nodes, most, **tile)

    known, sizes = known_facts(facts, num_nodes, most)
    sides = (rowptr, rowptr_t), (order[0], order[1])
    return Sorted(edge, row, col, moved, edge_t, col_t, weight_t, slot, *sides, sizes, known)


@triton.jit
def numbers_of(target, source, at, num_edges, num_nodes, fused: tl.constexpr):
    """Both ends of edges, in 32 bits those set aside as ``num_nodes``, and the number to sort each of them by."""
    row = tl.load(target + at, mask=at < num_edges, other=0)
    col = tl.load(source + at, mask=at < num_edges, other=0)
    aside = (row == col) | (tl.minimum(row, col) < 0) | (tl.maximum(row, col) >= num_nodes)
    i = tl.where(aside, num_nodes, row).to(tl.int32)
    j = tl.where(aside, num_nodes, col).to(tl.int32)
    number = tl.where(aside, num_nodes * num_nodes, i * num_nodes + j) if fused else i
    return row, col, i, j, number


@any_size
def edges_kernel(
    target, source, weight, edge, row, col, moved, facts, num_edges, num_nodes, fused: tl.constexpr,
    checks: tl.constexpr, block: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Sort edges by target and source or, if not fused, by target alone."""
    e = tl.program_id(0) * block + tl.arange(0, block)
    there = e < num_edges
    given_row, given_col, i, j, number = numbers_of(target, source, e, num_edges, num_nodes, fused)
    before = tl.zeros((block, chunk), dtype=tl.int32)
    for left in range(0, num_edges, chunk):
        f = left + tl.arange(0, chunk)
        _, _, _, _, other = numbers_of(target, source, f, num_edges, num_nodes, fused)
        equal = (other[None, :] == number[:, None]) & (f[None, :] < e[:, None])
        smaller = (other[None, :] < number[:, None]) & (f < num_edges)[None, :]
        before += (equal | smaller).to(tl.int32)
    at = tl.sum(before, 1)
    number = tl.load(weight + e, mask=there, other=0.0)
    tl.store(edge + at, e.to(tl.int64), mask=there)
    tl.store(row + at, i, mask=there)
    tl.store(col + at, j.to(tl.int64), mask=there)
    tl.store(moved + at, number, mask=there)
    if checks:
        note_checks(given_row, given_col, number, facts, num_nodes)


@any_size
def lists_kernel(
    row, col, moved, edge_t, col_t, weight_t, slot, rowptr, rowptr_t, degree, facts, num_edges, num_nodes, edge_blocks,
    steps, fused: tl.constexpr, block: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """The edges of the transpose, whether they differ, and (by further programs) where the list of each node begins.

    If fused, also how many edges repeat the one before them.
    """
    if tl.program_id(0) < edge_blocks:
        e = tl.program_id(0) * block + tl.arange(0, block)
        there = e < num_edges
        i = tl.load(row + e, mask=there, other=0)
        j = tl.load(col + e, mask=there, other=0).to(tl.int32)
        before = tl.zeros((block, chunk), dtype=tl.int32)
        for left in range(0, num_edges, chunk):
            f = left + tl.arange(0, chunk)
            end = tl.load(col + f, mask=f < num_edges, other=2147483647).to(tl.int32)[None, :]
            smaller = (end < j[:, None]) | ((end == j[:, None]) & (f[None, :] < e[:, None]))
            before += smaller.to(tl.int32)
        at = tl.sum(before, 1)
        tl.store(edge_t + at, e.to(tl.int64), mask=there)
        there &= i < num_nodes
        if fused:
            again = there & (e > 0) & (tl.load(row + e - 1, mask=there & (e > 0), other=-1) == i)
            again &= tl.load(col + e - 1, mask=again, other=-1) == j
            count = tl.sum(again.to(tl.int64), 0)
            tl.atomic_add(facts + REPEATED, count, mask=count > 0, sem="relaxed")
        number_t = tl.load(moved + e, mask=there, other=0.0)
        tl.store(col_t + at, i.to(tl.int64), mask=there)
        tl.store(slot + at, e - first_from(row, i, num_edges, steps).to(tl.int32), mask=there)
        tl.store(weight_t + at, number_t, mask=there)
        differs = there & (tl.load(row + at, mask=there, other=0) != j)
        differs |= there & (tl.load(col + at, mask=there, other=0) != i)
        number = tl.load(moved + at, mask=there, other=0.0)
        unequal = number.to(tl.float64) != number_t.to(tl.float64)
        any_differs = tl.max(differs.to(tl.int64), 0)
        any_unequal = tl.max(unequal.to(tl.int64), 0)
        tl.atomic_max(facts + PATTERN_DIFFERS, any_differs, mask=any_differs > 0, sem="relaxed")
        tl.atomic_max(facts + WEIGHTS_DIFFER, any_unequal, mask=any_unequal > 0, sem="relaxed")
    else:
        blocks = num_nodes // block + 1
        tile = tl.program_id(0) - edge_blocks
        node = tile % blocks * block + tl.arange(0, block)
        if tile < blocks:  # rows ascend, so that bisection finds them
            begin = first_from(row, node, num_edges, steps).to(tl.int32)
            length = first_from(row, node + 1, num_edges, steps).to(tl.int32) - begin
            tl.store(rowptr + node, begin.to(tl.int64), mask=node <= num_nodes)
            tl.store(degree + node, length, mask=node < num_nodes)
            tl.store(facts + KEPT + 0 * node, begin.to(tl.int64), mask=node == num_nodes)
        else:
            begin, length = list_of(col, node, num_edges, block, chunk)
            tl.store(rowptr_t + node, begin.to(tl.int64), mask=node <= num_nodes)
            tl.store(degree + num_nodes + node, length, mask=node < num_nodes)


@triton.jit
def list_of(ends, node, num_edges, block: tl.constexpr, chunk: tl.constexpr):
    """How many edges end at nodes before each node, and how many at it."""
    before = tl.zeros((block, chunk), dtype=tl.int32)
    equal = before
    for left in range(0, num_edges, chunk):
        f = left + tl.arange(0, chunk)
        end = tl.load(ends + f, mask=f < num_edges, other=2147483647).to(tl.int32)[None, :]
        before += (end < node[:, None]).to(tl.int32)
        equal += (end == node[:, None]).to(tl.int32)
    return tl.sum(before, 1), tl.sum(equal, 1)


@any_size
def order_kernel(degree, order, facts, num_nodes, most, block: tl.constexpr, chunk: tl.constexpr):
    """The nodes by degree, incoming and outgoing, and where groups of equal degree begin in them."""
    side = tl.program_id(1).to(tl.int64)
    node = tl.program_id(0) * block + tl.arange(0, block)
    there = node < num_nodes
    degrees = degree + side * num_nodes
    length = tl.load(degrees + node, mask=there, other=0)
    before = tl.zeros((block, chunk), dtype=tl.int32)
    again = before
    for left in range(0, num_nodes, chunk):
        f = left + tl.arange(0, chunk)
        other = tl.load(degrees + f, mask=f < num_nodes, other=2147483647)[None, :]
        before += (other < length[:, None]).to(tl.int32)
        again += ((other == length[:, None]) & (f[None, :] < node[:, None])).to(tl.int32)
    smaller, equal = tl.sum(before, 1), tl.sum(again, 1)
    tl.store(order + side * num_nodes + smaller + equal, node.to(tl.int64), mask=there)
    begins = there & (equal == 0)
    place = tl.atomic_add(facts + GROUPS + side + 0 * node, tl.full((block,), 1, tl.int64), mask=begins, sem="relaxed")
    group = facts + TABLE + 2 * (side * most + place)
    tl.store(group, length.to(tl.int64), mask=begins)
    tl.store(group + 1, smaller.to(tl.int64), mask=begins)
