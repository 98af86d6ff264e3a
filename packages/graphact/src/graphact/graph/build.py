"""From a list of edges to the sorted, merged and transposed lists of a graph, in linear time.

On the CPU edges are sorted by counting, with the C code of SciPy; `device.py` sorts them elsewhere.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph.device import INT32, build_on_device
from graphact.graph.eager import BUILT_OUTSIDE, is_batched, is_plain, may_have_derivative
from graphact.graph.edges import SUMMED, Edges, check_bounds, check_finite, sum_by
from graphact.graph.neighborhoods import Neighborhoods, Parts, group_by_degree

Array: TypeAlias = np.ndarray
INTEGERS = (torch.int64, torch.int32)
GLANCE, CHUNK = 64, 8192  # edges compared first, and then at a time: few enough for the cache


class CSR(NamedTuple):
    """The pattern of a sparse matrix; column indices ascend within each row."""

    rowptr: Array
    col: Array


def is_consistent(state: dict[str, Any]) -> bool:
    """Return true if the attributes of a graph have consistent types and sizes and no index is out of bounds."""
    names = ("incoming", "outgoing", "weight", "outgoing_weight", "incoming_slot", "diagonal")
    parts: Any = (state.get(name) for name in names)
    incoming, outgoing, weight, weight_t, slot, diagonal = parts
    entries = (slot, weight, weight_t)
    if not all(isinstance(part, Tensor) and part.dim() == 1 and part.shape == slot.shape for part in entries):
        return False
    if not all(isinstance(side, Neighborhoods) and side.is_sound(slot.numel()) for side in (incoming, outgoing)):
        return False
    nodes = incoming.num_nodes
    if outgoing.num_nodes != nodes or not (diagonal is None or diagonal.shape == (nodes,)):
        return False
    batch = state.get("batch", ...)
    if not (batch is None or (isinstance(batch, Tensor) and batch.dtype in INTEGERS and batch.shape == (nodes,))):
        return False
    if slot.is_meta:
        return True
    is_inside = batch is None or bool((batch >= 0).all())
    return is_inside and bool(((slot >= 0) & (slot < incoming.degree[outgoing.col])).all())


@BUILT_OUTSIDE
def from_edges(edges: Edges, is_coalesced: bool) -> Parts:
    """Build the parts of the graph with these edges."""
    edge_index, weight, num_nodes = edges
    edge_index = edge_index.contiguous()
    source, target = edge_index
    if is_coalesced:
        if num_nodes is None:
            raise ValueError("num_nodes must be given with is_coalesced=True, got None")
        return from_entries(target, source, weight, num_nodes, is_coalesced=True)
    on_host = is_on_host(edge_index)
    if edge_index.numel() and (on_host or num_nodes is None):
        bounds = edge_index.aminmax()
        lowest, highest = map(int, bounds) if on_host else torch.stack(bounds).tolist()
        num_nodes = check_bounds(lowest, highest, num_nodes)
    assert num_nodes is not None  # given for a graph without edges
    if on_host:
        return build_on_host(target, source, check_finite("edge_weight", weight), num_nodes)
    return build_on_device(target, source, weight, num_nodes, checks=True)


@BUILT_OUTSIDE
def from_entries(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, *, is_coalesced: bool = False
) -> Parts:
    """Build the parts of the graph with the checked entries ``S[target, source] = weight``.

    Coalesced entries are sorted by source, then by target, without repetition.
    """
    build = build_on_host if is_on_host(target) else build_on_device
    return build(target, source, weight, num_nodes, is_coalesced=is_coalesced)


def from_sorted(target: Tensor, source: Tensor, weight: Tensor, diagonal: Tensor | None, num_nodes: int) -> Parts:
    """Build the parts from distinct entries on the CPU, sorted by target; ``target == source`` is a neighbour."""
    rows = CSR(pointers(target.numpy(), num_nodes, np.int64), source.numpy())
    rows_t, edge_t = transpose(rows)
    return parts_on_host(rows, rows_t, same_pattern(rows, rows_t), edge_t, weight, diagonal)


def is_on_host(index: Tensor) -> bool:
    """Return true if NumPy can read a tensor."""
    return index.device.type == "cpu" and is_plain(index)


def transposed_weights(weight: Tensor, edge_t: Tensor, pattern_is_symmetric: bool) -> tuple[Tensor, bool]:
    """Return the weights in the order of ``outgoing``, and whether S differs from its transpose.

    Constant weights are shared where S is symmetric. Weights that need gradients are not: each edge has its own.
    """
    weight_t = weight.index_select(0, edge_t)
    if not pattern_is_symmetric or is_batched(weight) or not torch.equal(weight_t, weight):
        return weight_t, True
    return weight_t if may_have_derivative(weight) else weight, False


# On the CPU


def build_on_host(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, *, is_coalesced: bool = False
) -> Parts:
    """Count, scatter, transpose: at most three passes that move edges, two or one where they come sorted."""
    narrow = np.int32 if max(num_nodes, target.numel()) < INT32 else np.int64
    row, col = target.numpy(), source.numpy()
    loop, diagonal = row == col, None
    if loop.any():  # self-loops take part in the shift only
        loops, others = (torch.from_numpy(np.flatnonzero(mask)) for mask in (loop, ~loop))
        diagonal = sum_by(target[loops], weight.index_select(0, loops), num_nodes)
        check_finite(SUMMED, diagonal)
        row, col, weight = row[others.numpy()], col[others.numpy()], weight.index_select(0, others)
    if is_coalesced or is_ascending(col, row, num_nodes):  # as PyG's coalesce leaves them: these are the outgoing lists
        rows_t = CSR(pointers(col, num_nodes, narrow), row.astype(narrow))
        rows, position = transpose(rows_t)
        weight = weight.index_select(0, torch.from_numpy(position))
        is_symmetric = same_pattern(rows, rows_t)
        edge_t = position if is_symmetric else inverse(position)
    else:
        if is_ascending(row, col, num_nodes):
            rows, weight = CSR(pointers(row, num_nodes, narrow), col.astype(narrow)), weight.clone()
        else:
            rows, weight = sort_and_merge(row.astype(narrow), col.astype(narrow), weight, num_nodes)
        rows_t, edge_t = transpose(rows)
        is_symmetric = same_pattern(rows, rows_t)
    return parts_on_host(rows, rows_t, is_symmetric, edge_t, weight, diagonal)


def parts_on_host(
    rows: CSR,
    rows_t: CSR,
    is_symmetric: bool,
    edge_t: Array,
    weight: Tensor,
    diagonal: Tensor | None,
) -> Parts:
    """Build the parts from CSR, its transpose, and the position of each entry of the transpose in the CSR."""
    incoming = wide_lists(*rows)
    outgoing = incoming if is_symmetric else wide_lists(*rows_t)
    slot = rows.rowptr.take(rows_t.col)
    np.subtract(edge_t, slot, out=slot)
    weight_t, is_directed = transposed_weights(weight, torch.from_numpy(edge_t), is_symmetric)
    return Parts(incoming, outgoing, weight, weight_t, diagonal, is_directed, torch.from_numpy(slot).int())


def inverse(permutation: Array) -> Array:
    """Return the inverse of a permutation."""
    found = np.empty_like(permutation)
    found[permutation] = np.arange(len(permutation), dtype=permutation.dtype)
    return found


def wide_lists(rowptr: Array, col: Array) -> Neighborhoods:
    """Return neighbour lists in new 64-bit arrays."""
    order, sizes = group_by_degree(rowptr[1:] - rowptr[:-1])
    wide, wide_col = (torch.from_numpy(array.astype(np.int64)) for array in (rowptr, col))
    return Neighborhoods.from_sizes(wide, wide_col, order, sizes)


def same_pattern(one: CSR, other: CSR) -> bool:
    """Return true if two matrices have entries at the same positions."""
    return bool((one.rowptr == other.rowptr).all() and (one.col == other.col).all())


def is_ascending(major: Array, minor: Array, num_nodes: int) -> bool:
    """Return true if edges are sorted by one end, then by the other, without repetition; often a few edges show not."""
    for start, end in ((0, GLANCE), *((at, at + CHUNK) for at in range(0, len(major), CHUNK - 1))):
        key = major[start:end] * num_nodes + minor[start:end]
        if not (key[1:] > key[:-1]).all():
            return False
    return True


def pointers(ascending: Array, num_nodes: int, dtype: type[np.integer[Any]]) -> Array:
    """Return the row pointers of ascending row numbers."""
    rowptr = np.zeros(num_nodes + 1, dtype)
    np.cumsum(np.bincount(ascending, minlength=num_nodes), out=rowptr[1:])
    return rowptr


def transpose(rows: CSR, values: Array | None = None) -> tuple[CSR, Array]:
    """Return the transpose of CSR, and its values: by default the position of each entry in ``rows``."""
    values = np.arange(len(rows.col), dtype=rows.col.dtype) if values is None else values
    found, moved = CSR(*map(np.empty_like, rows)), np.empty_like(values)
    num_nodes = len(rows.rowptr) - 1
    counting().csr_tocsc(num_nodes, num_nodes, *rows, values, *found, moved)
    return found, moved


def sort_by_row(row: Array, col: Array, num_nodes: int) -> tuple[CSR, Array]:
    """Return CSR of edges by row, then by column, then as they came, and the position of each entry among the edges."""
    edge = np.arange(len(row), dtype=row.dtype)
    by_col, moved = CSR(np.empty(num_nodes + 1, row.dtype), np.empty_like(row)), np.empty_like(edge)
    counting().coo_tocsr(num_nodes, num_nodes, len(row), col, row, edge, *by_col, moved)
    return transpose(by_col, moved)


def sort_and_merge(row: Array, col: Array, weight: Tensor, num_nodes: int) -> tuple[CSR, Tensor]:
    """Return CSR with ascending columns, repeated edges summed in the given order."""
    (rowptr, col), edge = sort_by_row(row, col, num_nodes)
    again = np.flatnonzero(col[1:] == col[:-1]) + 1
    rows = row[edge[again]]
    repeated = rows == row[edge[again - 1]]
    again, rows = again[repeated], rows[repeated]
    if len(again) == 0:
        return CSR(rowptr, col), weight.index_select(0, torch.from_numpy(edge))
    first = np.ones(len(col), dtype=bool)
    first[again] = False
    kept, place = np.flatnonzero(first), again - np.arange(1, len(again) + 1)
    wide = weight.float() if weight.dtype in HALF_PRECISION else weight
    merged = wide.index_select(0, torch.from_numpy(edge.take(kept)))
    merged = merged.index_add(0, torch.from_numpy(place), wide.index_select(0, torch.from_numpy(edge.take(again))))
    weight = check_finite(SUMMED, merged.to(weight.dtype))
    fewer = np.zeros_like(rowptr)
    np.add.at(fewer, rows + 1, fewer.dtype.type(1))
    return CSR(rowptr - fewer.cumsum(dtype=rowptr.dtype), col.take(kept)), weight


def counting() -> Any:
    """Return SciPy's compiled sorts; its matrix classes check longer than it takes to sort 10,000 edges."""
    from scipy.sparse import _sparsetools

    return _sparsetools
