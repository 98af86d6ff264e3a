"""Differentiable passes over the neighbours.

Gradients are attached twice, from the same formulas: to the operators, the form that `torch.compile` traces, and as
`torch.autograd.Function` around them, the form that `torch.func.grad` and `vmap` of it can look into.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.kernels import operators
from graphact.kernels.backends import backend, requested
from graphact.kernels.reference import Lists, chosen_at, take

PER_DIRECTION = len(Lists._fields)
NO_GRADIENTS = [None] * PER_DIRECTION
MOST_NODES = 2**31 - 1


def _with_backend_of_forward(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Autograd may run a backward pass in a thread of its own, which knows nothing of a ``with backend(...)``."""

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Tensor) -> Any:
        with backend(ctx.backend):
            return backward(ctx, *gradients)

    return run


def shift(x: Tensor, graph: Graph) -> Tensor:
    """The off-diagonal part of ``S x``."""
    run = torch.ops.graphact.shift if torch.compiler.is_compiling() else _Shift.apply
    incoming, outgoing = list(Lists.of(graph.incoming)), list(Lists.of(graph.outgoing))
    return run(x, graph.weight, graph.outgoing_weight, incoming, outgoing)


def select(
    x: Tensor, labels: Tensor | None, neighborhoods: Neighborhoods, op: str, closed: bool
) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    run = torch.ops.graphact.select if torch.compiler.is_compiling() else _Select.apply
    return run(x, labels, list(Lists.of(neighborhoods)), op, closed)


def spread(x: Tensor, incoming: Neighborhoods, outgoing: Neighborhoods) -> Tensor:
    """See :func:`graphact.kernels.reference.spread`."""
    run = torch.ops.graphact.spread if torch.compiler.is_compiling() else _Spread.apply
    return run(x, list(Lists.of(incoming)), list(Lists.of(outgoing)))


def hop(x: Tensor, graph: Graph, op: str, closed: bool, shifting: bool) -> tuple[Tensor, Tensor]:
    """Values and shift of :func:`graphact.kernels.reference.hop`; edge weights get no gradient from it."""
    run = torch.ops.graphact.hop if torch.compiler.is_compiling() else _Hop.apply
    incoming, outgoing = list(Lists.of(graph.incoming)), list(Lists.of(graph.outgoing))
    weights = graph.weight.detach(), graph.outgoing_weight.detach()
    # compiled code must not depend on a number that differs from graph to graph
    longest = MOST_NODES if torch.compiler.is_compiling() else graph.incoming.groups[-1][0]
    values, _, shifted = run(x, *weights, graph.places, incoming, outgoing, op, closed, shifting, longest)
    return values, shifted


# The adjoint of a shift is the shift with the transposed operator.


def _save_for_shift(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, turned_weight, incoming, outgoing = inputs
    ctx.backend = requested()
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight, turned_weight, *incoming, *outgoing)


def _shift_gradients(ctx: Any, grad: Tensor, shift: Any, weight_grad: Any) -> tuple[Tensor | None, Tensor | None]:
    x, weight, turned_weight, *lists = ctx.saved_tensors
    incoming, outgoing = lists[:PER_DIRECTION], lists[PER_DIRECTION:]
    grad_x = shift(grad, turned_weight, weight, outgoing, incoming) if ctx.needs_input_grad[0] else None
    grad_weight = weight_grad(grad, x, incoming).to(weight.dtype) if ctx.needs_input_grad[1] else None
    return grad_x, grad_weight


class _Shift(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save_for_shift)

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, turned_weight: Tensor, incoming: list[Tensor], outgoing: list[Tensor]
    ) -> Tensor:
        return torch.ops.graphact.shift(x, weight, turned_weight, incoming, outgoing)

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *_shift_gradients(ctx, grad, _Shift.apply, _ShiftWeightGrad.apply), None, None, None


