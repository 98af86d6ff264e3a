"""The differentiable passes over the neighbours, as functions of a signal and a graph; `ops.py` has their rules."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.kernels import ops, reference
from graphact.kernels.backends import implementation
from graphact.kernels.graph_tensors import EdgeLists, GraphTensors
from graphact.kernels.operation import is_differentiated, is_traced

MOST_NODES = 2**31 - 1
FUSED_DTYPES, MOST_FUSED_TERMS = (torch.float32, torch.float64), 2  # of a mixing step in one pass


def shift(x: Tensor, graph: Graph) -> Tensor:
    """The off-diagonal part of ``S x``; edge weights get their gradient."""
    return ops.Shift.apply(x, graph.weight, graph.outgoing_weight, EdgeLists(graph.incoming, graph.outgoing))


def select(
    x: Tensor, source_index: Tensor | None, lists: Neighborhoods, op: str, closed: bool
) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    return ops.Select.apply(x, source_index, lists, op, closed)


def sum_sq_diff(x: Tensor, incoming: Neighborhoods, outgoing: Neighborhoods) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff`."""
    return ops.SumSqDiff.apply(x, EdgeLists(incoming, outgoing))


def fused_neighbor_pass(x: Tensor, graph: Graph, op: str, closed: bool, shifting: bool) -> tuple[Tensor, Tensor]:
    """Values and shift of :func:`graphact.kernels.reference.fused_neighbor_pass`; edge weights get no gradient."""
    # compiled code must not depend on a number that differs from graph to graph
    max_degree = MOST_NODES if torch.compiler.is_compiling() else graph.incoming.max_degree
    values, _, shifted = ops.FusedNeighborPass.apply(x, GraphTensors.of(graph), op, closed, shifting, max_degree)
    return values, shifted


def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """The last step of an activation, ``beta * ReLU(own) + sum_k weights[k] * values[k]``, for each replica.

    Args:
        own: ``(R, ..., F)``.
        values: K tensors of the same shape.
        beta: ``(R,)``.
        weights: ``(R, K)`` or ``(R, K, F)``.
    """
    fits = own.dtype in FUSED_DTYPES and len(values) <= MOST_FUSED_TERMS and own.numel() > 0
    if fits and not is_traced(own):
        backend = implementation(own)
        if hasattr(backend, "mix_backward"):
            if is_differentiated(own, beta, weights, *values):
                return _Mix.apply(backend, own, beta, weights, *values)
            return backend.mix(own, values, beta, weights)
    return reference.mix(own, values, beta, weights)


class _Mix(torch.autograd.Function):
    """One pass forward, one pass backward, where a backend has them."""

    @staticmethod
    def forward(ctx: Any, backend: Any, own: Tensor, beta: Tensor, weights: Tensor, *values: Tensor) -> Tensor:
        ctx.backend = backend
        ctx.save_for_backward(own, beta, weights, *values)
        return backend.mix(own, values, beta, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        own, beta, weights, *values = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            inputs = (own, beta, weights, *values)
            mixed = reference.mix(own, values, beta, weights)
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            found = iter(torch.autograd.grad(mixed, wanted, grad, create_graph=True))
            return None, *(next(found) if tensor.requires_grad else None for tensor in inputs)
        of_own, of_values, of_beta, of_weights = ctx.backend.mix_backward(grad, own, values, beta, weights)
        return None, of_own, of_beta, of_weights, *of_values
