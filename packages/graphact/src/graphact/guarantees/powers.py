"""Rows of powers of the shift operator, sparse and a few at a time: norms of single layers on graphs of any size."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact._sparse import quietly
from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.graph.eager import is_plain
from graphact.guarantees.rules import MOST_ENTRIES, MOST_GRAM_COLUMNS, longest, safe_sqrt

Spend = Callable[[float], None]  # called with the number of operations before they are done
MAX_NORM_WORK = 3e10  # products for the norms of single layers, some tens of seconds
SPARSE = 10  # what a product of two entries of sparse matrices costs, in those of dense ones
MOST_ROWS = 512  # of a power at once; as many as there are nodes in the worst case are then held for each


class WorkLimitError(Exception):
    """The exact norms of a layer would take too many operations."""


def limit_work(max_work: float) -> Spend:
    """Return a function that adds up operations and raises WorkLimitError above a maximum."""
    total = 0.0

    def spend(work: float) -> None:
        nonlocal total
        total += work
        if total > max_work:
            raise WorkLimitError

    return spend


def matrix_of(graph: Graph) -> scipy.sparse.csr_array:
    """The shift operator for SciPy, in float64."""
    (source, target), weight = (part.cpu() for part in graph.to_edge_index())
    entries = weight.detach().double().numpy(), (target.numpy(), source.numpy())
    return scipy.sparse.csr_array(entries, shape=(graph.num_nodes, graph.num_nodes))


def to_torch(matrix: scipy.sparse.csr_array) -> Tensor:
    """The same matrix for products that gradients flow through."""
    entries = matrix.tocoo()
    places, values = torch.from_numpy(np.stack(entries.coords).astype(np.int64)), torch.from_numpy(entries.data)
    with quietly():
        return torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=False).coalesce()


class PowerRows:
    """The rows of :math:`S^k`."""

    def __init__(self, graph: Graph, power: int, spend: Spend = lambda _: None) -> None:
        self.matrix, self.power, self.num_nodes, self.spend = matrix_of(graph), power, graph.num_nodes, spend

    @property
    def entries_at_once(self) -> int:
        """Numbers that are held for each neighbour where differences of rows are compared as a whole."""
        return self.num_nodes if self.num_nodes <= MOST_GRAM_COLUMNS else 1

    @cached_property
    def norms(self) -> Tensor:
        """The 1-norm of every row, ``(N, 1)``."""
        unit = scipy.sparse.eye_array(self.num_nodes, format="csr")
        return torch.cat([self._norms_of(unit[i : i + MOST_ROWS]) for i in range(0, self.num_nodes, MOST_ROWS)])[
            :, None
        ]

    def _norms_of(self, rows: Any) -> Tensor:
        """Of combinations of rows: the 1-norms."""
        for _ in range(self.power):
            rows = self._times(rows)
        return torch.from_numpy(np.asarray(abs(rows).sum(1), dtype=np.float64).ravel())

    def _times(self, rows: Any) -> Any:
        self.spend(SPARSE * rows.nnz * self.matrix.nnz / max(1, self.num_nodes))
        return rows @ self.matrix

    def entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Single entries of a power of at most 1, ``(...)``."""
        if self.power == 0 or rows.numel() == 0:
            return (rows == columns).double()
        if self.matrix.nnz == 0:
            return torch.zeros(rows.shape, dtype=torch.float64)
        wanted = (rows * self.num_nodes + columns).numpy()
        slot = np.searchsorted(self._places, wanted).clip(max=len(self._places) - 1)
        return torch.from_numpy(np.where(self._places[slot] == wanted, self.matrix.data[slot], 0.0))

    @cached_property
    def _places(self) -> "np.ndarray[Any, Any]":
        """Row and column of every entry as one number, ascending."""
        self.matrix.sort_indices()
        rows = np.repeat(np.arange(self.num_nodes), np.diff(self.matrix.indptr))
        return rows * self.num_nodes + self.matrix.indices

    def longest(self, nodes: Tensor, table: Tensor) -> Tensor:
        """The bound :func:`graphact.guarantees.rules.longest` of rows of neighbours less that of a node, ``(n, 1)``."""
        count = table.numel()
        if count == 0:
            return torch.zeros(len(nodes), 1, dtype=torch.float64)
        edge, shape = np.arange(count), (count, self.num_nodes)
        ends = table.flatten().numpy(), nodes.repeat_interleave(table.size(1)).numpy()
        there, here = (scipy.sparse.csr_array((np.ones(count), (edge, end)), shape=shape) for end in ends)
        offsets = there - here
        if self.num_nodes > MOST_GRAM_COLUMNS:
            parts = [self._norms_of(offsets[i : i + MOST_ROWS]) for i in range(0, count, MOST_ROWS)]
            return safe_sqrt(torch.cat(parts).view(table.shape).square().sum(1, keepdim=True))
        for _ in range(self.power):
            offsets = self._times(offsets)
        dense = torch.from_numpy(offsets.toarray()).view(*table.shape, -1)
        return longest(dense.permute(2, 0, 1).unsqueeze(-1))


