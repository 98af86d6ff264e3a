"""Where a few columns live on a large graph: the nodes that they have reached, and the operators that act there."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact._sparse import quietly
from graphact.graph import Graph
from graphact.guarantees.description import Block, Blocks, graph_of
from graphact.spec import HopMixture

Array = np.ndarray[Any, Any]
BLOCK = {"cpu": 1 << 18, "cuda": 1 << 26}  # coefficients of a block of columns
WIDE = 0.4  # of all nodes: above, a block lives on the whole graph


def is_compiled(device: torch.device) -> bool:
    """Whether Numba can take the passes over neighbours."""
    return device.type == "cpu" and find_spec("numba") is not None


@dataclass(frozen=True)
class Lists:
    """CSR rows of the whole graph: what every node reads, with weights where it is a shift."""

    rowptr: Array
    col: Array
    weight: Array

    @classmethod
    def of(cls, matrix: "scipy.sparse.csr_array") -> "Lists":
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data)

    @property
    def rows(self) -> Array:
        """The row of every entry."""
        return np.repeat(np.arange(len(self.rowptr) - 1), np.diff(self.rowptr))

    def entries(self, rows: Array) -> tuple[Array, Array]:
        """The positions of the entries of some rows, and how many each row has."""
        counts = self.rowptr[rows + 1] - self.rowptr[rows]
        first = np.repeat(self.rowptr[rows] - np.concatenate([[0], counts.cumsum()[:-1]]), counts)
        return first + np.arange(counts.sum()), counts


class Operator:
    """Some rows of a sparse matrix, acting on the signals ``(n, m, F)`` of a window."""

    def __init__(self, lists: Lists, rows: Array, place: Array, size: int, device: torch.device) -> None:
        entries, counts = lists.entries(rows)
        rowptr = np.concatenate([[0], counts.cumsum(), np.full(size - len(rows), counts.sum())])
        self.entries, self.shape = torch.from_numpy(entries).to(device), (size, size)
        self.csr = rowptr, place[lists.col[entries]], lists.weight[entries]
        self.device = device

    @cached_property
    def matrix(self) -> Any:
        """For SciPy on the CPU, whose product with many columns is fast, and for torch elsewhere."""
        if self.device.type == "cpu":
            rowptr, col, weight = self.csr
            return scipy.sparse.csr_array((weight, col, rowptr), shape=self.shape)
        rows, columns, values = (torch.from_numpy(part).to(self.device) for part in self.csr)
        with quietly():
            return torch.sparse_csr_tensor(rows, columns, values, self.shape, check_invariants=False)

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Row and column of every entry."""
        rowptr, col, _ = self.csr
        row = np.repeat(np.arange(self.shape[0]), np.diff(rowptr))
        return torch.from_numpy(row).to(self.device), torch.from_numpy(col).to(self.device)

    def __matmul__(self, x: Tensor) -> Tensor:
        flat = x.reshape(x.size(0), -1)
        product = torch.from_numpy(self.matrix @ flat.numpy()) if self.device.type == "cpu" else self.matrix @ flat
        return product.view(x.shape)

    def read(self, y: Tensor, own: bool) -> tuple[Tensor, Tensor]:
        """The mean over what every row reads, ``(n, m, F)``, and the 1-norm over m of every entry less it, ``(E, F)``.

        ``own`` takes the row's own value in the place of the mean.
        """
        if is_compiled(self.device):
            from graphact.guarantees.compiled import mean_and_apart

            mean, apart = torch.zeros_like(y), y.new_zeros(len(self.entries), y.size(2))
            mean_and_apart(*self.csr[:2], y.contiguous(), mean, apart, own)
            return mean, apart
        middle = y if own else self @ y
        rows, columns = self.ends
        step = max(1, BLOCK[self.device.type] // max(1, y[0].numel()))
        parts = [
            y.index_select(0, column).sub_(middle.index_select(0, row)).abs_().sum(1)
            for row, column in zip(rows.split(step), columns.split(step), strict=True)
        ]
        return middle, torch.cat(parts)


class Surroundings:
    """The whole graph: its shifts, and for each hop of each activation what every node reads.

    A layer may have a graph of its own, such as the operator of a convolution; values pass along the edges of all.
    """

    def __init__(self, graph: Graph, layers: Blocks, device: torch.device) -> None:
        self.graph = graph = graph.to("cpu", torch.float64)
        self.num_nodes, self.device = graph.num_nodes, device
        size = (self.num_nodes, self.num_nodes)
        everything = scipy.sparse.eye_array(self.num_nodes, dtype=bool, format="csr")
        self.shifts: dict[int, Lists] = {}  # by the id of their graph
        for each in {id(own): own for own in (graph, *(graph_of(layer, graph) for layer in layers))}.values():
            (source, target), weight = (part.numpy() for part in each.to_edge_index())
            ones = np.ones(len(weight), dtype=bool)
            self.shifts[id(each)] = Lists.of(scipy.sparse.csr_array((weight, (target, source)), shape=size))
            everything = everything + scipy.sparse.csr_array((ones, (target, source)), shape=size)
        self.reads: dict[tuple[int, int, bool], Lists] = {}
        for layer in layers:
            if isinstance(layer, HopMixture):
                graph = graph_of(layer, self.graph)
                for hop in range(layer.hops):
                    key = self.key(layer, hop)
                    _, hops, closed = key
                    near = graph.hop_pattern(hops, closed=closed) if hops > 1 else graph.incoming
                    ones = np.ones(len(near.col))
                    pattern = scipy.sparse.csr_array((ones, near.col.numpy(), near.rowptr.numpy()), shape=size)
                    if closed and hops == 1:
                        pattern = (pattern + scipy.sparse.eye_array(self.num_nodes, format="csr")).tocsr()
                    pattern.data = 1 / np.repeat(np.diff(pattern.indptr), np.diff(pattern.indptr)).astype(float)
                    self.reads[key] = Lists.of(pattern)
                    if hops > 1:  # two nodes that read each other over several hops count as neighbours of one
                        everything = everything + pattern.astype(bool)
        self.everything, self.reached = Lists.of(everything.tocsr()), Lists.of(everything.T.tocsr())
        self.all = Window(self, np.arange(self.num_nodes), np.arange(self.num_nodes))

    def key(self, layer: HopMixture, hop: int) -> tuple[int, int, bool]:
        """On which graph and by how many hops a term reads, and whether a node reads itself."""
        return id(graph_of(layer, self.graph)), (1 if layer.reads == "shifted" else hop + 1), layer.closed

    def spread(self, nodes: Array, lists: Lists, hops: int = 1) -> Array:
        """All nodes within that many hops, in order."""
        mask = np.zeros(self.num_nodes, dtype=bool)
        for _ in range(hops):
            mask[lists.col[lists.entries(nodes)[0]]] = True
            nodes = np.flatnonzero(mask)
        return nodes

    def window(self, nodes: Array, hops: int) -> "Window":
        """Where columns of these nodes can be, that many hops on."""
        rows = self.spread(nodes, self.reached, hops)
        if len(rows) >= WIDE * self.num_nodes:
            return self.all
        read = self.spread(rows, self.everything)
        return Window(self, rows, np.concatenate([rows, np.setdiff1d(read, rows, assume_unique=True)]))

    def clusters(self, size: int) -> Iterator[Array]:
        """All nodes in groups of neighbours, so that what they reach overlaps."""
        free, lists = np.ones(self.num_nodes, dtype=bool), self.everything
        for seed in range(self.num_nodes):
            if free[seed]:
                group = np.array([seed])
                for _ in range(4 if size > 1 else 0):
                    group = self.spread(group, lists)
                    group = group[free[group]]
                    if len(group) >= size:
                        break
                group = np.unique(np.concatenate([[seed], group[:size]]))
                free[group] = False
                yield group


class Window:
    """The nodes that a block of columns has reached, and behind them those that these read, whose values are 0."""

    def __init__(self, graph: Surroundings, rows: Array, nodes: Array) -> None:
        self.graph, self.rows, self.nodes = graph, rows, nodes
        self.place = np.full(graph.num_nodes, -1)
        self.place[nodes] = np.arange(len(nodes))
        self.index = torch.from_numpy(nodes).to(graph.device)
        self._reads: dict[tuple[int, int, bool], Operator] = {}
        self._shifts: dict[int, Operator] = {}

    def shift(self, layer: Block) -> Operator:
        """The shift operator of the graph that a layer acts on."""
        key = id(graph_of(layer, self.graph.graph))
        if key not in self._shifts:
            self._shifts[key] = self._operator(self.graph.shifts[key])
        return self._shifts[key]

    def reads(self, layer: HopMixture, hop: int) -> Operator:
        """The mean over what a hop reads."""
        key = self.graph.key(layer, hop)
        if key not in self._reads:
            self._reads[key] = self._operator(self.graph.reads[key])
        return self._reads[key]

    def _operator(self, lists: Lists) -> Operator:
        return Operator(lists, self.rows, self.place, len(self.nodes), self.graph.device)

    @cached_property
    def operations(self) -> int:
        """What one hop costs for one column and feature."""
        lists = self.graph.everything
        return int((lists.rowptr[self.rows + 1] - lists.rowptr[self.rows]).sum()) + 4 * len(self.rows)

    def add(self, total: Tensor, x: Tensor) -> None:
        """The norms of a block ``(n, m, F)`` to those of all columns ``(N, F)``."""
        if self is self.graph.all:
            total += x.abs().sum(1)
        else:
            total.index_add_(0, self.index[: len(self.rows)], x[: len(self.rows)].abs().sum(1))

    def widen(self, x: Tensor, before: "Window") -> Tensor:
        """Signals of a smaller window on this one."""
        if before is self:
            return x
        wider = x.new_zeros(len(self.nodes), *x.shape[1:])
        wider[torch.from_numpy(self.place[before.rows]).to(x.device)] = x[: len(before.rows)]
        return wider