class _ShiftWeightGrad(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, x: Tensor, incoming: list[Tensor]) -> Tensor:
        return torch.ops.graphact.shift_weight_grad(grad, x, incoming)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        grad, x, incoming = inputs
        ctx.backend = requested()
        ctx.save_for_backward(grad, x, incoming[0], incoming[1])

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        """Rarely needed (second derivatives with respect to edge weights), so edge by edge in plain torch."""
        grad, x, pointers, members = ctx.saved_tensors
        nodes = torch.arange(x.size(-2), device=x.device)
        rows = nodes.repeat_interleave(pointers.diff(), output_size=members.numel())
        weight = direction.unsqueeze(-1)
        to_grad = torch.zeros_like(x).index_add(-2, rows, weight * x.index_select(-2, members))
        to_x = torch.zeros_like(x).index_add(-2, members, weight * grad.index_select(-2, rows))
        return to_grad, to_x, None


operators._shift.register_autograd(
    lambda ctx, grad: (
        *_shift_gradients(ctx, grad, torch.ops.graphact.shift, torch.ops.graphact.shift_weight_grad),
        None,
        NO_GRADIENTS,
        NO_GRADIENTS,
    ),
    setup_context=_save_for_shift,
)


# The gradient of a selected value goes to the node it was selected from.


