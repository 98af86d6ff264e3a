"""A whole activation as one operator, for compiled code, where the compiler does not see the kernels themselves.

That is on a CPU, and on a GPU for medians, large signals and graphs with hubs; see `triton/inlined.py`. The operator
takes the handle of the graph and runs the plans of eager code, forward and backward: with prepared lists, recorded
launches and one function call on small graphs. The compiler sees one node, which CUDA graphs capture.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph import Graph
from graphact.graph.handles import find_object
from graphact.kernels.activation_plan import ActivationPlan, Gamma, select_plan
from graphact.kernels.dispatch import takes_handles
from graphact.kernels.ops import LIBRARY
from graphact.kernels.reference import slot_dtype

OPTIONS = "SymInt graph, str op, bool closed, bool shifted, bool stacked, ScalarType slot"
INPUTS = "Tensor x, Tensor beta, Tensor weights, Tensor? gamma, float? width"
LIBRARY.define(f"activation({INPUTS}, {OPTIONS}) -> (Tensor, Tensor[])")
LIBRARY.define(
    f"activation_backward(Tensor grad, {INPUTS}, Tensor[] saved, {OPTIONS}, bool needs_x) -> "
    "(Tensor, Tensor, Tensor, Tensor)"
)
MAX_STACKED = 2**20  # numbers of a signal, up to which its saved values are one tensor for all hops


def is_compiled_whole(x: Tensor, graph: Graph, op: str) -> bool:
    """Return true in compiled code for what the operator computes; see :func:`select_plan` for the exceptions."""
    if not takes_handles(graph) or x.dtype != graph.dtype or graph.weight.requires_grad:
        return False
    if x.dtype in HALF_PRECISION and (op == "kernel" or x.device.type == "cpu"):
        return False
    return graph.diagonal is None or not graph.diagonal.requires_grad


def compiled_activation(
    x: Tensor, graph: Graph, beta: Tensor, weights: Tensor, gamma: Gamma, op: str, closed: bool, shifted: bool
) -> Tensor:
    """Evaluate an activation, see :func:`graphact.kernels.activation_plan.hop_mixture`, in compiled code."""
    trained, width = (gamma, None) if isinstance(gamma, Tensor) else (None, gamma)
    stacked = x.device.type == "cpu" and x.numel() <= MAX_STACKED
    options = (graph.key.size(0), op, closed, shifted, stacked, slot_dtype(graph.key.size(1)))
    out: Tensor = torch.ops.graphact.activation(x, beta, weights, trained, width, *options)[0]
    return out


def evaluate(
    x: Tensor, beta: Tensor, weights: Tensor, gamma: Tensor | None, width: float | None, *options: Any
) -> tuple[Tensor, list[Tensor]]:
    """Return the result and what the backward pass needs, either a tensor for each hop or one for all hops."""
    x, hops, is_stacked = x.contiguous(), weights.size(0), options[4]
    if x.numel() == 0:
        return fake(x, beta, weights, gamma, width, *options)
    plan = plan_of(x, hops, *options)
    out, saved = plan.forward(x, beta, weights, width if gamma is None else gamma)
    packed = plan.pack(saved)
    if plan.stacks:
        packed = packed[: 2 if gamma is None else 3]
        return out, packed if is_stacked else [part.clone() for kind in packed for part in kind]
    if is_stacked:
        return out, [torch.stack(packed[at : at + hops]) for at in range(0, len(packed), hops)]
    return out, [part.clone() if part is x else part for part in packed]


def evaluate_backward(
    grad: Tensor, x: Tensor, beta: Tensor, weights: Tensor, gamma: Tensor | None, width: float | None,
    saved: Sequence[Tensor], *options: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of x, beta, weights and gamma, the last one empty unless it is trained."""
    x, grad, hops, needs_x = x.contiguous(), grad.contiguous(), weights.size(0), options[-1]
    if x.numel() == 0:
        return *(torch.zeros_like(part) for part in (x, beta, weights)), no_gradient(x, gamma).zero_()
    plan, is_stacked = plan_of(x, hops, *options), options[4]
    if is_stacked and not plan.stacks:
        saved = [part for kind in saved for part in kind]
    elif plan.stacks and not is_stacked:
        saved = [torch.stack([*saved[at : at + hops]]) for at in range(0, len(saved), hops)]
    kept, width_or_gamma = plan.unpack(saved), width if gamma is None else gamma
    *grads, grad_gamma = plan.backward(grad, x, beta, weights, width_or_gamma, kept, needs_x)
    return *grads, no_gradient(x, gamma) if gamma is None or grad_gamma is None else grad_gamma