def bank_entries(graph: Graph, order: int, spend: Spend) -> Iterator[tuple[Tensor, Tensor]]:
    """The entries ``(n, K + 1)`` of I, S, ..., S^K wherever one of them has any, and their rows ``(n,)``."""
    matrix, size = matrix_of(graph), graph.num_nodes
    unit = scipy.sparse.eye_array(size, format="csr")
    for first in range(0, size, MOST_ROWS):
        powers = [unit[first : first + MOST_ROWS]]
        for _ in range(order):
            spend(SPARSE * powers[-1].nnz * matrix.nnz / size)
            powers.append(powers[-1] @ matrix)
        found = [power.tocoo() for power in powers]
        places = [each.coords[0].astype(np.int64) * size + each.coords[1] for each in found]
        every, slot = np.unique(np.concatenate(places), return_inverse=True)
        power = np.repeat(np.arange(order + 1), [len(each) for each in places])
        entries = np.zeros((len(every), order + 1))
        entries[slot, power] = np.concatenate([each.data for each in found])
        yield torch.from_numpy(entries), torch.from_numpy(first + every // size)


def bank_norms(taps: Tensor, graph: Graph, spend: Spend = lambda _: None) -> Tensor:
    """The 1-norm of every row of a filter bank, ``(N, F_out)``; gradients flow to the taps."""
    used = [number for number, tap in enumerate(taps) if tap.any()] if is_plain(taps) and not taps.requires_grad else []
    if len(used) == 1:  # a matrix over nodes times one over features: the norm of a row is a product
        return PowerRows(graph, used[0], spend).norms * taps[used[0]].abs().sum(0)
    total = taps.new_zeros(graph.num_nodes, taps.size(2))
    step = max(1, MOST_ENTRIES // max(1, taps[0].numel()))
    for entries, rows in bank_entries(graph, taps.size(0) - 1, spend):
        for part, row in zip(entries.split(step), rows.split(step), strict=True):
            spend(float(len(part) * taps.numel()))
            total = total.index_add(0, row, (part @ taps.flatten(1)).view(-1, *taps.shape[1:]).abs().sum(1))
    return total


def bank_rows(taps: Tensor, graph: Graph) -> Iterator[Tensor]:
    """The rows of a filter bank, ``(m, N, F_out)`` for as many of its N F_in inputs at a time as fit into memory."""
    step = max(1, MOST_ENTRIES // (graph.num_nodes * max(taps.shape[1:])))
    size = graph.num_nodes * taps.size(1)
    for first in range(0, size, step):
        columns = torch.zeros(min(step, size - first), size, dtype=torch.float64)
        columns.diagonal(first).fill_(1.0)
        yield graph_filter(columns.view(-1, graph.num_nodes, taps.size(1)), graph, taps)
