"""What one process needs to know of a graph."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from graphact.graph import Graph
from graphact.scaleout.pieces import Rows

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Part:
    """The share of one process: its rows, the nodes it hears, and what others hear of it.

    Attributes:
        rank: the process.
        parts: how many there are.
        total_nodes: nodes of the whole graph.
        known: ``(m,)``, the nodes held here or heard from here (the halo), ascending.
        owner: ``(m,)``, who holds them.
        rows: neighbour lists of the nodes held here; members are positions in ``known``.
        send: positions, among the nodes held here, of those that others hear, receiver after receiver, ascending.
        send_counts: ``(parts,)``, how many go to each process.
    """

    rank: int
    parts: int
    total_nodes: int
    known: Array
    owner: Array
    rows: Rows
    send: Array
    send_counts: Array

    @property
    def nodes(self) -> Array:
        """The nodes held here, ascending."""
        return self.known[self.owner == self.rank]

    @property
    def halo_counts(self) -> Array:
        """How many values come from each process."""
        counts = np.bincount(self.owner, minlength=self.parts)
        counts[self.rank] = 0
        return counts


def divide(graph: Graph, owner: Array, parts: int) -> Iterator[Part]:
    """Yield the share of each process, made when it is asked for.

    Args:
        graph: the whole graph.
        owner: ``(N,)``, the process of each node.
        parts: number of processes.
    """
    halos = [halo_of(graph, owner, rank) for rank in range(parts)]
    for rank in range(parts):
        yield share(graph, owner, rank, halos)


def halo_of(graph: Graph, owner: Array, rank: int) -> Array:
    """The nodes of others that a process hears, ascending."""
    pointers, members = numpy_of(graph.incoming.pointers), numpy_of(graph.incoming.members)
    heard = np.zeros(graph.num_nodes, bool)
    heard[members[np.repeat(owner == rank, np.diff(pointers))]] = True
    return np.flatnonzero(heard & (owner != rank))


def share(graph: Graph, owner: Array, rank: int, halos: list[Array]) -> Part:
    """The share of one process, given what each process hears of others."""
    held = owner == rank
    is_known = held.copy()
    is_known[halos[rank]] = True
    known = np.flatnonzero(is_known)
    position_known, position_held = np.cumsum(is_known) - 1, np.cumsum(held) - 1
    degree = graph.degree.cpu().numpy()
    entry = np.repeat(held, degree)
    rows = Rows(
        pointers=np.concatenate([[0], np.cumsum(degree[held])]),
        members=position_known[numpy_of(graph.incoming.members)[entry]].astype(np.int32),
        weight=numpy_of(graph.weight)[entry],
        diagonal=None if graph.diagonal is None else numpy_of(graph.diagonal)[held],
    )
    wanted = [position_held[halo[owner[halo] == rank]] for halo in halos]
    send_counts = np.array([len(nodes) for nodes in wanted])
    return Part(rank, len(halos), graph.num_nodes, known, owner[known], rows, np.concatenate(wanted), send_counts)


def numpy_of(tensor: Tensor) -> Array:
    """A tensor as an array; on the CPU the memory is shared."""
    return tensor.detach().cpu().numpy()
