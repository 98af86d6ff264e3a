r"""Layers as the guarantees read them: what one does with values, with changes of values, and with rounding errors.

A rounded sum of n products is off by less than :math:`2 n \epsilon` times the sum of their magnitudes; earlier errors
propagate as any other difference does.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact._sparse import quietly
from graphact.functional import graph_adaptive, graph_filter, localized, shift
from graphact.graph import Graph, Neighborhoods
from graphact.guarantees.rules import MAX_ENTRIES, OPERATIONS, find_rule, layer_norm_box, layer_norm_slope
from graphact.spec import Filter, HopMixture, Layer, LayerNorm, Linear, Pointwise, Sum
from graphact.spec.reductions import KERNEL, LOG_MEAN_EXP, STD

KnownLayer = Filter | Linear | Pointwise | HopMixture  # with rules for all guarantees
Layers = tuple[KnownLayer, ...]
Block = KnownLayer | LayerNorm | Sum  # with rules for bounds on a fixed graph
Blocks = tuple[Block, ...]
Each = TypeVar("Each", bound=Layer)
EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class FilterOn(Filter):
    """A filter bank on a graph of its own."""

    graph: Graph | None = None


@dataclass(frozen=True, eq=False)
class HopMixtureOn(HopMixture):
    """An activation on a graph of its own."""

    graph: Graph


def resolve_graph(layer: Layer, graph: Graph) -> Graph:
    """Return the graph that a layer acts on: its own, or that of the network."""
    return getattr(layer, "graph", None) or graph


def get_branches(layer: Sum) -> tuple[Blocks, ...]:
    """Return the chains that a sum adds, of which all layers are known."""
    return cast("tuple[Blocks, ...]", layer.branches)


def split_readout(layers: tuple[Each, ...]) -> tuple[tuple[Each, ...], Linear | None]:
    """Split layers into those before a final linear map, and that map or None."""
    if layers and isinstance(layers[-1], Linear):
        return layers[:-1], layers[-1]
    return layers, None


def widths(layers: Blocks, features: int) -> Iterator[int]:
    """Yield the output features of each layer."""
    for layer in layers:
        features = layer.out_features or features
        yield features


@dataclass(frozen=True, eq=False)
class Hop:
    """One term of an activation, counted from 0: the signals ``(..., N, F)`` that are read, and the neighbourhoods."""

    number: int
    signals: tuple[Tensor, ...]
    neighborhoods: Neighborhoods
    closed: bool  # whether a node reads its own value as well

    def reduce(self, function: Callable[[Tensor, Tensor], tuple[Tensor, ...]], entries: int) -> tuple[Tensor, ...]:
        """Apply a function to the nodes ``(n,)`` and their neighbours ``(n, d)``, degree by degree, 0 included.

        Every result has the nodes in its second last dimension, ``(..., n, F)``; they come back in the order of all
        nodes. ``entries`` numbers are held for each neighbour, which limits the nodes of one batch.
        """
        parts: list[tuple[Tensor, ...]] = []
        for nodes, table in self.neighborhoods.tables():
            if self.closed:
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
            step = max(1, MAX_ENTRIES // max(1, entries * table.size(-1)))
            parts += [function(*chunk) for chunk in zip(nodes.split(step), table.split(step), strict=True)]
        return tuple(torch.cat(column, dim=-2)[..., self.neighborhoods.rank, :] for column in zip(*parts, strict=True))

    def reduce_one(self, function: Callable[[Tensor, Tensor], Tensor], entries: int) -> Tensor:
        """Apply a function with one result."""
        return self.reduce(lambda nodes, table: (function(nodes, table),), entries)[0]


def iterate_hops(layer: HopMixture, graph: Graph, *signals: Tensor) -> Iterator[Hop]:
    """Yield the hops of an activation: :math:`S^k x` at neighbours (graph-adaptive), or x at k-hop neighbours."""
    graph = resolve_graph(layer, graph)
    for number in range(layer.hops):
        if layer.is_shifted(number):
            signals = tuple(shift(x, graph) for x in signals)
        if layer.reads != "hops" or number == 0:
            yield Hop(number, signals, graph.incoming, layer.closed)
        else:
            yield Hop(number, signals, graph.hop_pattern(number + 1, closed=layer.closed), False)


def evaluate(layers: Blocks, x: Tensor, graph: Graph) -> Tensor:
    """Evaluate layers on signals ``(..., N, F)`` in float64; gradients flow through."""
    for layer in layers:
        own = resolve_graph(layer, graph)
        match layer:
            case Filter():
                x = graph_filter(x, own, layer.taps)
            case Linear():
                x = x @ layer.weight.T
            case Pointwise():
                x = find_rule(layer).apply(x)
            case LayerNorm():  # without the squares of large values, which overflow
                x, _ = layer_norm_box(layer, x, torch.zeros_like(x))
            case Sum():
                x = torch.stack([evaluate(branch, x, graph) for branch in get_branches(layer)]).sum(0)
            case HopMixture():
                function = localized if layer.reads == "hops" else graph_adaptive
                options: dict[str, Any] = {"closed": layer.closed, "parameters": layer.parameters}
                options |= {"unshifted": True} if layer.reads == "unshifted" else {}
                x = function(x, own, layer.beta, layer.weights, layer.operation, **options)
        if isinstance(layer, Filter | Linear) and layer.bias is not None:
            x = x + layer.bias
    return x


def evaluate_with_error(layers: Blocks, x: Tensor, graph: Graph, error: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Evaluate layers on signals ``(..., N, F)``, and bound the rounding errors of the result."""
    error = torch.zeros_like(x) if error is None else error
    for layer in layers:
        if isinstance(layer, Sum):
            branches = [evaluate_with_error(branch, x, graph, error) for branch in get_branches(layer)]
            x, error = (torch.stack(parts).sum(0) for parts in zip(*branches, strict=True))
            error = error + 2 * len(branches) * EPSILON * sum(values.abs() for values, _ in branches)
        else:
            error = propagate_error(layer, x.abs(), error, graph)
            x = evaluate((layer,), x, graph)
    return x, error


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
            matrix = abs(to_scipy(graph))
            total = layer.beta.abs() * near
            for hop in iterate_hops(layer, graph):
                if layer.is_shifted(hop.number):
                    near = shift_by(matrix, near)
                entries = near[..., 0, :].numel()
                largest = hop.reduce_one(partial(OPERATIONS[layer.operation].move, layer, near), entries)
                total = total + hop_factor * layer.weights[hop.number].abs() * largest
                longest += 3 * (degree if hop.number == 0 else graph.num_nodes)
    return total, longest


