"""The trained coefficients that localized and graph-adaptive activations share."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_companion, check_tensor
from graphact.kernels import autograd


def check_coefficients(beta: Any, weights: Any, x: Tensor) -> tuple[Tensor | float, Tensor]:
    """Return beta as a scalar and weights as ``(K,)`` or ``(K, F)``, both in the precision of ``x``."""
    if isinstance(beta, Tensor):
        if beta.numel() != 1:
            raise ValueError(f"beta must be a scalar, got the shape {tuple(beta.shape)}")
        beta = check_companion("beta", beta.reshape(()), x)
    elif isinstance(beta, bool) or not isinstance(beta, (int, float)):
        raise TypeError(f"beta must be a number or a scalar tensor, got {type(beta).__name__}")
    weights = check_companion("weights", check_tensor("weights", weights), x)
    fits = weights.dim() == 1 or (weights.dim() == 2 and weights.size(1) == x.size(-1))
    if not fits or weights.size(0) == 0:
        raise ValueError(
            f"weights must have the shape (K,) or (K, F) with K at least 1 and F = {x.size(-1)}, "
            f"the features of x, got {tuple(weights.shape)}"
        )
    return beta, weights


def mix(x: Tensor, terms: Sequence[Tensor], beta: Tensor | float, weights: Tensor) -> Tensor:
    """``beta * ReLU(x) + sum_k weights[k] * terms[k]``."""
    if not isinstance(beta, Tensor):
        beta = torch.tensor(beta, dtype=x.dtype, device=x.device)
    values = [term.unsqueeze(0) for term in terms]
    return autograd.mix(x.unsqueeze(0), values, beta.reshape(1), weights.unsqueeze(0)).squeeze(0)
