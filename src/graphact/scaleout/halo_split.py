"""The rows of one process, split into those whose neighbours it holds itself and those that need the halo."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.graph.build import build_structure
from graphact.graph.protocol import Pass
from graphact.scaleout.exchange import HaloPlan
from graphact.scaleout.partition import Array, LocalRows


class LocalIndex(NamedTuple):
    """Where the values of the known nodes are, in the order of the whole graph, which decides ties.

    Attributes:
        held: ``(m,)``, whether the node is held here.
        halo_position: ``(m,)``, where its value arrives, if it is held elsewhere.
    """

    held: Array
    halo_position: Array

    @classmethod
    def from_owner(cls, owner: Array, rank: int) -> "LocalIndex":
        """From the owners of the nodes: values arrive owner after owner, ascending."""
        held = owner == rank
        position = np.zeros(len(owner), np.int64)
        elsewhere = np.flatnonzero(~held)
        position[elsewhere[np.argsort(owner[elsewhere], kind="stable")]] = np.arange(len(elsewhere))
        return cls(held, position)


@dataclass(frozen=True)
class HaloSplit:
    """Local graphs for a pass over the neighbours: ``interior`` while the halo arrives, ``boundary`` when it has.

    The interior graphs have the n nodes held here and the rows that refer to them alone. The boundary graphs have the
    nodes that the other rows refer to, in the order of the whole graph; ``needed`` and ``order`` collect their values.

    Attributes:
        plan: the exchange between the processes, None for a single one.
        num_nodes: n.
        interior: one graph for each set of rows; empty if all rows need the halo.
        boundary: the same for the rows that need the halo; empty if none does.
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

    def run(self, x: Tensor, pass_: Pass) -> tuple[Tensor, ...]:
        """Evaluate ``pass_(x, *graphs)`` at the nodes held here."""
        receive_halo = None if self.plan is None else self.plan.begin(x)
        inner = self._run_interior(x, pass_) if self.interior else ()
        if receive_halo is None:
            return inner
        halo = receive_halo()
        if not self.boundary:
            return tuple(_Tied.apply(value, halo) for value in inner)
        near = torch.cat([x.index_select(-2, self.needed), halo], dim=-2).index_select(-2, self.order)
        outer = [value.index_select(-2, self.rows) for value in pass_(near, *self.boundary)]
        if not inner:
            return tuple(outer)
        return tuple(value.index_copy(-2, self.nodes, other) for value, other in zip(inner, outer, strict=True))

    def _run_interior(self, x: Tensor, pass_: Pass) -> tuple[Tensor, ...]:
        if self.num_nodes:
            return pass_(x, *self.interior)
        # A process without nodes takes part in the exchange and in the gradient of the parameters
        padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
        return tuple(value.narrow(-2, 0, 0) for value in pass_(padded, *self.interior))

    def to(self, device: torch.device, dtype: torch.dtype) -> "HaloSplit":
        """The same graphs elsewhere, or in another precision."""
        plan = self.plan and replace(self.plan, send=self.plan.send.to(device))
        interior = tuple(graph.to(device, dtype) for graph in self.interior)
        boundary = tuple(graph.to(device, dtype) for graph in self.boundary)
        indices = (index.to(device) for index in (self.needed, self.order, self.rows, self.nodes))
        return HaloSplit(plan, self.num_nodes, interior, boundary, *indices)


def split_halo(index: LocalIndex, sets: Sequence[LocalRows], plan: HaloPlan | None) -> HaloSplit:
    """Split the rows of one process; several sets of rows (the neighbours of 1, 2, .. hops) share one split."""
    place_held = np.flatnonzero(index.held)
    num_nodes, elsewhere = len(place_held), ~index.held
    needs_halo = np.zeros(num_nodes, bool)
    used = np.zeros(len(index.held), bool)
    for rows in sets:
        needs_halo |= _rows_with(rows.rowptr, elsewhere[rows.col])
    used[place_held[needs_halo]] = True
    for rows in sets:
        used[rows.col[np.repeat(needs_halo, np.diff(rows.rowptr))]] = True
    number_held, number_used = np.cumsum(index.held) - 1, np.cumsum(used) - 1
    needed = number_held[used & index.held]
    order = np.where(index.held, np.cumsum(used & index.held) - 1, len(needed) + index.halo_position)[used]
    interior: list[Graph] = []
    boundary: list[Graph] = []
    nodes = np.flatnonzero(needs_halo)
    for rows in sets:
        if len(nodes) < num_nodes or num_nodes == 0:
            interior.append(_subgraph(rows, ~needs_halo, np.arange(num_nodes), number_held, max(1, num_nodes)))
        if len(nodes):
            boundary.append(_subgraph(rows, needs_halo, number_used[place_held], number_used, int(used.sum())))
    boundary_rows = number_used[place_held[nodes]]
    indices = (torch.from_numpy(each.astype(np.int64)) for each in (needed, order, boundary_rows, nodes))
    return HaloSplit(plan, num_nodes, tuple(interior), tuple(boundary), *indices)


def _rows_with(rowptr: Array, marked: Array) -> Array:
    """Whether each row has a marked entry."""
    before = np.concatenate([[0], np.cumsum(marked, dtype=np.int64)])
    return before[rowptr[1:]] > before[rowptr[:-1]]


def _subgraph(rows: LocalRows, chosen: Array, row_number: Array, number: Array, num_nodes: int) -> Graph:
    """The graph of the chosen rows alone, rows and columns numbered anew; all other rows are empty."""
    degree = np.diff(rows.rowptr)
    entry = np.repeat(chosen, degree)
    targets = np.repeat(row_number[chosen], degree[chosen])
    target, source = (torch.from_numpy(ends.astype(np.int64)) for ends in (targets, number[rows.col[entry]]))
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