def through_weights(near: Tensor, weight: Tensor) -> Tensor:
    """Apply a linear map ``(F_in, F_out)`` without signs; a single feature represents all if they are equal."""
    return near @ weight if near.size(-1) == weight.size(0) else near * weight.sum(0)


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
            if layer.operation is STD:  # the rounding of squares, whose mean is at least 1 / 2d of the largest one
                steps += 8 * math.ceil(largest_neighborhood(layer, graph) ** 1.5)
        case Sum():
            raise AssertionError("the branches of a sum are walked through one by one")
    rounded = propagate_magnitude(layer, size, graph)[0]
    rounded = rounded if is_difference else rounded + size_at_zero(layer, width, graph)
    return propagate_magnitude(layer, error, graph)[0] + steps * EPSILON * rounded


def walk_errors(
    layers: Blocks, size: Tensor, error: Tensor, graph: Graph, *, is_difference: bool = False
) -> tuple[Tensor, Tensor]:
    """Bound values and rounding errors ``(N, O)`` after layers, from bounds ``(N, F)`` before them.

    As a difference, ``size`` bounds the change of the inputs, and the results are those of the change of outputs.
    """
    for layer in layers:
        if isinstance(layer, Sum):
            branches = [
                walk_errors(branch, size, error, graph, is_difference=is_difference) for branch in get_branches(layer)
            ]
            size, error = (torch.stack(parts).sum(0) for parts in zip(*branches, strict=True))
            error = error + 2 * len(branches) * EPSILON * size
        else:
            error = propagate_error(layer, size, error, graph, is_difference=is_difference)
            size = propagate_magnitude(layer, size, graph)[0] + (
                0.0 if is_difference else size_at_zero(layer, size.size(-1), graph)
            )
    return size, error


def propagate_through_rows(layer: Filter, errors: Tensor, graph: Graph) -> Tensor:
    """Multiply errors ``(C, B, N, F)`` by the rows of a filter bank in magnitude, with an allowance for rounding."""
    total = propagate_error(layer, errors, torch.zeros_like(errors), graph, is_difference=True)
    size, sizes = graph.num_nodes * layer.taps.size(1), errors.flatten(2)
    step = max(1, MAX_ENTRIES // (graph.num_nodes * max(layer.taps.shape[1:])))
    for first in range(0, size, step):  # as many inputs at once as fit into memory
        columns = torch.zeros(min(step, size - first), size, dtype=torch.float64)
        columns.diagonal(first).fill_(1.0)
        rows = graph_filter(columns.view(-1, graph.num_nodes, layer.taps.size(1)), graph, layer.taps)
        total = total + torch.einsum("cbm,mnf->cbnf", sizes[..., first : first + len(rows)], rows.abs())
    return total
