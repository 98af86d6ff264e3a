"""Graphs on devices other than the CPU: edges sorted and transposed by torch, with one read-back.

The host needs to know whether the edges are valid, how many are self-loops or repeated, the degrees, and whether the
graph is undirected. All of it is read back in one vector.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from graphact.graph.eager import is_batched, may_have_derivative
from graphact.graph.edges import SUMMED, check_bounds, check_finite, sum_by, sum_of
from graphact.graph.neighborhoods import Neighborhoods, Parts

INT32 = 2**31


def build_on_device(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, *, is_coalesced: bool = False, checks: bool = False
) -> Parts:
    """Build a graph from entries ``S[target, source] = weight``; reads back once, three times if edges are repeated.

    Args:
        target: row of each entry.
        source: column of each entry.
        weight: value of each entry.
        num_nodes: number of nodes.
        is_coalesced: the entries are known to be sorted by source, then by target, without repetition.
        checks: raise for indices out of bounds and for weights that are not finite.
    """
    if target.numel() == 0:
        return _without_edges(weight, num_nodes)
    # only edges are sorted: a vmap over weights sees zeros, which are the same for all of its graphs
    known = torch.zeros(weight.shape, dtype=weight.dtype, device=weight.device) if is_batched(weight) else weight
    found = sort_edges(target, source, known, num_nodes, is_coalesced, checks)
    facts, diagonal = found.facts, None
    if checks:
        check_bounds(facts.lowest, facts.highest, num_nodes)
        if facts.may_overflow:
            check_finite("edge_weight", weight)
    if facts.kept < target.numel():
        loops = found.edge[facts.kept :]
        diagonal = sum_by(target[loops], weight.index_select(0, loops), num_nodes)
        if facts.may_overflow:
            check_finite(SUMMED, diagonal)
        found = found.without_loops()
    has_derivative = may_have_derivative(weight)
    if has_derivative:
        weight = weight.index_select(0, found.edge)
        found = found._replace(weight=weight, weight_t=weight.index_select(0, found.edge_t))
    if facts.repeated:
        return _merged(found.row, found.col, found.weight, num_nodes)._replace(diagonal=diagonal)
    incoming = Neighborhoods.from_sizes(found.rowptr[0], found.col, found.order[0], found.sizes[0])
    if facts.pattern_differs:
        outgoing = Neighborhoods.from_sizes(found.rowptr[1], found.col_t, found.order[1], found.sizes[1])
    else:
        outgoing = incoming
    is_directed = bool(facts.pattern_differs or facts.weights_differ or known is not weight)
    return Parts(
        incoming,
        outgoing,
        found.weight,
        found.weight_t if is_directed or has_derivative else found.weight,
        diagonal,
        is_directed,
        found.slot,
    )


def _without_edges(weight: Tensor, num_nodes: int) -> Parts:
    """Return the parts of a graph without edges."""
    nothing = torch.empty(0, dtype=torch.int64, device=weight.device)
    rowptr, order = nothing.new_zeros(num_nodes + 1), torch.arange(num_nodes, device=weight.device)
    lists = Neighborhoods.from_sizes(rowptr, nothing, order, torch.tensor([[0, num_nodes]]))
    return Parts(lists, lists, weight, weight, None, False, nothing.int())


def _merged(row: Tensor, col: Tensor, weight: Tensor, num_nodes: int) -> Parts:
    """Sum repeated edges, given sorted and without loops, and build again; waits for the device twice more."""
    first = torch.nn.functional.pad((row[1:] != row[:-1]) | (col[1:] != col[:-1]), (1, 0), value=True)
    position = first.cumsum(0) - 1
    kept = first.nonzero().squeeze(1)
    weight = check_finite(SUMMED, sum_by(position, weight, kept.numel()))
    return build_on_device(row[kept].long(), col[kept], weight, num_nodes)


class Facts(NamedTuple):
    """Numbers that the host reads back."""

    lowest: int  # node index
    highest: int  # node index
    may_overflow: int  # a weight, or a sum of weights, may not be finite
    repeated: int  # edges that repeat the one before them
    kept: int  # edges that are not self-loops
    pattern_differs: int  # from that of the transpose
    weights_differ: int


class Sorted(NamedTuple):
    """Edges sorted by target, then by source, and those of the transpose; self-loops come last in both.

    Attributes:
        edge: the original position of each edge.
        row: target of each edge.
        col: source of each edge.
        weight: weight of each edge, without gradients.
        edge_t: the position of each edge of the transpose among the sorted edges.
        col_t: target of each edge of the transpose.
        weight_t: weight of each edge of the transpose, without gradients.
        slot: the slot of each edge of the transpose in its incoming list.
        rowptr: row pointers of the incoming and of the outgoing lists.
        order: nodes by in-degree, and by out-degree.
        sizes: degree and number of nodes of each group, for both directions; on the CPU.
        facts: the numbers read back.
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
        """Return the edges without self-loops."""
        kept, by_edge = self.facts.kept, self._fields[:8]
        return self._replace(**{name: getattr(self, name)[:kept] for name in by_edge})


