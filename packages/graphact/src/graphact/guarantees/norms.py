r"""Norms of single layers, path sums of whole networks, and bounds of rounding errors.

A path sum adds the magnitudes of all coefficients along all paths, so its cost grows with the edges. A rounded sum of n
products is off by less than :math:`2 n \epsilon` times the sum of their magnitudes; earlier errors propagate as any
other difference does.
"""

import math
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact._sparse import quietly
from graphact.functional import graph_filter
from graphact.graph import Graph
from graphact.graph.eager import is_plain
from graphact.guarantees.layers import Block, Blocks, get_branches, iterate_hops, resolve_graph, widths
from graphact.guarantees.rules import (
    MAX_ENTRIES,
    MAX_GRAM_COLUMNS,
    OPERATIONS,
    find_rule,
    layer_norm_slope,
    longest,
    safe_sqrt,
)
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum
from graphact.spec.operations import KERNEL, LOG_MEAN_EXP

Spend = Callable[[float], None]  # called with the number of operations before they are done
MAX_NORM_WORK = 3e10  # products for the norms of single layers, some tens of seconds
SPARSE = 10  # cost of a product of two entries of sparse matrices, in those of dense ones
MAX_ROWS = 512  # of a power at once; as many as there are nodes in the worst case are then held for each


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


def to_scipy(graph: Graph) -> scipy.sparse.csr_array:
    """Return the shift operator as a SciPy matrix in float64."""
    (source, target), weight = (part.cpu() for part in graph.to_edge_index())
    entries = weight.detach().double().numpy(), (target.numpy(), source.numpy())
    return scipy.sparse.csr_array(entries, shape=(graph.num_nodes, graph.num_nodes))


def to_torch(matrix: scipy.sparse.csr_array) -> Tensor:
    """Return a SciPy matrix as a sparse tensor, for products that gradients flow through."""
    entries = matrix.tocoo()
    places, values = torch.from_numpy(np.stack(entries.coords).astype(np.int64)), torch.from_numpy(entries.data)
    with quietly():
        return torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=False).coalesce()


