"""The adjoint of a shift is the shift with the transposed operator."""

from typing import Any

import torch
from torch import Tensor

from graphact.kernels import operators
from graphact.kernels._gradient import NO_GRADIENTS, PER_DIRECTION, with_backend_of_forward
from graphact.kernels.backends import requested


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


class Shift(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save_for_shift)

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, turned_weight: Tensor, incoming: list[Tensor], outgoing: list[Tensor]
    ) -> Tensor:
        return torch.ops.graphact.shift(x, weight, turned_weight, incoming, outgoing)

    @staticmethod
    @with_backend_of_forward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return *_shift_gradients(ctx, grad, Shift.apply, ShiftWeightGrad.apply), None, None, None


class ShiftWeightGrad(torch.autograd.Function):
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
    @with_backend_of_forward
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
