"""Exchange of halo values between processes, overlapped with the work on rows that need none of them.

An exchange is begun, the interior is computed meanwhile, and the exchange is finished. The gradient runs the other way
round: the backward pass of the finish begins the transposed exchange, so that it overlaps the same work.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
import torch.distributed as dist
from torch import Tensor

from graphact.distributed.partition import Array, LocalRows, Part
from graphact.distributed.process_group import all_gather, readable_network_errors
from graphact.graph import Graph
from graphact.graph.build import from_sorted
from graphact.graph.neighborhoods import MAX_WALKS
from graphact.graph.protocol import Pass


@dataclass
class Traffic:
    """Number of exchanges so far, and bytes of payload that this process sent and received."""

    exchanges: int = 0
    sent: int = 0
    received: int = 0

    def reset(self) -> None:
        self.exchanges = self.sent = self.received = 0


@dataclass(frozen=True)
class HaloPlan:
    """Lists of the nodes whose values each process sends to each other one."""

    send: Tensor  # positions of the nodes held here that others need, receiver after receiver
    send_counts: tuple[int, ...]  # how many of them go to each process
    halo_counts: tuple[int, ...]  # how many values come from each process
    group: dist.ProcessGroup | None  # None is all processes
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def has_others(self) -> bool:
        return len(self.send_counts) > 1

    def begin(self, x: Tensor) -> Callable[[], Tensor]:
        """Send what others need of the signal ``(..., n, F)``, without waiting.

        Returns a function that waits for the values of the halo, ``(..., h, F)``, owner after owner.
        """
        there = _Ticket(self, self.send_counts, self.halo_counts)
        back = _Ticket(self, self.halo_counts, self.send_counts)
        # a number without meaning that ties the end of the exchange to its beginning, for autograd
        token = _Exchange.apply(x.index_select(-2, self.send).movedim(-2, 0), there, back, True)
        return lambda: _Exchange.apply(token, there, back, False).movedim(0, -2)

    def exchange_rows(self, rows: Array, send_counts: Sequence[int]) -> tuple[Array, list[int]]:
        """Send rows of integers to each process; return what came and how many rows each process sent."""
        if not self.has_others:
            return rows, list(send_counts)
        outgoing = torch.from_numpy(rows).to(self.send.device)
        counts = torch.tensor(send_counts, device=outgoing.device)
        coming = torch.empty_like(counts)
        dist.all_to_all_single(coming, counts, group=self.group)
        receive_counts: list[int] = coming.tolist()
        received = outgoing.new_empty(sum(receive_counts), *outgoing.shape[1:])
        dist.all_to_all_single(received, outgoing.contiguous(), receive_counts, list(send_counts), group=self.group)
        return received.cpu().numpy(), receive_counts


class _Ticket:
    """One use of the network, forward or back."""

    def __init__(self, plan: HaloPlan, send_counts: Sequence[int], receive_counts: Sequence[int]) -> None:
        self.plan, self.send_counts, self.receive_counts = plan, send_counts, receive_counts
        self.pending: Any = None

    def start(self, outgoing: Tensor) -> None:
        """Send rows of ``(s, ..., F)``."""
        outgoing = outgoing.contiguous()
        incoming = outgoing.new_empty(sum(self.receive_counts), *outgoing.shape[1:])
        row = math.prod(outgoing.shape[1:]) * outgoing.element_size()
        # bytes, because not every transport knows every precision
        sent, received = outgoing.view(-1).view(torch.uint8), incoming.view(-1).view(torch.uint8)
        receive_bytes, send_bytes = ([n * row for n in counts] for counts in (self.receive_counts, self.send_counts))
        group = self.plan.group
        with readable_network_errors(dist.get_rank(group)):
            work = dist.all_to_all_single(received, sent, receive_bytes, send_bytes, group=group, async_op=True)
        self.pending = work, incoming, outgoing  # alive until the values have arrived
        traffic = self.plan.traffic
        traffic.exchanges += 1
        traffic.sent += sent.numel()
        traffic.received += received.numel()

    def finish(self) -> Tensor:
        (work, incoming, _), self.pending = self.pending, None
        with readable_network_errors(dist.get_rank(self.plan.group)):
            work.wait()
        return incoming


class _Exchange(torch.autograd.Function):
    """Begin an exchange, or finish it; the backward pass of the finish begins the exchange back."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, there: _Ticket, back: _Ticket, begins: bool) -> Tensor:
        ctx.transposed = back, there, not begins
        if not begins:
            return there.finish()
        there.start(values)
        return values.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _Exchange.apply(grad, *ctx.transposed), None, None, None


