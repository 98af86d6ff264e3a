"""The last step of an activation: the pointwise term and the terms of all hops, mixed."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphact.kernels.backends import implementation

FUSED = (torch.float32, torch.float64)
MOST_FUSED_TERMS = 2


def mix_terms(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """``beta * ReLU(own) + sum_k weights[k] * values[k]`` with coefficients of its own for each replica.

    Args:
        own: ``(R, ..., F)``.
        values: K tensors of the same shape.
        beta: ``(R,)``.
        weights: ``(R, K)`` or ``(R, K, F)``.
    """
    if own.dtype in FUSED and len(values) <= MOST_FUSED_TERMS and own.numel() > 0 and not _is_traced():
        backend = implementation(own)
        if hasattr(backend, "mix"):
            return _Mix.apply(backend, own, beta, weights, *values)
    return mix_plainly(own, values, beta, weights)


def mix_plainly(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """The same, term by term."""
    shape = (len(beta), *[1] * (own.dim() - 2), -1)
    out = beta.view(shape) * torch.relu(own)
    for hop, value in enumerate(values):
        out = out + weights[:, hop].reshape(shape) * value
    return out


def _is_traced() -> bool:
    """Whether a transformation of torch looks inside: it would rather see the single steps."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


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
            mixed = mix_plainly(own, values, beta, weights)
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            found = iter(torch.autograd.grad(mixed, wanted, grad, create_graph=True))
            return None, *(next(found) if tensor.requires_grad else None for tensor in inputs)
        grad_own, grad_values, grad_beta, grad_weights = ctx.backend.mix_gradients(grad, own, values, beta, weights)
        return None, grad_own, grad_beta, grad_weights, *grad_values
