"""The gradient of a selected value goes to the node it was selected from."""

from typing import Any

import torch
from torch import Tensor

from graphact.kernels import operators
from graphact.kernels._gradient import NO_GRADIENTS, with_backend_of_forward
from graphact.kernels.backends import requested
from graphact.kernels.reference import take


def _save_chosen(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.backend = requested()
    ctx.set_materialize_grads(False)  # else the labels would get a gradient of zeros as large as the signal
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1])


class Select(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(_save_chosen)

    @staticmethod
    def forward(x: Tensor, labels: Tensor | None, lists: list[Tensor], op: str, closed: bool) -> tuple[Tensor, Tensor]:
        return torch.ops.graphact.select(x, labels, lists, op, closed)

    @staticmethod
    @with_backend_of_forward
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        (chosen,) = ctx.saved_tensors
        return None if grad is None else Route.apply(grad, chosen), None, None, None, None


class Route(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(grad: Tensor, chosen: Tensor) -> Tensor:
        return torch.ops.graphact.route(grad, chosen)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.backend = requested()
        ctx.save_for_backward(inputs[1])

    @staticmethod
    @with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (chosen,) = ctx.saved_tensors
        return take(direction, chosen, 0.0), None


operators._select.register_autograd(
    lambda ctx, grad, _: (torch.ops.graphact.route(grad, *ctx.saved_tensors), None, NO_GRADIENTS, None, None),
    setup_context=_save_chosen,
)
