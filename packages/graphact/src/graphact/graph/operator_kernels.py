"""Joining and normalising graphs on a GPU by one or two Triton kernels."""

# mypy: allow-untyped-defs, allow-incomplete-defs

from array import array
from itertools import accumulate, chain

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphact._triton import launch
from graphact.graph.device_kernels import any_size, on_its_device
from graphact.graph.neighborhoods import Neighborhoods

BLOCK = 1024  # numbers that a program reads at once
NARROWEST = 16  # edges of a row that a program reads at once
MOST_BLOCKS = 256  # programs that share the edges of one of many graphs

# Graphs side by side

JOINED = ("rowptr", "col", "slot", "weight", "rowptr_t", "col_t", "weight_t")
COLUMNS = tl.constexpr(4 + len(JOINED))  # of the table: sizes, numbers of the first node and edge, addresses


@on_its_device
def join(
    like: Tensor, columns: dict[str, list[Tensor]], nodes: list[int], edges: list[int]
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """See :func:`graphact.graph.union.join_columns`; one launch, to which the addresses of all tensors are sent."""
    (*first_node, num_nodes), (*first_edge, num_edges) = (accumulate(counts, initial=0) for counts in (nodes, edges))
    nothing = [0] * len(nodes)
    addresses = ([part.data_ptr() for part in columns[name]] if name in columns else nothing for name in JOINED)
    rows = zip(nodes, edges, first_node, first_edge, *addresses, strict=True)
    host = torch.empty(len(nodes) * COLUMNS.value, dtype=torch.int64, pin_memory=like.is_cuda)
    host.numpy()[:] = array("q", chain.from_iterable(rows))
    table = host.to(like.device, non_blocking=True)

    length = {"rowptr": num_nodes + 1, "rowptr_t": num_nodes + 1}
    joined = {name: parts[0].new_empty(length.get(name, num_edges)) for name, parts in columns.items()}
    degree = like.new_empty((1 + ("col_t" in columns), num_nodes), dtype=torch.int32)
    grid = (len(nodes), min(-(-max(*nodes, *edges) // BLOCK), MOST_BLOCKS))
    flags = {f"has_{name}": name in columns for name in ("weight", "col_t", "weight_t")}
    tensors = (joined.get(name, like) for name in JOINED)
    launch(join_kernel, grid, table, *tensors, degree, num_nodes, **flags, block=BLOCK)
    return joined, list(torch.sort(degree, dim=1, stable=True).indices)


@any_size
def join_kernel(
    table, rowptr, col, slot, weight, rowptr_t, col_t, weight_t, degree, num_nodes, has_weight: tl.constexpr,
    has_col_t: tl.constexpr, has_weight_t: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Copy what belongs to one graph; programs in the second direction take turns."""
    row = table + tl.program_id(0) * COLUMNS
    nodes = tl.load(row)
    edges = tl.load(row + 1)
    first_node = tl.load(row + 2)
    first_edge = tl.load(row + 3)
    copy_lists(row + 4, rowptr, col, degree, nodes, edges, first_node, first_edge, block)
    copy(row + 6, slot + first_edge, edges, 0, False, block)
    if has_weight:
        copy(row + 7, weight + first_edge, edges, 0, False, block)
    if has_col_t:
        copy_lists(row + 8, rowptr_t, col_t, degree + num_nodes, nodes, edges, first_node, first_edge, block)
    if has_weight_t:
        copy(row + 10, weight_t + first_edge, edges, 0, False, block)


@triton.jit
def copy_lists(addresses, rowptr, col, degree, nodes, edges, first_node, first_edge, block: tl.constexpr):
    """Copy neighbour lists, and their lengths; the end of one graph's is the beginning of the next one's."""
    copy(addresses, rowptr + first_node, nodes + 1, first_edge, True, block)
    copy(addresses + 1, col + first_edge, edges, first_node, True, block)
    begins = tl.load(addresses).to(tl.pointer_type(tl.int64))
    for begin in range(tl.program_id(1) * block, nodes, tl.num_programs(1) * block):
        at = begin + tl.arange(0, block)
        length = tl.load(begins + at + 1, mask=at < nodes) - tl.load(begins + at, mask=at < nodes)
        tl.store(degree + first_node + at, length.to(tl.int32), mask=at < nodes)


@triton.jit
def copy(address, to, count, offset, moves: tl.constexpr, block: tl.constexpr):
    """Copy numbers from the address that stands at a place, plus an offset if they move."""
    numbers = tl.load(address).to(tl.pointer_type(to.dtype.element_ty))
    for begin in range(tl.program_id(1) * block, count, tl.num_programs(1) * block):
        at = begin + tl.arange(0, block)
        number = tl.load(numbers + at, mask=at < count)
        tl.store(to + at, number + offset if moves else number, mask=at < count)


# Rescaled operators


@on_its_device
def normalize_symmetric(
    weight: Tensor, weight_t: Tensor | None, incoming: Neighborhoods, outgoing: Neighborhoods, diagonal: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """See :func:`graphact.graph.normalize.symmetric`; also the weights of the transpose, if those are given.

    Sums are taken in float64, whose range no sum of narrower weights leaves.
    """
    num_nodes, sides = incoming.num_nodes, 1 if weight_t is None else 2
    scales = torch.empty((sides, num_nodes), dtype=torch.float64, device=weight.device)
    longest = max(incoming.max_degree, outgoing.max_degree, NARROWEST)
    block = min(BLOCK, 1 << (longest - 1).bit_length())
    rows = BLOCK // block
    grid, has_diagonal = (-(-num_nodes // rows), sides), diagonal is not None
    given = weight if diagonal is None else diagonal
    weights = (weight, weight if weight_t is None else weight_t)
    flags = {"has_diagonal": has_diagonal, "rows": rows, "block": block}
    pointers = (incoming.rowptr, outgoing.rowptr)
    launch(inverse_root_kernel, grid, *pointers, *weights, given, scales, num_nodes, **flags)
    scaled, scaled_t = torch.empty_like(weight), None if weight_t is None else torch.empty_like(weight)
    scaled_diagonal = None if diagonal is None else torch.empty_like(diagonal)
    out = tuple(scaled if part is None else part for part in (scaled, scaled_t, scaled_diagonal))
    lists = (*pointers, incoming.col, outgoing.col)
    launch(scale_kernel, grid, *lists, *weights, given, *out, scales, num_nodes, is_undirected=sides == 1, **flags)
    return scaled, scaled_t, scaled_diagonal


@any_size
def inverse_root_kernel(
    rowptr, rowptr_t, weight, weight_t, diagonal, scales, num_nodes, has_diagonal: tl.constexpr, rows: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """1 over the square root of the sum of magnitudes of each row, then of each column; 0 for those that are zero."""
    if tl.program_id(1) == 0:
        inverse_roots(rowptr, weight, diagonal, scales, num_nodes, has_diagonal, rows, block)
    else:
        inverse_roots(rowptr_t, weight_t, diagonal, scales + num_nodes, num_nodes, has_diagonal, rows, block)


@triton.jit
def inverse_roots(
    rowptr, weight, diagonal, scales, num_nodes, has_diagonal: tl.constexpr, rows: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """See :func:`inverse_root_kernel`; of one direction."""
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    here = node < num_nodes
    begin = tl.load(rowptr + node, mask=here, other=0)
    end = tl.load(rowptr + node + 1, mask=here, other=0)
    total = tl.zeros((rows, block), dtype=tl.float64)
    for left in range(0, tl.max(end - begin, 0), block):
        at = begin[:, None] + left + tl.arange(0, block)[None, :]
        total += tl.abs(tl.load(weight + at, mask=at < end[:, None], other=0.0).to(tl.float32).to(tl.float64))
    sums = tl.sum(total, 1)
    if has_diagonal:
        sums += tl.abs(tl.load(diagonal + node, mask=here, other=0.0).to(tl.float32).to(tl.float64))
    divisor = tl.where(sums == 0, 1.0, sums)
    tl.store(scales + node, tl.where(sums == 0, 0.0, tl.sqrt(1.0 / divisor)), mask=here)


@any_size
def scale_kernel(
    rowptr, rowptr_t, col, col_t, weight, weight_t, diagonal, scaled, scaled_t, scaled_diagonal, scales, num_nodes,
    is_undirected: tl.constexpr, has_diagonal: tl.constexpr, rows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Weights times the numbers of their row and their column, of the operator and then of its transpose."""
    down = scales if is_undirected else scales + num_nodes
    if tl.program_id(1) == 0:
        scale(rowptr, col, weight, scaled, scales, down, num_nodes, rows, block)
        if has_diagonal:
            node = tl.program_id(0) * rows + tl.arange(0, rows)
            number = tl.load(scales + node, mask=node < num_nodes) * tl.load(down + node, mask=node < num_nodes)
            number *= tl.load(diagonal + node, mask=node < num_nodes).to(tl.float32).to(tl.float64)
            tl.store(scaled_diagonal + node, number.to(tl.float32).to(diagonal.dtype.element_ty), mask=node < num_nodes)
    else:
        scale(rowptr_t, col_t, weight_t, scaled_t, down, scales, num_nodes, rows, block)


@triton.jit
def scale(rowptr, col, weight, scaled, across, down, num_nodes, rows: tl.constexpr, block: tl.constexpr):
    """See :func:`scale_kernel`; of one direction."""
    node = tl.program_id(0) * rows + tl.arange(0, rows)
    here = node < num_nodes
    begin = tl.load(rowptr + node, mask=here, other=0)
    end = tl.load(rowptr + node + 1, mask=here, other=0)
    of_row = tl.load(across + node, mask=here, other=0.0)
    for left in range(0, tl.max(end - begin, 0), block):
        at = begin[:, None] + left + tl.arange(0, block)[None, :]
        there = at < end[:, None]
        factor = of_row[:, None] * tl.load(down + tl.load(col + at, mask=there, other=0), mask=there, other=0.0)
        number = tl.load(weight + at, mask=there, other=0.0).to(tl.float32).to(tl.float64) * factor
        tl.store(scaled + at, number.to(tl.float32).to(scaled.dtype.element_ty), mask=there)