def sort_edges(
    target: Tensor, source: Tensor, weight: Tensor, num_nodes: int, is_coalesced: bool, checks: bool
) -> Sorted:
    """Sort at least one edge by one key, then stably by source; indices out of bounds do no harm."""
    loop, loop_key = target == source, num_nodes * num_nodes  # self-loops sort last
    narrow = torch.int32 if num_nodes < INT32 else torch.int64
    if is_coalesced:
        row, edge = torch.sort(torch.where(loop, num_nodes, target).to(narrow), stable=True)
        col = torch.where(row < num_nodes, source[edge], num_nodes).to(narrow)
        repeated = torch.zeros_like(row[0])
    else:
        key = torch.where(loop, loop_key, target * num_nodes + source)
        key, edge = torch.sort(key.int() if loop_key < INT32 else key, stable=True)
        row = key // num_nodes
        row, col = row.to(narrow), torch.where(row < num_nodes, key - row * num_nodes, num_nodes).to(narrow)
        repeated = ((key[1:] == key[:-1]) & (key[1:] < loop_key)).sum()
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
        _may_overflow(weight, loop) if checks else zero,
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


def _may_overflow(weight: Tensor, loop: Tensor) -> Tensor:
    """Return true if a weight is not finite, or if a sum of loops might not be."""
    loops = torch.where(loop, weight.detach().abs(), 0).sum(dtype=torch.float64)
    return ~sum_of(weight).isfinite() | (loops > torch.finfo(weight.dtype).max)


def _search(ascending: Tensor, count: int) -> Tensor:
    """Return the positions at which 0..count-1 would be inserted into each ascending row."""
    numbers = torch.arange(count, dtype=ascending.dtype, device=ascending.device)
    return torch.searchsorted(ascending, numbers.repeat(len(ascending), 1))


def _group_by_degree(degree: Tensor, num_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for each row, the nodes by ascending degree, the start of each group of equal degree, and its degree."""
    ascending, order = torch.sort(degree, dim=1, stable=True)
    group = torch.nn.functional.pad((ascending[:, 1:] != ascending[:, :-1]).cumsum(1), (1, 0))
    starts = _search(group, max_groups(degree.size(1), num_edges) + 1)
    return order, starts, ascending.gather(1, starts[:, :-1].clamp(max=degree.size(1) - 1))


def max_groups(num_nodes: int, num_edges: int) -> int:
    """Return an upper bound on the number of distinct degrees, which spares a read-back."""
    return min(num_nodes, (1 + math.isqrt(1 + 8 * num_edges)) // 2)


def _sizes(read: Tensor, columns: int, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return degree and number of nodes of each group, from the numbers of :func:`_group_by_degree`."""
    starts, degrees = read[: 2 * columns].view(2, columns), read[2 * columns :].view(2, columns - 1)
    found = torch.stack([degrees, starts.diff(dim=1)], dim=2)
    one, other = (sizes[begin[:-1] < num_nodes] for sizes, begin in zip(found, starts, strict=True))
    return one, other
