"""The rows of one process, cut into those that need nobody else and those that do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.graph.build import build_structure
from graphact.graph.protocol import Pass
from graphact.scaleout.exchange import HaloPlan

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """Neighbour lists of the nodes held here, and the entries of S that go with them.

    Attributes:
        pointers: ``(n + 1,)``; the list of the i-th node held here is ``members[pointers[i]:pointers[i + 1]]``.
        members: ``(E,)``; positions among the known nodes, ascending within each list.
        weight: ``(E,)``.
        diagonal: ``(n,)``, or None where it is zero.
    """

    pointers: Array
    members: Array
    weight: Array
    diagonal: Array | None


class Known(NamedTuple):
    """The nodes that a process holds or hears, in the order of the whole graph, which decides ties.

    Attributes:
        held: ``(m,)``, whether the node is held here.
        halo_position: ``(m,)``, where its value arrives, if it is held elsewhere.
    """

    held: Array
    halo_position: Array

    @classmethod
    def of(cls, owner: Array, rank: int) -> "Known":
        """From the owners of the nodes: values arrive owner after owner, ascending."""
        held = owner == rank
        position = np.zeros(len(owner), np.int64)
        elsewhere = np.flatnonzero(~held)
        position[elsewhere[np.argsort(owner[elsewhere], kind="stable")]] = np.arange(len(elsewhere))
        return cls(held, position)


@dataclass(frozen=True)
class Pieces:
    """Graphs on which a pass over the neighbours runs: ``interior`` while values arrive, ``boundary`` when they have.

    The interior graphs have the n nodes held here and the rows that refer to them alone. The boundary graphs have the
    nodes that the other rows refer to, in the order of the whole graph; ``needed`` and ``order`` collect their values.

    Attributes:
        plan: the exchange between the processes, None for a single one.
        num_nodes: n.
        interior: one graph for each set of rows; empty if all rows need others.
        boundary: the same for the rows that need others; empty if none does.
        needed: the nodes held here that boundary rows refer to.
        order: where the values of the boundary graphs lie in the needed values followed by the halo.
        rows: the boundary rows in the boundary graphs.
        nodes: the same among the nodes held here.
    """

    plan: HaloPlan | None
    num_nodes: int
    interior: tuple[Graph, ...]
    boundary: tuple[Graph, ...]
    needed: Tensor
    order: Tensor
    rows: Tensor
    nodes: Tensor

    def run(self, x: Tensor, function: Pass) -> tuple[Tensor, ...]:
        """Evaluate ``function(x, *graphs)`` at the nodes held here."""
        underway = None if self.plan is None else self.plan.begin(x)
        inner = self._inside(x, function) if self.interior else ()
        if underway is None:
            return inner
        halo = underway.end()
        if not self.boundary:
            return tuple(_Tied.apply(value, halo) for value in inner)
        near = torch.cat([x.index_select(-2, self.needed), halo], dim=-2).index_select(-2, self.order)
        outer = [value.index_select(-2, self.rows) for value in function(near, *self.boundary)]
        if not inner:
            return tuple(outer)
        return tuple(value.index_copy(-2, self.nodes, other) for value, other in zip(inner, outer, strict=True))

    def _inside(self, x: Tensor, function: Pass) -> tuple[Tensor, ...]:
        if self.num_nodes:
            return function(x, *self.interior)
        # A process without nodes takes part in the exchange and in the gradient of the parameters
        alone = torch.nn.functional.pad(x, (0, 0, 0, 1))
        return tuple(value.narrow(-2, 0, 0) for value in function(alone, *self.interior))

    def to(self, device: torch.device, dtype: torch.dtype) -> "Pieces":
        """The same pieces elsewhere, or in another precision."""
        plan = self.plan and HaloPlan(
            self.plan.send.to(device), self.plan.send_counts, self.plan.halo_counts, self.plan.group, self.plan.traffic
        )
        interior = tuple(graph.to(device, dtype) for graph in self.interior)
        boundary = tuple(graph.to(device, dtype) for graph in self.boundary)
        indices = (index.to(device) for index in (self.needed, self.order, self.rows, self.nodes))
        return Pieces(plan, self.num_nodes, interior, boundary, *indices)


def cut(known: Known, sets: Sequence[Rows], plan: HaloPlan | None) -> Pieces:
    """Cut the rows of one process; several sets of rows (the neighbours of 1, 2, .. hops) share one cut."""
    place_held = np.flatnonzero(known.held)
    num_nodes, elsewhere = len(place_held), ~known.held
    needs_others = np.zeros(num_nodes, bool)
    used = np.zeros(len(known.held), bool)
    for rows in sets:
        needs_others |= rows_with(rows.pointers, elsewhere[rows.members])
    used[place_held[needs_others]] = True
    for rows in sets:
        used[rows.members[np.repeat(needs_others, np.diff(rows.pointers))]] = True
    number_held, number_used = np.cumsum(known.held) - 1, np.cumsum(used) - 1
    needed = number_held[used & known.held]
    order = np.where(known.held, np.cumsum(used & known.held) - 1, len(needed) + known.halo_position)[used]
    interior: list[Graph] = []
    boundary: list[Graph] = []
    nodes = np.flatnonzero(needs_others)
    near_rows = number_used[place_held[nodes]]
    for rows in sets:
        if len(nodes) < num_nodes or num_nodes == 0:
            everywhere = np.arange(num_nodes)
            interior.append(piece(rows, ~needs_others, everywhere, number_held, max(1, num_nodes)))
        if len(nodes):
            boundary.append(piece(rows, needs_others, number_used[place_held], number_used, int(used.sum())))
    indices = (torch.from_numpy(index.astype(np.int64)) for index in (needed, order, near_rows, nodes))
    return Pieces(plan, num_nodes, tuple(interior), tuple(boundary), *indices)


def rows_with(pointers: Array, marked: Array) -> Array:
    """Whether each row has a marked entry."""
    before = np.concatenate([[0], np.cumsum(marked, dtype=np.int64)])
    return before[pointers[1:]] > before[pointers[:-1]]


def piece(rows: Rows, chosen: Array, row_number: Array, number: Array, num_nodes: int) -> Graph:
    """The graph of the chosen rows alone, rows and members numbered anew; all other rows are empty."""
    entry = np.repeat(chosen, np.diff(rows.pointers))
    targets = np.repeat(row_number[chosen], np.diff(rows.pointers)[chosen])
    target, source = (torch.from_numpy(part.astype(np.int64)) for part in (targets, number[rows.members[entry]]))
    weight = torch.from_numpy(rows.weight[entry])
    diagonal = None
    if rows.diagonal is not None:
        diagonal = weight.new_zeros(num_nodes)
        diagonal[torch.from_numpy(row_number[chosen])] = torch.from_numpy(rows.diagonal[chosen])
    incoming, outgoing, outgoing_weight, directed = build_structure(target, source, weight, num_nodes)
    return Graph(incoming, outgoing, weight, outgoing_weight, diagonal, directed)


class _Tied(torch.autograd.Function):
    """A value as it is; its gradient also calls for that of a companion, so that no process misses an exchange."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, companion: Tensor) -> Tensor:
        ctx.save_for_backward(companion)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        return grad, torch.zeros_like(ctx.saved_tensors[0])
