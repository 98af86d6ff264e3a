"""A hop is a choice (or a squared distance) and a shift of one signal, so its gradient is the sum of both.

For a choice, one look at the neighbours gives that, too.
"""

from typing import Any

import torch
from torch import Tensor

from graphact.kernels import operators
from graphact.kernels._gradient import NO_GRADIENTS, saved, with_backend_of_forward
from graphact.kernels._gradient_shift import Shift
from graphact.kernels._gradient_spread import Pull
from graphact.kernels.backends import requested
from graphact.kernels.reference import Lists, chosen_at, take


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
    (kept, weight, turned_weight, places), incoming, outgoing = saved(ctx)
    grad_shifted = grad_shifted if ctx.shifting else None
    if grad is not None and ctx.op != "kernel":
        graph = (weight, turned_weight, places, incoming, outgoing)
        return turn(grad, kept, grad_shifted, *graph, ctx.closed)
    total = None if grad is None else 2 * pull(grad, kept, incoming, outgoing)
    if grad_shifted is None:
        return total
    back = shift(grad_shifted, turned_weight, weight, outgoing, incoming)
    return back if total is None else total + back


class Hop(torch.autograd.Function):
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
    @with_backend_of_forward
    def backward(ctx: Any, grad: Tensor, _: Any, grad_shifted: Tensor) -> tuple[Tensor | None, ...]:
        gradient = _hop_gradient(ctx, grad, grad_shifted, Turn.apply, Shift.apply, Pull.apply)
        return gradient, *[None] * 9


class Turn(torch.autograd.Function):
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
    @with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (chosen, weight, turned_weight), incoming, outgoing = saved(ctx)
        to_grad = take(direction, chosen_at(chosen, Lists(*incoming), ctx.closed), 0.0)
        graph = (weight, turned_weight, incoming, outgoing)
        to_shifted = Shift.apply(direction, *graph) if ctx.shifting else None
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
