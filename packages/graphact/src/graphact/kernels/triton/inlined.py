"""Triton kernels that Inductor inlines (:func:`torch.library.triton_op`): compiled code launches them by itself.

They are used where one launch walks all neighbour lists (:attr:`graphact.graph.Neighborhoods.fits_one_launch`). The
grid then depends on the numbers of nodes and features alone, so that one compilation serves all such graphs.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import triton_op

from graphact.graph.neighborhoods import MAX_DEGREE_OF_ONE_LAUNCH
from graphact.kernels import triton as passes
from graphact.kernels.autograd import names_of
from graphact.kernels.graph_tensors import GraphTensors, OneLaunchLists
from graphact.kernels.reference import SLOTS, wanted_results


@triton_op("graphact::inlined_functions", mutates_args=())
def inlined_functions(
    x: Tensor, weight: Tensor, graph: Sequence[Tensor], ops: str, closed: bool, shifting: bool,
    symmetric: bool,  # noqa: ARG001 (for the gradient)
) -> list[Tensor]:  # fmt: skip
    """See :func:`graphact.kernels.reference.neighborhood_functions`; the results in the order of their types.

    ``graph`` holds the transposed weights, the incoming slots and the lists in both directions.
    """
    found = passes.neighborhood_functions(
        x, graph_of(weight, graph), names_of(ops), closed, shifting, MAX_DEGREE_OF_ONE_LAUNCH
    )
    return list(found.values())


@triton_op("graphact::inlined_functions_backward", mutates_args=())
def inlined_functions_backward(
    grads: Sequence[Tensor], grad_names: str, saved: Sequence[Tensor], saved_names: str, weight: Tensor,
    graph: Sequence[Tensor], closed: bool,
) -> Tensor:  # fmt: skip
    """See :func:`graphact.kernels.reference.neighborhood_functions_backward`."""
    given = dict(zip(names_of(grad_names), grads, strict=True))
    kept = dict(zip(names_of(saved_names), saved, strict=True))
    return passes.neighborhood_functions_backward(given, kept, graph_of(weight, graph), closed)


@triton_op("graphact::inlined_sq_diff_backward", mutates_args=())
def inlined_sq_diff_backward(grad: Tensor, x: Tensor, graph: Sequence[Tensor], symmetric: bool) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff_backward`."""
    lists = graph_of(x, graph).lists
    return passes.sum_sq_diff_backward(grad, x, lists.incoming, lists.incoming if symmetric else lists.outgoing)


def graph_of(weight: Tensor, graph: Sequence[Tensor]) -> GraphTensors:
    """Rebuild the bundle from the flat list of an operator."""
    weight_t, slot, *lists = graph
    incoming: Any = OneLaunchLists(*lists[:2])
    outgoing: Any = OneLaunchLists(*lists[2:])
    return GraphTensors(incoming, outgoing, weight, weight_t, slot)


def set_up(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    """Save what the backward pass needs."""
    x, weight, graph, ops, ctx.closed, shifting, ctx.symmetric = inputs
    ctx.dtype, ctx.names = x.dtype, list(wanted_results(x, names_of(ops), shifting, MAX_DEGREE_OF_ONE_LAUNCH))
    found = dict(zip(ctx.names, output, strict=True))
    ctx.kept = [name for name in SLOTS if name in found] + (["mean", "std"] if "std" in found else [])
    saved = [found[name] for name in ctx.kept]
    if "std" in found or "kernel" in found:
        ctx.kept.append("x")
        saved.append(x)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(weight, *graph, *saved)


def gradients(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the signal."""
    count = len(ctx.saved_tensors) - len(ctx.kept)
    (weight, *graph), saved = ctx.saved_tensors[:count], dict(zip(ctx.kept, ctx.saved_tensors[count:], strict=True))
    given = {name: grad for name, grad in zip(ctx.names, grads, strict=True) if grad is not None and name not in SLOTS}
    distance, parts = given.pop("kernel", None), []
    if given:
        kept = {name: tensor for name, tensor in saved.items() if name.partition(" ")[0] in given}
        if "std" in given:
            kept |= {name: saved[name] for name in ("mean", "std", "x")}
        names = (",".join(given), ",".join(kept))
        tensors = [*given.values()], [*kept.values()]
        found = torch.ops.graphact.inlined_functions_backward(
            tensors[0], names[0], tensors[1], names[1], weight, graph, ctx.closed
        )
        parts.append(found.to(ctx.dtype))
    if distance is not None:
        parts.append(2 * torch.ops.graphact.inlined_sq_diff_backward(distance, saved["x"], graph, ctx.symmetric))
    return sum(parts[1:], parts[0]) if parts else None, None, [None] * len(graph), None, None, None, None


inlined_functions.register_autograd(gradients, setup_context=set_up)


@triton_op("graphact::inlined_mix", mutates_args=())
def inlined_mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """See :func:`graphact.kernels.autograd.mix`."""
    return passes.mix(own, values, beta, weights)


@triton_op("graphact::inlined_mix_backward", mutates_args=())
def inlined_mix_backward(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor
) -> list[Tensor]:
    """The gradients of own, beta and weights, then those of the values."""
    grad_own, grad_values, grad_beta, grad_weights = passes.mix_backward(grad, own, values, beta, weights)
    return [grad_own, grad_beta, grad_weights, *grad_values]


def set_up_mix(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 (torch names it)
    """Save the inputs."""
    own, values, beta, weights = inputs
    ctx.save_for_backward(own, beta, weights, *values)


def mix_gradients(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """The gradients of all inputs."""
    own, beta, weights, *values = ctx.saved_tensors
    grad_own, grad_beta, grad_weights, *rest = torch.ops.graphact.inlined_mix_backward(grad, own, values, beta, weights)
    return grad_own, rest, grad_beta, grad_weights


inlined_mix.register_autograd(mix_gradients, setup_context=set_up_mix)