@dataclass(frozen=True)
class HaloSplit:
    """Local graphs for a pass over the neighbours: ``interior`` while the halo arrives, ``boundary`` when it has.

    The interior graphs have the n nodes held here and the rows that refer to them alone. The boundary graphs have the
    nodes that the other rows refer to, in the order of the whole graph; ``needed`` and ``order`` collect their values.
    """

    plan: HaloPlan
    num_nodes: int
    interior: tuple[Graph, ...]  # one for each set of rows; empty if all rows need the halo
    boundary: tuple[Graph, ...]  # the same for the rows that need the halo; empty if none does
    needed: Tensor  # the nodes held here that boundary rows refer to
    order: Tensor  # where the values of the boundary graphs lie in the needed values followed by the halo
    rows: Tensor  # the boundary rows in the boundary graphs
    nodes: Tensor  # the same among the nodes held here

    def run(self, x: Tensor, pass_: Pass) -> tuple[Tensor, ...]:
        """Evaluate ``pass_(x, *graphs)`` at the nodes held here."""
        receive_halo = self.plan.begin(x) if self.plan.has_others else None
        inner: tuple[Tensor, ...] = ()
        if self.num_nodes == 0:  # takes part in the exchange and in the gradient of the parameters
            padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
            inner = tuple(value.narrow(-2, 0, 0) for value in pass_(padded, *self.interior))
        elif self.interior:
            inner = pass_(x, *self.interior)
        if receive_halo is None:
            return inner
        halo = receive_halo()
        if not self.boundary:
            return tuple(_Tied.apply(value, halo) for value in inner)
        near = torch.cat([x.index_select(-2, self.needed), halo], dim=-2).index_select(-2, self.order)
        outer = tuple(value.index_select(-2, self.rows) for value in pass_(near, *self.boundary))
        if not inner:
            return outer
        return tuple(value.index_copy(-2, self.nodes, other) for value, other in zip(inner, outer, strict=True))

    def to(self, device: torch.device, dtype: torch.dtype) -> "HaloSplit":
        plan = replace(self.plan, send=self.plan.send.to(device))
        interior, boundary = (tuple(g.to(device, dtype) for g in graphs) for graphs in (self.interior, self.boundary))
        indices = (index.to(device) for index in (self.needed, self.order, self.rows, self.nodes))
        return HaloSplit(plan, self.num_nodes, interior, boundary, *indices)


