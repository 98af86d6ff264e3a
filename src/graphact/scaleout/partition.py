"""Sharing the nodes of a graph among processes: who holds which node, and what each process needs to know."""

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph

Array = np.ndarray[Any, Any]
Method = Literal["auto", "metis", "blocks"]
METHODS = ("auto", "metis", "blocks")


class LocalRows(NamedTuple):
    """The rows of S of the nodes held here, in CSR form.

    Attributes:
        rowptr: ``(n + 1,)``; the neighbours of the i-th node held here are ``col[rowptr[i]:rowptr[i + 1]]``.
        col: ``(E,)``; positions among the known nodes, ascending within each row.
        weight: ``(E,)``.
        diagonal: ``(n,)``, or None where it is zero.
    """

    rowptr: Array
    col: Array
    weight: Array
    diagonal: Array | None


@dataclass(frozen=True)
class Part:
    """The share of one process: its rows, its halo, and what it sends.

    Attributes:
        rank: the process.
        parts: how many there are.
        total_nodes: nodes of the whole graph.
        known: ``(m,)``, the nodes held here or heard from here (the halo), ascending.
        owner: ``(m,)``, who holds them.
        rows: neighbours of the nodes held here, as positions in ``known``.
        send: positions, among the nodes held here, of those that others hear, receiver after receiver, ascending.
        send_counts: ``(parts,)``, how many go to each process.
    """

    rank: int
    parts: int
    total_nodes: int
    known: Array
    owner: Array
    rows: LocalRows
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


def assign_nodes(graph: Graph, parts: int, method: Method = "auto") -> tuple[Array, str]:
    """Share the nodes of a graph among ``parts`` processes.

    Args:
        graph: the graph.
        parts: number of processes; there may be more than nodes.
        method: ``"metis"`` cuts as few edges as it can (needs the package pymetis); ``"blocks"`` gives each process
            consecutive nodes, with about equally many edges; ``"auto"`` takes METIS where it is installed.

    Returns:
        The process of each node, ``(N,)``, and the method that was used.

    Example:
        >>> import graphact
        >>> from graphact.scaleout import assign_nodes
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> assign_nodes(path, 2, "blocks")
        (array([0, 0, 1, 1], dtype=int32), 'blocks')
    """
    check_choice("method", method, METHODS)
    check_integer("parts", parts, minimum=1)
    installed = importlib.util.find_spec("pymetis") is not None
    if method == "metis" and not installed:
        raise ValueError('method "metis" needs the package pymetis: pip install "graphact[scaleout]"')
    if method == "metis" or (method == "auto" and installed):
        return _metis(graph, parts), "metis"
    return _blocks(graph, parts), "blocks"


def _blocks(graph: Graph, parts: int) -> Array:
    """Consecutive nodes, cut so that rows and edges together are shared equally."""
    work = _numpy(graph.degree) + 1
    total = np.cumsum(work)
    middle = total - work / 2  # of a node's own work decides where it goes
    return np.minimum(middle * parts / total[-1], parts - 1).astype(np.int32)


def _metis(graph: Graph, parts: int) -> Array:
    """Few edges between the parts; an edge counts whichever way it points."""
    import pymetis
    import scipy.sparse

    if parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    rowptr, col = _numpy(graph.incoming.pointers), _numpy(graph.incoming.members)
    if graph.is_directed:
        shape = (graph.num_nodes, graph.num_nodes)
        links = scipy.sparse.csr_array((np.ones(len(col), np.int8), col, rowptr), shape=shape)
        links = (links + links.T).tocsr()
        rowptr, col = links.indptr, links.indices
    adjacency = pymetis.CSRAdjacency(rowptr.astype(np.int32), col.astype(np.int32))
    return np.asarray(pymetis.part_graph(parts, adjacency=adjacency)[1], dtype=np.int32)


def divide(graph: Graph, owner: Array, parts: int) -> Iterator[Part]:
    """Yield the share of each process, made when it is asked for.

    Args:
        graph: the whole graph.
        owner: ``(N,)``, the process of each node.
        parts: number of processes.
    """
    halos = [_halo(graph, owner, rank) for rank in range(parts)]
    for rank in range(parts):
        yield _share(graph, owner, rank, halos)


def part_of(graph: Graph, owner: Array, parts: int, rank: int) -> Part:
    """The share of one process alone."""
    return _share(graph, owner, rank, [_halo(graph, owner, other) for other in range(parts)])


def _halo(graph: Graph, owner: Array, rank: int) -> Array:
    """The nodes of others that a process hears, ascending."""
    heard = np.zeros(graph.num_nodes, bool)
    heard[_numpy(graph.incoming.members)[np.repeat(owner == rank, _numpy(graph.degree))]] = True
    return np.flatnonzero(heard & (owner != rank))


def _share(graph: Graph, owner: Array, rank: int, halos: list[Array]) -> Part:
    """The share of one process, given the halo of each process."""
    held = owner == rank
    is_known = held.copy()
    is_known[halos[rank]] = True
    known = np.flatnonzero(is_known)
    position_known, position_held = np.cumsum(is_known) - 1, np.cumsum(held) - 1
    degree = _numpy(graph.degree)
    entry = np.repeat(held, degree)
    rows = LocalRows(
        rowptr=np.concatenate([[0], np.cumsum(degree[held])]),
        col=position_known[_numpy(graph.incoming.members)[entry]].astype(np.int32),
        weight=_numpy(graph.weight)[entry],
        diagonal=None if graph.diagonal is None else _numpy(graph.diagonal)[held],
    )
    wanted = [position_held[halo[owner[halo] == rank]] for halo in halos]
    send_counts = np.array([len(nodes) for nodes in wanted])
    return Part(rank, len(halos), graph.num_nodes, known, owner[known], rows, np.concatenate(wanted), send_counts)


def _numpy(tensor: Tensor) -> Array:
    """A tensor as an array; on the CPU the memory is shared."""
    return tensor.detach().cpu().numpy()
