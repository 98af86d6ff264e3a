"""CSR and CSC of small graphs on a GPU in five kernels: histogram, scan, scatter into rows, a sort inside each row.

Inside a row an edge's rank is the number of smaller keys, counted directly. A general sort takes more kernels, and
launching one costs more than all of the work here.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from functools import partial
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
    known_facts,
    note_checks,
    on_its_device,
)

EDGE_BLOCK, ROW_CHUNK = 32, 32  # edges a program, and keys of its row that each is compared with at a time
NODE_BLOCK, NODE_CHUNK = 16, 256  # nodes a program when ordered by degree, and nodes they are compared with at a time
SCAN_CHUNK = 2048  # row lengths a step of the scan
LAST = tl.constexpr(2**31 - 1)  # beyond every number


@on_its_device
def sort_edges(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, is_coalesced: bool, checks: bool
) -> Sorted:
    """See :func:`graphact.graph.device.sort_edges`."""
    target, source, weight = target.contiguous(), source.contiguous(), weight.detach().contiguous()
    device, num_edges = target.device, target.numel()
    size, edge_blocks, node_blocks = (num_edges, num_nodes), -(-num_edges // EDGE_BLOCK), -(-num_nodes // NODE_BLOCK)
    most, counters = most_groups(num_nodes, num_edges), 2 * (num_nodes + 1)
    zeros = torch.zeros(counters + TABLE.value + 4 * most, dtype=torch.int64, device=device)
    counts, facts = zeros[:counters], zeros[counters:]  # an even number of counts: facts are aligned, too
    known: dict[str, Any] = {"known": (weight.dtype, device.index)}  # tensors made here are aligned, and sizes small

    empty = partial(torch.empty, num_edges, device=device)
    edge, col, edge_t, col_t, bucketed = (empty(dtype=torch.int64) for _ in range(5))
    row, slot, bucketed_t, offset, offset_t = (empty(dtype=torch.int32) for _ in range(5))
    moved, weight_t = torch.empty_like(weight), torch.empty_like(weight)
    rowptr, rowptr_t = (torch.empty(num_nodes + 1, dtype=torch.int64, device=device) for _ in range(2))
    degree = torch.empty((2, num_nodes), dtype=torch.int32, device=device)
    order = torch.empty((2, num_nodes), dtype=torch.int64, device=device)

    given, pointers, lists = (target, source, weight), (rowptr, rowptr_t), {"block": EDGE_BLOCK, "chunk": ROW_CHUNK}
    counted = (counts, offset, offset_t, facts)
    launch(histogram_kernel, (edge_blocks,), *given, *counted, *size, checks=checks, block=EDGE_BLOCK, **known)
    launch(scan_kernel, (2,), counts, rowptr, rowptr_t, degree, facts, num_nodes, chunk=SCAN_CHUNK, **known)
    launch(scatter_kernel, (edge_blocks,), target, source, offset, rowptr, bucketed, *size, block=EDGE_BLOCK, **known)
    listed = (edge, row, col, moved, bucketed_t)
    launch(sort_rows_kernel, (edge_blocks,), *given, bucketed, offset_t, *pointers, *listed, *size, **lists, **known)
    transposed = (row, col, moved, edge_t, col_t, weight_t, slot, bucketed_t, *pointers, degree, order, facts)
    tiles = {"fused": not is_coalesced, **lists, "nodes": NODE_BLOCK, "compared": NODE_CHUNK}
    launch(transpose_kernel, (edge_blocks + 2 * node_blocks,), *transposed, *size, edge_blocks, most, **tiles, **known)

    found, sizes = known_facts(facts, num_nodes, most)
    sides = (rowptr, rowptr_t), (order[0], order[1])
    return Sorted(edge, row, col, moved, edge_t, col_t, weight_t, slot, *sides, sizes, found)


@triton.jit
def ends_of(target, source, e, there, num_nodes):
    """Row and column of edges, as given and in 32 bits; loops and invalid edges belong to row ``num_nodes``."""
    row = tl.load(target + e, mask=there, other=0)
    col = tl.load(source + e, mask=there, other=0)
    aside = (row == col) | (tl.minimum(row, col) < 0) | (tl.maximum(row, col) >= num_nodes)
    return row, col, tl.where(aside, num_nodes, row).to(tl.int32), tl.where(aside, num_nodes, col).to(tl.int32)


@any_size
def histogram_kernel(
    target, source, weight, counts, offset, offset_t, facts, num_edges, num_nodes, checks: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """The length of each row of CSR and CSC, and the offset of each edge in its row, in order of arrival."""
    e = tl.program_id(0) * block + tl.arange(0, block)
    there = e < num_edges
    row, col, i, j = ends_of(target, source, e, there, num_nodes)
    one = tl.full((block,), 1, tl.int64)
    came = tl.atomic_add(counts + i, one, mask=there, sem="relaxed")
    came_t = tl.atomic_add(counts + num_nodes + 1 + j, one, mask=there, sem="relaxed")
    tl.store(offset + e, came.to(tl.int32), mask=there)
    tl.store(offset_t + e, came_t.to(tl.int32), mask=there)
    if checks:
        note_checks(row, col, tl.load(weight + e, mask=there, other=0.0), facts, num_edges, num_nodes)


@any_size
def scan_kernel(counts, rowptr, rowptr_t, degree, facts, num_nodes, chunk: tl.constexpr):
    """Row pointers: an exclusive prefix sum of the lengths, one program for CSR and one for CSC."""
    side = tl.program_id(0)
    counts += side * (num_nodes + 1)
    pointers = rowptr if side == 0 else rowptr_t
    total = tl.program_id(1)  # zero
    for left in range(0, num_nodes + 1, chunk):
        node = left + tl.arange(0, chunk)
        length = tl.load(counts + node, mask=node <= num_nodes, other=0).to(tl.int32)
        begin = (total + tl.cumsum(length, 0) - length).to(tl.int64)
        total += tl.sum(length, 0)
        tl.store(pointers + node, begin, mask=node <= num_nodes)
        tl.store(degree + side * num_nodes + node, length, mask=node < num_nodes)
        if side == 0:
            tl.store(facts + KEPT + 0 * node, begin, mask=node == num_nodes)


@any_size
def scatter_kernel(target, source, offset, rowptr, bucketed, num_edges, num_nodes, block: tl.constexpr):
    """Write the key of each edge, its source and its number, into the row of its target, in order of arrival."""
    e = tl.program_id(0) * block + tl.arange(0, block)
    there = e < num_edges
    _, _, i, j = ends_of(target, source, e, there, num_nodes)
    at = tl.load(rowptr + i, mask=there, other=0) + tl.load(offset + e, mask=there, other=0)
    tl.store(bucketed + at, j.to(tl.int64) << 32 | e.to(tl.int64), mask=there)


@triton.jit
def rank_in_row(bucketed, number, node, pointers, there, num_edges, num_nodes, chunk: tl.constexpr):
    """The sorted place of each key: the start of its row plus the number of smaller keys there."""
    begin = tl.load(pointers + node, mask=there, other=0).to(tl.int32)
    end = tl.load(pointers + node + 1, mask=there & (node < num_nodes), other=0).to(tl.int32)
    end = tl.where(there, tl.where(node < num_nodes, end, num_edges), begin)
    smaller = tl.zeros((begin.shape[0], chunk), dtype=tl.int32)
    for left in range(0, tl.max(end - begin, 0), chunk):
        at = begin[:, None] + (left + tl.arange(0, chunk))[None, :]
        inside = at < end[:, None]
        other = tl.load(bucketed + at, mask=inside, other=0)
        smaller += (inside & (other < number[:, None])).to(tl.int32)
    return begin + tl.sum(smaller, 1)


@any_size
def sort_rows_kernel(
    target, source, weight, bucketed, offset_t, rowptr, rowptr_t, edge, row, col, moved, bucketed_t,
    num_edges, num_nodes, block: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Sort each row of CSR by source, repeated edges as given, and scatter the sorted edges into the rows of CSC."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    there = at < num_edges
    number = tl.load(bucketed + at, mask=there, other=0)
    e = number & LAST
    _, _, i, j = ends_of(target, source, e, there, num_nodes)
    at = rank_in_row(bucketed, number, i, rowptr, there, num_edges, num_nodes, chunk)
    tl.store(edge + at, e, mask=there)
    tl.store(row + at, i, mask=there)
    tl.store(col + at, j.to(tl.int64), mask=there)
    tl.store(moved + at, tl.load(weight + e, mask=there, other=0.0), mask=there)
    at_t = tl.load(rowptr_t + j, mask=there, other=0) + tl.load(offset_t + e, mask=there, other=0)
    tl.store(bucketed_t + at_t, at, mask=there)


@any_size
def transpose_kernel(
    row, col, moved, edge_t, col_t, weight_t, slot, bucketed_t, rowptr, rowptr_t, degree, order, facts,
    num_edges, num_nodes, edge_blocks, most, fused: tl.constexpr, block: tl.constexpr, chunk: tl.constexpr,
    nodes: tl.constexpr, compared: tl.constexpr,
):  # fmt: skip
    """Sort the rows of CSC, and note whether it differs from CSR; further programs order the nodes by degree.

    If fused, also count the edges that repeat the one before them.
    """
    if tl.program_id(0) < edge_blocks:
        at_t = tl.program_id(0) * block + tl.arange(0, block)
        there = at_t < num_edges
        at = tl.load(bucketed_t + at_t, mask=there, other=0)
        i = tl.load(row + at, mask=there, other=0)
        j = tl.load(col + at, mask=there, other=0).to(tl.int32)
        at_t = rank_in_row(bucketed_t, at, j, rowptr_t, there, num_edges, num_nodes, chunk)
        tl.store(edge_t + at_t, at.to(tl.int64), mask=there)
        there &= i < num_nodes
        if fused:
            again = there & (at > 0) & (tl.load(row + at - 1, mask=there & (at > 0), other=-1) == i)
            again &= tl.load(col + at - 1, mask=again, other=-1) == j
            count = tl.sum(again.to(tl.int64), 0)
            tl.atomic_add(facts + REPEATED, count, mask=count > 0, sem="relaxed")
        number_t = tl.load(moved + at, mask=there, other=0.0)
        tl.store(col_t + at_t, i.to(tl.int64), mask=there)
        tl.store(slot + at_t, at - tl.load(rowptr + i, mask=there, other=0).to(tl.int32), mask=there)
        tl.store(weight_t + at_t, number_t, mask=there)
        differs = there & (tl.load(row + at_t, mask=there, other=0) != j)
        differs |= there & (tl.load(col + at_t, mask=there, other=0) != i)
        number = tl.load(moved + at_t, mask=there, other=0.0)
        unequal = number.to(tl.float64) != number_t.to(tl.float64)
        any_differs = tl.max(differs.to(tl.int64), 0)
        any_unequal = tl.max(unequal.to(tl.int64), 0)
        tl.atomic_max(facts + PATTERN_DIFFERS, any_differs, mask=any_differs > 0, sem="relaxed")
        tl.atomic_max(facts + WEIGHTS_DIFFER, any_unequal, mask=any_unequal > 0, sem="relaxed")
    else:
        tile, tiles = tl.program_id(0) - edge_blocks, (num_nodes + nodes - 1) // nodes
        side = (tile // tiles).to(tl.int64)
        order_by_degree(degree, order, facts, tile % tiles, side, num_nodes, most, nodes, compared)


@triton.jit
def order_by_degree(degree, order, facts, tile, side, num_nodes, most, block: tl.constexpr, chunk: tl.constexpr):
    """Order nodes by in- or out-degree, and note where each group of equal degree begins."""
    node = tile * block + tl.arange(0, block)
    there = node < num_nodes
    degrees = degree + side * num_nodes
    length = tl.load(degrees + node, mask=there, other=0)
    before = tl.zeros((block, chunk), dtype=tl.int32)
    again = before
    for left in range(0, num_nodes, chunk):
        f = left + tl.arange(0, chunk)
        other = tl.load(degrees + f, mask=f < num_nodes, other=LAST)[None, :]
        before += (other < length[:, None]).to(tl.int32)
        again += ((other == length[:, None]) & (f[None, :] < node[:, None])).to(tl.int32)
    smaller, equal = tl.sum(before, 1), tl.sum(again, 1)
    tl.store(order + side * num_nodes + smaller + equal, node.to(tl.int64), mask=there)
    begins = there & (equal == 0)
    place = tl.atomic_add(facts + GROUPS + side + 0 * node, tl.full((block,), 1, tl.int64), mask=begins, sem="relaxed")
    group = facts + TABLE + 2 * (side * most + place)
    tl.store(group, length.to(tl.int64), mask=begins)
    tl.store(group + 1, smaller.to(tl.int64), mask=begins)