class _Tied(torch.autograd.Function):
    """A value, unchanged; its gradient also asks for that of a companion, so that no process misses an exchange."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, companion: Tensor) -> Tensor:
        ctx.save_for_backward(companion)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.zeros_like(ctx.saved_tensors[0])


def split_halo(owner: Array, rank: int, sets: Sequence[LocalRows], plan: HaloPlan) -> HaloSplit:
    """Split the rows of one process; several sets of rows (the neighbours of 1, 2, .. hops) share one split.

    ``owner`` is that of the nodes that the columns refer to, in the order of the whole graph, which decides ties.
    """
    held = owner == rank
    place_held = np.flatnonzero(held)
    num_nodes = len(place_held)
    needs_halo, used = np.zeros(num_nodes, bool), np.zeros(len(owner), bool)
    for rows in sets:
        needs_halo[np.repeat(np.arange(num_nodes), np.diff(rows.rowptr))[~held[rows.col]]] = True
    used[place_held[needs_halo]] = True
    for rows in sets:
        used[rows.col[np.repeat(needs_halo, np.diff(rows.rowptr))]] = True
    number_held, number_used = np.cumsum(held) - 1, np.cumsum(used) - 1
    needed = number_held[used & held]
    in_halo = len(needed) - num_nodes + _arrival(owner, rank)
    order = np.where(held, np.cumsum(used & held) - 1, in_halo)[used]
    nodes = np.flatnonzero(needs_halo)
    inside = ~needs_halo, np.arange(num_nodes), number_held, max(1, num_nodes)
    outside = needs_halo, number_used[place_held], number_used, int(used.sum())
    interior = tuple(_subgraph(rows, *inside) for rows in sets if len(nodes) < num_nodes or num_nodes == 0)
    boundary = tuple(_subgraph(rows, *outside) for rows in sets if len(nodes))
    indices = needed, order, number_used[place_held[nodes]], nodes
    return HaloSplit(plan, num_nodes, interior, boundary, *(torch.from_numpy(i.astype(np.int64)) for i in indices))


def _arrival(owner: Array, rank: int) -> Array:
    """The position of each node in the nodes held here followed by the halo, which arrives owner after owner."""
    position = np.empty(len(owner), np.int64)
    position[np.argsort(np.where(owner == rank, -1, owner), kind="stable")] = np.arange(len(owner))
    return position


def _subgraph(rows: LocalRows, chosen: Array, row_number: Array, number: Array, num_nodes: int) -> Graph:
    """The graph of the chosen rows alone, rows and columns renumbered; all other rows are empty."""
    degree = np.diff(rows.rowptr)
    entry = np.repeat(chosen, degree)
    targets = np.repeat(row_number[chosen], degree[chosen])
    target, source = (torch.from_numpy(ends.astype(np.int64)) for ends in (targets, number[rows.col[entry]]))
    weight = torch.from_numpy(rows.weight[entry])
    diagonal = None
    if rows.diagonal is not None:
        diagonal = weight.new_zeros(num_nodes)
        diagonal[torch.from_numpy(row_number[chosen])] = torch.from_numpy(rows.diagonal[chosen])
    return Graph(*from_sorted(target, source, weight, diagonal, num_nodes))


def split_k_hop(part: Part, plan: HaloPlan, hops: int, closed: bool) -> HaloSplit:
    """A split whose k-th graphs hold the neighbours that walks of k edges lead to, k = 1..hops.

    The lists grow hop by hop: those of hop k + 1 are the lists of hop k of all neighbours, of which the neighbours held
    elsewhere send theirs. One exchange of values then serves all hops.
    """
    nodes, owner = part.known.astype(np.int64), part.owner.astype(np.int64)
    one_hop = _pattern(part.rows.rowptr, part.rows.col, len(nodes))
    if closed:
        held = np.flatnonzero(owner == part.rank)
        one_hop = (one_hop + _pattern(np.arange(len(held) + 1), held, len(nodes))).tocsr()
    lists = [(one_hop, nodes)]  # the lists of each hop, and the nodes that their columns stand for
    for hop in range(2, hops + 1):
        beyond, nodes, owner = _lists_of_known(part, plan, lists[-1][0], nodes, owner)
        walks = int(np.diff(beyond.indptr).astype(np.int64)[one_hop.indices].sum())
        walks = max(all_gather(walks, plan.group)) if plan.has_others else walks  # all processes raise if one does
        if walks > MAX_WALKS:
            raise ValueError(
                f"hops={hop} would follow {walks:,} walks from the nodes of one process, more than {MAX_WALKS:,}: use "
                "fewer hops, or a graph-adaptive activation, which needs one-hop neighbours only"
            )
        lists.append(((one_hop @ beyond).astype(bool), nodes))
    sets = []
    for rows, columns in lists:
        rows = rows.sorted_indices()
        col = np.searchsorted(nodes, columns)[rows.indices]
        sets.append(LocalRows(rows.indptr, col, np.ones(rows.nnz, part.rows.weight.dtype), None))
    return split_halo(owner, part.rank, sets, _plan(part, plan, nodes, owner))


def _pattern(rowptr: Array, col: Array, width: int) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.ones(len(col), bool), col, rowptr), shape=(len(rowptr) - 1, width))


def _lists_of_known(
    part: Part, plan: HaloPlan, rows: scipy.sparse.csr_array, nodes: Array, owner: Array
) -> tuple[scipy.sparse.csr_array, Array, Array]:
    """The lists of all known nodes (owners send those of the halo), the nodes that occur in them, and their owners."""
    pairs = np.stack([nodes, owner], axis=1)
    sent = rows[plan.send.cpu().numpy()]
    entry_counts = np.diff(sent.indptr[np.cumsum([0, *plan.send_counts])]).tolist()
    halo_lengths, _ = plan.exchange_rows(np.diff(sent.indptr).astype(np.int64), plan.send_counts)
    halo_pairs, _ = plan.exchange_rows(pairs[sent.indices], entry_counts)
    everything = np.concatenate([pairs, halo_pairs])
    all_nodes, first = np.unique(everything[:, 0], return_index=True)
    rowptr = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(rows.indptr), halo_lengths]))])
    columns = np.searchsorted(all_nodes, np.concatenate([nodes[rows.indices], halo_pairs[:, 0]]))
    lists = _pattern(rowptr, columns, len(all_nodes))[_arrival(part.owner, part.rank)]
    return lists, all_nodes, everything[first, 1]


def _plan(part: Part, plan: HaloPlan, nodes: Array, owner: Array) -> HaloPlan:
    """Ask the owners for the values of all these nodes (ascending), and learn which values others ask for."""
    wanted = np.argsort(owner, kind="stable")
    wanted = wanted[owner[wanted] != part.rank]
    halo_counts = np.bincount(owner[wanted], minlength=part.parts).tolist()
    asked, send_counts = plan.exchange_rows(nodes[wanted], halo_counts)
    send = torch.from_numpy(np.searchsorted(part.nodes, asked)).to(plan.send.device)
    return replace(plan, send=send, send_counts=tuple(send_counts), halo_counts=tuple(halo_counts))
