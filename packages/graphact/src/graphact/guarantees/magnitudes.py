r"""Sums of magnitudes, layer by layer: how far values can move when nothing cancels, and what rounding can lose.

Both take time that grows with the edges. A sum of n products is off by less than :math:`2 n \epsilon` times the sum of
their sizes; what came in with an error goes on as any other difference does.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.guarantees.description import Block, Blocks, branches_of, graph_of, hops_of, widths
from graphact.guarantees.pointwise import layer_norm_slope, rule_of
from graphact.guarantees.powers import matrix_of, to_torch
from graphact.guarantees.rules import OPERATIONS
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum
from graphact.spec.operations import KERNEL, LOG_MEAN_EXP

EPSILON = torch.finfo(torch.float64).eps


def magnitudes(layers: Blocks, features: int, graph: Graph, hop_factor: float = 1.0) -> tuple[Tensor, int]:
    """What each output ``(N, O)`` can move when all coefficients add up, in time that grows with the edges.

    Hops count ``hop_factor`` times. Beside it, the number of operations on the longest way through the network.
    Differentiable, where the arrays are. As long as all features of a node move alike, one column stands for them.
    """
    total = torch.ones(graph.num_nodes, 1, dtype=torch.float64)
    longest, width = features * graph.num_nodes, features
    for layer, next_width in zip(layers, widths(layers, features), strict=True):
        total, steps = magnitude_behind(layer, total, graph, hop_factor)
        longest, width = longest + steps + graph.num_nodes * width + width, next_width
    return total.expand(-1, width), longest


def magnitude_behind(layer: Block, near: Tensor, graph: Graph, hop_factor: float = 1.0) -> tuple[Tensor, int]:
    """How far outputs of a layer move when its inputs do by ``near`` ``(..., N, F)``; operations on the longest way.

    Inputs of which all features move alike may have F = 1.
    """
    graph = graph_of(layer, graph)
    degree = graph.incoming.max_degree + 1
    longest = near.numel() + degree + near.size(-1)
    match layer:
        case Filter():
            matrix = abs(matrix_of(graph))
            total = through_weights(near, layer.taps[0].abs())
            for tap in layer.taps[1:]:
                near = shift_by(matrix, near)
                total, longest = total + through_weights(near, tap.abs()), longest + degree + near.size(-1)
        case Linear():
            total = through_weights(near, layer.weight.abs().T)
        case Pointwise():
            total = rule_of(layer).steepest * near
        case LayerNorm():
            slope = layer_norm_slope(layer.features, layer.epsilon)
            total = slope * near.amax(-1, keepdim=True).expand(*near.shape[:-1], layer.features)
            total = total if layer.weight is None else total * layer.weight.abs()
            longest += 10 * layer.features
        case Sum():
            total = torch.zeros(())
            for branch in branches_of(layer):
                value = near
                for inner in branch:
                    value, steps = magnitude_behind(inner, value, graph, hop_factor)
                    longest += steps
                total = total + value
        case HopMixture():
            matrix = abs(matrix_of(graph)) if layer.reads == "shifted" else None
            total = layer.beta.abs() * near
            for hop in hops_of(layer, graph):
                if matrix is not None:
                    near = shift_by(matrix, near)
                entries = near[..., 0, :].numel()
                largest = hop.reduce_one(partial(OPERATIONS[layer.operation].largest, layer, near), entries)
                total = total + hop_factor * layer.weights[hop.number].abs() * largest
                longest += 3 * (degree if hop.number == 0 else graph.num_nodes)
    return total, longest


def through_weights(near: Tensor, weight: Tensor) -> Tensor:
    """Magnitudes behind a linear map ``(F_in, F_out)`` without signs; one feature stands for all that move alike."""
    return near @ weight if near.size(-1) == weight.size(0) else near * weight.sum(0)


def shift_by(matrix: Any, near: Tensor) -> Tensor:
    """A sparse matrix times signals ``(..., N, F)``; gradients flow through signals ``(N, F)``."""
    if near.requires_grad:
        return torch.sparse.mm(to_torch(matrix), near)
    if near.dim() == 2:
        return torch.from_numpy(matrix @ near.numpy())
    rows = near.movedim(-2, 0)
    return torch.from_numpy(matrix @ rows.flatten(1).numpy()).view(rows.shape).movedim(0, -2)


def error_behind(
    layer: Block, size: Tensor, error: Tensor, graph: Graph, columns: int = 0, *, of_differences: bool = False
) -> Tensor:
    """More than float64 can lose behind a layer, ``(..., N, F)``, that reads values of some ``size``, off by ``error``.

    The values may be forms with that many ``columns``, whose size is that of the centre and of all coefficients: then
    every value that a form stands for is within the error of the true one. Differences have no biases.
    """
    own = graph_of(layer, graph)
    degree, width = own.incoming.max_degree + 2, size.size(-1)
    moved, fixed = magnitude_behind(layer, size, graph)[0], torch.zeros((), dtype=torch.float64)
    match layer:
        case Filter() | Linear():
            steps = 2 * (width + 2 + (degree + width) * layer.exchanges)
            fixed = fixed if layer.bias is None else layer.bias.abs()
        case Pointwise():
            steps = 2 * columns + 20
            fixed = rule_of(layer).apply(torch.zeros(width, dtype=torch.float64)).abs()
        case LayerNorm():  # what is lost in front of the root counts with its slope, which is part of what moves
            steps = 4 * width + 2 * columns + 20
            fixed = math.sqrt(width) * (torch.ones(width).double() if layer.weight is None else layer.weight.abs())
            fixed = fixed if layer.bias is None else fixed + layer.bias.abs()
        case HopMixture():
            near = own.num_nodes if layer.reads == "hops" and layer.hops > 1 else degree
            steps = 6 * near + 2 * degree * layer.hops + 6 * columns + 20
            if layer.operation is KERNEL:  # what exponentials lose, whatever they are taken of
                fixed = layer.weights.abs().sum(0)
            elif layer.operation is LOG_MEAN_EXP:
                fixed = layer.weights.abs().sum(0) * layer.parameters["temperature"] * (1 + math.log(near))
        case Sum():
            raise AssertionError("the branches of a sum are walked through one by one")
    fixed = torch.zeros(()) if of_differences else fixed
    return magnitude_behind(layer, error, graph)[0] + steps * EPSILON * (moved + fixed)


def error_of_differences(layers: Blocks, size: Tensor, graph: Graph) -> Tensor:
    """More than float64 can lose of how outputs ``(N, O)`` move when inputs do by at most ``size`` ``(N, F)``."""
    return _walk_differences(layers, size, torch.zeros_like(size), graph)[1]


def _walk_differences(layers: Blocks, size: Tensor, error: Tensor, graph: Graph) -> tuple[Tensor, Tensor]:
    for layer in layers:
        if isinstance(layer, Sum):
            behind = [_walk_differences(branch, size, error, graph) for branch in branches_of(layer)]
            size, error = (torch.stack(parts).sum(0) for parts in zip(*behind, strict=True))
            error = error + 2 * len(behind) * EPSILON * size
        else:
            error = error_behind(layer, size, error, graph, of_differences=True)
            size = magnitude_behind(layer, size, graph)[0]
    return size, error


def count_nonlinear(layers: Blocks) -> int:
    """How many layers are no linear maps, those inside of sums included."""
    inside = [layer for each in layers if isinstance(each, Sum) for branch in branches_of(each) for layer in branch]
    outside = sum(isinstance(layer, Pointwise | HopMixture | LayerNorm) for layer in layers)
    return outside + (count_nonlinear(tuple(inside)) if inside else 0)
