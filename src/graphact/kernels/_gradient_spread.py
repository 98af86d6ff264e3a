"""The gradient of a squared distance flows to both ends of the edge."""

from typing import Any

import torch
from torch import Tensor

from graphact.kernels import operators
from graphact.kernels._gradient import NO_GRADIENTS, save_all, saved, with_backend_of_forward


class Spread(torch.autograd.Function):
    generate_vmap_rule = True
    setup_context = staticmethod(save_all)

    @staticmethod
    def forward(x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
        return torch.ops.graphact.spread(x, incoming, outgoing)

    @staticmethod
    @with_backend_of_forward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,), incoming, outgoing = saved(ctx)
        return 2 * Pull.apply(grad, x, incoming, outgoing), None, None


class Pull(torch.autograd.Function):
    """Bilinear in both signals; its own gradients are inner products of differences, and pulls again."""

    generate_vmap_rule = True
    setup_context = staticmethod(save_all)

    @staticmethod
    def forward(grad: Tensor, x: Tensor, incoming: list[Tensor], outgoing: list[Tensor]) -> Tensor:
        return torch.ops.graphact.pull(grad, x, incoming, outgoing)

    @staticmethod
    @with_backend_of_forward
    def backward(ctx: Any, direction: Tensor) -> tuple[Tensor | None, ...]:
        (grad, x), incoming, outgoing = saved(ctx)
        scale = _ratio_of_sizes(x, direction)
        together = Spread.apply(scale * direction + x, incoming, outgoing)
        apart = Spread.apply(scale * direction - x, incoming, outgoing)
        return (together - apart) / (4 * scale), Pull.apply(grad, direction, incoming, outgoing), None, None


def _ratio_of_sizes(x: Tensor, direction: Tensor) -> Tensor:
    """What makes both equally large, so that their sum and difference keep the digits of both."""
    sizes = x.detach().abs().mean(), direction.detach().abs().mean()
    return torch.where((sizes[0] > 0) & (sizes[1] > 0), sizes[0] / sizes[1], 1.0)


def _spread_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    (x,), incoming, outgoing = saved(ctx)
    return 2 * torch.ops.graphact.pull(grad, x, incoming, outgoing), NO_GRADIENTS, NO_GRADIENTS


operators._spread.register_autograd(_spread_backward, setup_context=save_all)