def _save_chosen(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.backend = requested()
    ctx.set_materialize_grads(False)  # else the labels would get a gradient of zeros as large as the signal
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


class _Select(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save_chosen)

    @staticmethod
    def forward(x: Tensor, labels: Tensor | None, lists: list[Tensor], op: str, closed: bool) -> tuple[Tensor, Tensor]:
        return torch.ops.graphact.select(x, labels, lists, op, closed)

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        (chosen,) = ctx.saved_tensors
        return None if grad is None else _Route.apply(grad, chosen), None, None, None, None


class _Route(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, chosen: Tensor) -> Tensor:
        return torch.ops.graphact.route(grad, chosen)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.backend = requested()
        ctx.save_for_backward(inputs[1])

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (chosen,) = ctx.saved_tensors
        return take(direction, chosen, 0.0), None


operators._select.register_autograd(
    lambda ctx, grad, _: (torch.ops.graphact.route(grad, *ctx.saved_tensors), None, NO_GRADIENTS, None, None),
    setup_context=_save_chosen,
)


# The gradient of a squared distance flows to both ends of the edge.


def _save_all(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *signals, incoming, outgoing = inputs
    ctx.backend = requested()
    ctx.save_for_backward(*signals, *incoming, *outgoing)


def _saved(ctx: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    signals_and_lists = list(ctx.saved_tensors)
    outgoing = signals_and_lists[-PER_DIRECTION:]
    incoming = signals_and_lists[-2 * PER_DIRECTION : -PER_DIRECTION]
    return signals_and_lists[: -2 * PER_DIRECTION], incoming, outgoing


class _Spread(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save_all)

    @staticmethod
    def forward(x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
        return torch.ops.graphact.spread(x, incoming, outgoing)

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,), incoming, outgoing = _saved(ctx)
        return 2 * _Pull.apply(grad, x, incoming, outgoing), None, None


class _Pull(torch.autograd.Function):
    """Bilinear in both signals; its own gradients are inner products of differences, and pulls again."""

    generate_vmap_rule = True
    setup_context = staticmethod(_save_all)

    @staticmethod
    def forward(grad: Tensor, x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
        return torch.ops.graphact.pull(grad, x, incoming, outgoing)

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (grad, x), incoming, outgoing = _saved(ctx)
        scale = _ratio_of_sizes(x, direction)
        together = _Spread.apply(scale * direction + x, incoming, outgoing)
        apart = _Spread.apply(scale * direction - x, incoming, outgoing)
        return (together - apart) / (4 * scale), _Pull.apply(grad, direction, incoming, outgoing), None, None


def _ratio_of_sizes(x: Tensor, direction: Tensor) -> Tensor:
    """What makes both equally large, so that their sum and difference keep the digits of both."""
    sizes = x.detach().abs().mean(), direction.detach().abs().mean()
    return torch.where((sizes[0] > 0) & (sizes[1] > 0), sizes[0] / sizes[1], 1.0)


def _spread_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (x,), incoming, outgoing = _saved(ctx)
    return 2 * torch.ops.graphact.pull(grad, x, incoming, outgoing), NO_GRADIENTS, NO_GRADIENTS


operators._spread.register_autograd(_spread_backward, setup_context=_save_all)


# A hop is a choice (or a squared distance) and a shift of one signal, so its gradient is the sum of both; for a choice,
# one look at the neighbours gives that, too.


def _save_for_hop(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    x, weight, turned_weight, places, incoming, outgoing, ctx.op, ctx.closed, ctx.shifting, _ = inputs
    ctx.backend = requested()
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[1])
    kept = x if ctx.op == "kernel" else output[1]
    ctx.save_for_backward(kept, weight, turned_weight, places, *incoming, *outgoing)


def _hop_gradient(
    ctx: Any, grad: Tensor | None, grad_shifted: Tensor | None, turn: Any, shift: Any, pull: Any
) -> Tensor | None:
    (kept, weight, turned_weight, places), incoming, outgoing = _saved(ctx)
    grad_shifted = grad_shifted if ctx.shifting else None
    if grad is not None and ctx.op != "kernel":
        graph = (weight, turned_weight, places, incoming, outgoing)
        return turn(grad, kept, grad_shifted, *graph, ctx.closed)
    total = None if grad is None else 2 * pull(grad, kept, incoming, outgoing)
    if grad_shifted is None:
        return total
    back = shift(grad_shifted, turned_weight, weight, outgoing, incoming)
    return back if total is None else total + back


class _Hop(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save_for_hop)

    @staticmethod
    def forward(
        x: Tensor,
        weight: Tensor,
        turned_weight: Tensor,
        places: Tensor,
        incoming: list[Tensor],
        outgoing: list[Tensor],
        op: str,
        closed: bool,
        shifting: bool,
        longest: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.ops.graphact.hop(
            x, weight, turned_weight, places, incoming, outgoing, op, closed, shifting, longest
        )

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, grad: Tensor, _: Any, grad_shifted: Tensor) -> tuple[Tensor | None, ...]:
        gradient = _hop_gradient(ctx, grad, grad_shifted, _Turn.apply, _Shift.apply, _Pull.apply)
        return gradient, *[None] * 9


class _Turn(torch.autograd.Function):
    """Linear in both gradients: its adjoint takes the chosen values and the shift of a direction."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        chosen: Tensor,
        grad_shifted: Tensor | None,
        weight: Tensor,
        turned_weight: Tensor,
        places: Tensor,
        incoming: list[Tensor],
        outgoing: list[Tensor],
        closed: bool,
    ) -> Tensor:
        graph = (weight, turned_weight, places, incoming, outgoing)
        return torch.ops.graphact.turn(grad, chosen, grad_shifted, *graph, closed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, chosen, grad_shifted, weight, turned_weight, _, incoming, outgoing, ctx.closed = inputs
        ctx.backend, ctx.shifting = requested(), grad_shifted is not None
        ctx.save_for_backward(chosen, weight, turned_weight, *incoming, *outgoing)

    @staticmethod
    @_with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (chosen, weight, turned_weight), incoming, outgoing = _saved(ctx)
        to_grad = take(direction, chosen_at(chosen, Lists(*incoming), ctx.closed), 0.0)
        graph = (weight, turned_weight, incoming, outgoing)
        to_shifted = _Shift.apply(direction, *graph) if ctx.shifting else None
        return to_grad, None, to_shifted, *[None] * 6


operators._hop.register_autograd(
    lambda ctx, grad, _, grad_shifted: (
        _hop_gradient(
            ctx, grad, grad_shifted, torch.ops.graphact.turn, torch.ops.graphact.shift, torch.ops.graphact.pull
        ),
        None,
        None,
        None,
        NO_GRADIENTS,
        NO_GRADIENTS,
        None,
        None,
        None,
        None,
    ),
    setup_context=_save_for_hop,
)