class PowerRows:
    """The rows of :math:`S^k`, sparse and a few at a time."""

    def __init__(self, graph: Graph, power: int, spend: Spend = lambda _: None) -> None:
        self.matrix, self.power, self.num_nodes, self.spend = to_scipy(graph), power, graph.num_nodes, spend

    @property
    def entries_at_once(self) -> int:
        """The numbers that :meth:`longest` holds for each neighbour."""
        return self.num_nodes if self.num_nodes <= MAX_GRAM_COLUMNS else 1

    @cached_property
    def norms(self) -> Tensor:
        """The 1-norm of every row, ``(N, 1)``."""
        unit = scipy.sparse.eye_array(self.num_nodes, format="csr")
        return torch.cat([self._norms_of(unit[i : i + MAX_ROWS]) for i in range(0, self.num_nodes, MAX_ROWS)])[:, None]

    def _norms_of(self, rows: Any) -> Tensor:
        """Return the 1-norms of combinations of rows."""
        for _ in range(self.power):
            rows = self._times(rows)
        return torch.from_numpy(np.asarray(abs(rows).sum(1), dtype=np.float64).ravel())

    def _times(self, rows: Any) -> Any:
        self.spend(SPARSE * rows.nnz * self.matrix.nnz / max(1, self.num_nodes))
        return rows @ self.matrix

    def entries(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return single entries of a power of at most 1, ``(...)``."""
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
        """Apply :func:`graphact.guarantees.rules.longest` to rows of neighbours minus that of a node, ``(n, 1)``."""
        count = table.numel()
        if count == 0:
            return torch.zeros(len(nodes), 1, dtype=torch.float64)
        edge, shape = np.arange(count), (count, self.num_nodes)
        ends = table.flatten().numpy(), nodes.repeat_interleave(table.size(1)).numpy()
        there, here = (scipy.sparse.csr_array((np.ones(count), (edge, end)), shape=shape) for end in ends)
        offsets = there - here
        if self.num_nodes > MAX_GRAM_COLUMNS:
            parts = [self._norms_of(offsets[i : i + MAX_ROWS]) for i in range(0, count, MAX_ROWS)]
            return safe_sqrt(torch.cat(parts).view(table.shape).square().sum(1, keepdim=True))
        for _ in range(self.power):
            offsets = self._times(offsets)
        dense = torch.from_numpy(offsets.toarray()).view(*table.shape, -1)
        return longest(dense.permute(2, 0, 1).unsqueeze(-1))


def bank_entries(graph: Graph, order: int, spend: Spend) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the entries ``(n, K + 1)`` of I, S, ..., S^K where any of them is not 0, and their rows ``(n,)``."""
    matrix, size = to_scipy(graph), graph.num_nodes
    unit = scipy.sparse.eye_array(size, format="csr")
    for first in range(0, size, MAX_ROWS):
        powers = [unit[first : first + MAX_ROWS]]
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
    """Return the 1-norm of every row of a filter bank, ``(N, F_out)``; gradients flow to the taps."""
    used = [number for number, tap in enumerate(taps) if tap.any()] if is_plain(taps) and not taps.requires_grad else []
    if len(used) == 1:  # a matrix over nodes times one over features: the norm of a row is a product
        return PowerRows(graph, used[0], spend).norms * taps[used[0]].abs().sum(0)
    total = taps.new_zeros(graph.num_nodes, taps.size(2))
    step = max(1, MAX_ENTRIES // max(1, taps[0].numel()))
    for entries, rows in bank_entries(graph, taps.size(0) - 1, spend):
        for part, row in zip(entries.split(step), rows.split(step), strict=True):
            spend(float(len(part) * taps.numel()))
            total = total.index_add(0, row, (part @ taps.flatten(1)).view(-1, *taps.shape[1:]).abs().sum(1))
    return total


def bank_rows(taps: Tensor, graph: Graph) -> Iterator[Tensor]:
    """Yield the rows of a filter bank, ``(m, N, F_out)`` for as many of its N F_in inputs as fit into memory."""
    step = max(1, MAX_ENTRIES // (graph.num_nodes * max(taps.shape[1:])))
    size = graph.num_nodes * taps.size(1)
    for first in range(0, size, step):
        columns = torch.zeros(min(step, size - first), size, dtype=torch.float64)
        columns.diagonal(first).fill_(1.0)
        yield graph_filter(columns.view(-1, graph.num_nodes, taps.size(1)), graph, taps)


EPSILON = torch.finfo(torch.float64).eps


def magnitudes(layers: Blocks, features: int, graph: Graph, hop_factor: float = 1.0) -> tuple[Tensor, int]:
    """Sum the magnitudes of all paths to each output ``(N, O)``, in time that grows with the edges.

    Hops count ``hop_factor`` times. Beside it, the number of operations on the longest way through the network.
    Differentiable, where the arrays are. As long as all features of a node move alike, one column stands for them.
    """
    total = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
    longest, width = features * graph.num_nodes, features
    for layer, next_width in zip(layers, widths(layers, features), strict=True):
        total, steps = propagate_magnitude(layer, total, graph, hop_factor)
        longest, width = longest + steps + graph.num_nodes * width + width, next_width
    return total.expand(-1, width), longest


def propagate_magnitude(layer: Block, near: Tensor, graph: Graph, hop_factor: float = 1.0) -> tuple[Tensor, int]:
    """Bound the change of a layer's outputs when its inputs change by ``near`` ``(..., N, F)``; also count operations.

    Inputs of which all features move alike may have F = 1.
    """
    graph = resolve_graph(layer, graph)
    degree = graph.incoming.max_degree + 1
    longest = near.numel() + degree + near.size(-1)
    match layer:
        case Filter():
            matrix = abs(to_scipy(graph))
            total = through_weights(near, layer.taps[0].abs())
            for tap in layer.taps[1:]:
                near = shift_by(matrix, near)
                total, longest = total + through_weights(near, tap.abs()), longest + degree + near.size(-1)
        case Linear():
            total = through_weights(near, layer.weight.abs().T)
        case Pointwise():
            total = find_rule(layer).steepest * near
        case LayerNorm():
            slope = layer_norm_slope(layer.features, layer.epsilon)
            total = slope * near.amax(-1, keepdim=True).expand(*near.shape[:-1], layer.features)
            total = total if layer.weight is None else total * layer.weight.abs()
            longest += 10 * layer.features
        case Sum():
            total = torch.zeros(())
            for branch in get_branches(layer):
                value = near
                for inner in branch:
                    value, steps = propagate_magnitude(inner, value, graph, hop_factor)
                    longest += steps
                total = total + value
        case HopMixture():
            matrix = abs(to_scipy(graph)) if layer.reads == "shifted" else None
            total = layer.beta.abs() * near
            for hop in iterate_hops(layer, graph):
                if matrix is not None:
                    near = shift_by(matrix, near)
                entries = near[..., 0, :].numel()
                largest = hop.reduce_one(partial(OPERATIONS[layer.operation].move_unsaturated, layer, near), entries)
                total = total + hop_factor * layer.weights[hop.number].abs() * largest
                longest += 3 * (degree if hop.number == 0 else graph.num_nodes)
    return total, longest


def through_weights(near: Tensor, weight: Tensor) -> Tensor:
    """Apply a linear map ``(F_in, F_out)`` without signs; a single feature represents all if they are equal."""
    return near @ weight if near.size(-1) == weight.size(0) else near * weight.sum(0)


def shift_by(matrix: Any, near: Tensor) -> Tensor:
    """Multiply a sparse matrix by signals ``(..., N, F)``; gradients flow through signals ``(N, F)``."""
    if near.requires_grad:
        return torch.sparse.mm(to_torch(matrix), near)
    if near.dim() == 2:
        return torch.from_numpy(matrix @ near.numpy())
    rows = near.movedim(-2, 0)
    return torch.from_numpy(matrix @ rows.flatten(1).numpy()).view(rows.shape).movedim(0, -2)


def size_at_zero(layer: Block, width: int, graph: Graph) -> Tensor:
    """Bound the magnitude of a layer's outputs at the input 0: biases, and functions that are not 0 there."""
    zero = torch.zeros((), dtype=torch.float64)
    match layer:
        case Filter() | Linear():
            return zero if layer.bias is None else layer.bias.abs()
        case Pointwise():
            return find_rule(layer).apply(torch.zeros(width, dtype=torch.float64)).abs()
        case LayerNorm():
            fixed = math.sqrt(width) * (torch.ones(width).double() if layer.weight is None else layer.weight.abs())
            return fixed if layer.bias is None else fixed + layer.bias.abs()
        case HopMixture(operation=operation) if operation is KERNEL:
            return layer.weights.abs().sum(0)
        case HopMixture(operation=operation) if operation is LOG_MEAN_EXP:
            size = layer.parameters["temperature"] * (1 + math.log(largest_neighborhood(layer, graph)))
            return layer.weights.abs().sum(0) * size
    return zero


def largest_neighborhood(layer: HopMixture, graph: Graph) -> int:
    """Bound the number of values that a node reads in one hop."""
    own = resolve_graph(layer, graph)
    return own.num_nodes if layer.reads == "hops" and layer.hops > 1 else own.incoming.max_degree + 2


def propagate_error(
    layer: Block, size: Tensor, error: Tensor, graph: Graph, columns: int = 0, *, is_difference: bool = False
) -> Tensor:
    """Bound the rounding error after a layer, ``(..., N, F)``, whose inputs have a ``size`` and an ``error``.

    The values may be forms with that many ``columns``, whose size is that of the centre and of all coefficients: then
    every value that a form stands for is within the error of the true one. Differences have no biases.
    """
    degree, width = resolve_graph(layer, graph).incoming.max_degree + 2, size.size(-1)
    match layer:
        case Filter() | Linear():
            steps = 2 * (width + 2 + (degree + width) * layer.exchanges)
        case Pointwise():
            steps = 2 * columns + 20
        case LayerNorm():  # errors before the root are multiplied by its slope, which is part of the magnitude
            steps = 4 * width + 2 * columns + 20
        case HopMixture():
            steps = 6 * largest_neighborhood(layer, graph) + 2 * degree * layer.hops + 6 * columns + 20
        case Sum():
            raise AssertionError("the branches of a sum are walked through one by one")
    rounded = propagate_magnitude(layer, size, graph)[0]
    rounded = rounded if is_difference else rounded + size_at_zero(layer, width, graph)
    return propagate_magnitude(layer, error, graph)[0] + steps * EPSILON * rounded


def error_of_differences(layers: Blocks, size: Tensor, graph: Graph) -> Tensor:
    """Bound the rounding error of the change of outputs ``(N, O)`` when inputs change by ``size`` ``(N, F)``."""
    return _walk_differences(layers, size, torch.zeros_like(size), graph)[1]


def _walk_differences(layers: Blocks, size: Tensor, error: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    for layer in layers:
        if isinstance(layer, Sum):
            branches = [_walk_differences(branch, size, error, graph) for branch in get_branches(layer)]
            size, error = (torch.stack(parts).sum(0) for parts in zip(*branches, strict=True))
            error = error + 2 * len(branches) * EPSILON * size
        else:
            error = propagate_error(layer, size, error, graph, is_difference=True)
            size = propagate_magnitude(layer, size, graph)[0]
    return size, error


def count_nonlinear(layers: Blocks) -> int:
    """Count the layers that are not linear maps, including those inside of sums."""
    inside = [layer for each in layers if isinstance(each, Sum) for branch in get_branches(each) for layer in branch]
    outside = sum(isinstance(layer, Pointwise | HopMixture | LayerNorm) for layer in layers)
    return outside + (count_nonlinear(tuple(inside)) if inside else 0)