def plan_of(x: Tensor, hops: int, handle: int, op: str, closed: bool, shifted: bool, *_: Any) -> ActivationPlan:
    """Return the plan of eager code for signals like ``x``."""
    graph: Graph = find_object(handle)
    return select_plan(x, graph, op, hops, closed, shifted) or ActivationPlan(graph, x, op, closed, shifted)


def no_gradient(x: Tensor, gamma: Tensor | None) -> Tensor:
    """Return a new tensor of the shape of ``gamma``, or an empty one, as operators must not return None."""
    return x.new_empty(0 if gamma is None else gamma.shape)


def fake(x: Tensor, _: Tensor, weights: Tensor, gamma: Tensor | None, *options: Any) -> tuple[Tensor, list[Tensor]]:
    """Empty results: terms, then slots or, for the Gaussian kernel, signals and the sums for a width in training."""
    hops, (_, _, op, _, _, is_stacked, slot) = weights.size(0), options
    kinds = [x.dtype, x.dtype if op == "kernel" else slot] + ([x.dtype] if gamma is not None else [])
    if is_stacked:
        saved = [x.new_empty((hops, *x.shape), dtype=dtype) for dtype in kinds]
    else:
        saved = [x.new_empty(x.shape, dtype=dtype) for dtype in kinds for _ in range(hops)]
    return x.new_empty(x.shape), saved


def fake_backward(
    _: Tensor, x: Tensor, beta: Tensor, weights: Tensor, gamma: Tensor | None, *__: Any
) -> tuple[Tensor, ...]:
    """Empty gradients."""
    return *(part.new_empty(part.shape) for part in (x, beta, weights)), no_gradient(x, gamma)


def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, list[Tensor]]) -> None:
    """Save the inputs and what the forward pass kept."""
    x, beta, weights, gamma, ctx.width, *ctx.options = inputs
    ctx.save_for_backward(x, beta, weights, gamma, *output[1])
    ctx.set_materialize_grads(False)


def gradients(ctx: Any, grad: Tensor | None, _: Any) -> tuple[Any, ...]:
    """The gradients of all inputs of the operator."""
    x, beta, weights, gamma, *saved = ctx.saved_tensors
    rest = (None,) * (1 + len(ctx.options))
    if grad is None:
        return None, None, None, None, *rest
    with torch.no_grad():
        found = torch.ops.graphact.activation_backward(
            grad, x, beta, weights, gamma, ctx.width, saved, *ctx.options, ctx.needs_input_grad[0]
        )
    if torch.is_grad_enabled() and torch._C._len_torch_dispatch_stack() == 0:  # create_graph=True
        found = DifferentiatedOnce.apply(*found, grad, x, beta, weights, gamma)
    return *found[:3], None if gamma is None else found[3], *rest


class DifferentiatedOnce(torch.autograd.Function):
    """The four gradients, as functions of the inputs: torch would take them for constants."""

    @staticmethod
    def forward(_: Any, *given: Any) -> tuple[Tensor, ...]:
        return tuple(part.view_as(part) for part in given[:4])

    @staticmethod
    def backward(_: Any, *__: Any) -> Any:
        raise NotImplementedError("compiled activations have no second derivatives: differentiate eager code twice")


LIBRARY.impl("activation", evaluate, "CompositeExplicitAutograd")
LIBRARY.impl("activation_backward", evaluate_backward, "CompositeExplicitAutograd")
torch.library.register_fake("graphact::activation", fake, lib=LIBRARY)
torch.library.register_fake("graphact::activation_backward", fake_backward, lib=LIBRARY)
torch.library.register_autograd("graphact::activation", gradients, setup_context=set_up, lib=LIBRARY)
