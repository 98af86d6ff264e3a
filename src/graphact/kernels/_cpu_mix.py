"""Compiled mixing of the terms of an activation: every number is read once and written once.

Signals are flat arrays of R x L numbers, R replicas. The weights of a replica are laid out again and again over a
period of columns, so that loops are long whatever the number of features.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphact.kernels._cpu_run import Array, Size, kernel, run

LONG_ENOUGH = 256  # columns in a period
ONE = np.uint64(1)


@kernel
def mix_kernel(
    first: Size,
    last: Size,
    own: Array,
    term: Array,
    second: Array,
    beta: Array,
    weights: Array,
    out: Array,
    length: Size,
    period: Size,
    two: bool,
) -> None:
    """``out = beta ReLU(own) + w_1 term + w_2 second`` for the replicas first..last - 1."""
    for replica in range(first, last):
        b = beta[replica]
        for start in range(replica * length, (replica + ONE) * length, period):
            size = min(period, (replica + ONE) * length - start)
            for c in range(size):
                x = own[start + c]
                out[start + c] = (b * x if x > 0 else x * 0) + weights[replica, 0, c] * term[start + c]
            if two:
                for c in range(size):
                    out[start + c] += weights[replica, 1, c] * second[start + c]


@kernel
def mix_gradients_kernel(
    first: Size,
    last: Size,
    grad: Array,
    own: Array,
    term: Array,
    second: Array,
    beta: Array,
    weights: Array,
    grad_own: Array,
    grad_term: Array,
    grad_second: Array,
    sums: Array,
    length: Size,
    period: Size,
    two: bool,
) -> None:
    """Gradients of the signals, and of the coefficients as sums over the columns of the period."""
    for replica in range(first, last):
        b = beta[replica]
        for start in range(replica * length, (replica + ONE) * length, period):
            size = min(period, (replica + ONE) * length - start)
            for c in range(size):
                g, x = grad[start + c], own[start + c]
                grad_own[start + c] = b * g if x > 0 else g * 0
                sums[replica, 0, c] += g * x if x > 0 else g * 0
            for c in range(size):
                g = grad[start + c]
                grad_term[start + c] = weights[replica, 0, c] * g
                sums[replica, 1, c] += g * term[start + c]
            if two:
                for c in range(size):
                    g = grad[start + c]
                    grad_second[start + c] = weights[replica, 1, c] * g
                    sums[replica, 2, c] += g * second[start + c]


def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """See :func:`graphact.kernels.mixing.mix_terms`."""
    out = torch.empty_like(own, memory_format=torch.contiguous_format)
    laid_out, length, period = _lay_out(own, weights)
    signals = (_flat(own), _flat(values[0]), _flat(values[-1]), _flat(beta), laid_out, _flat(out))
    run(mix_kernel, _replicas(len(beta)), *signals, np.uint64(length), np.uint64(period), len(values) == 2)
    return out


def mix_gradients(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Gradients of :func:`mix` with respect to own, values, beta and weights."""
    laid_out, length, period = _lay_out(own, weights)
    grad_own = torch.empty_like(own, memory_format=torch.contiguous_format)
    grad_values = [torch.empty_like(grad_own) for _ in values]
    sums = own.new_zeros(len(beta), len(values) + 1, period, dtype=torch.float64)
    inputs = (_flat(grad), _flat(own), _flat(values[0]), _flat(values[-1]), _flat(beta), laid_out)
    outputs = (_flat(grad_own), _flat(grad_values[0]), _flat(grad_values[-1]), sums.numpy())
    sizes = (np.uint64(length), np.uint64(period), len(values) == 2)
    run(mix_gradients_kernel, _replicas(len(beta)), *inputs, *outputs, *sizes)
    by_feature = sums.view(len(beta), len(values) + 1, -1, own.size(-1)).sum(2)
    of_weights = by_feature[:, 1:] if weights.dim() == 3 else by_feature[:, 1:].sum(-1)
    return grad_own, grad_values, by_feature[:, 0].sum(-1).to(own.dtype), of_weights.to(own.dtype)


def _lay_out(own: Tensor, weights: Tensor) -> tuple[Array, int, int]:
    """The weights over a period ``(R, K, period)``, the numbers of a replica, and the period."""
    features = own.size(-1)
    repeats = max(1, LONG_ENOUGH // features)
    per_feature = weights if weights.dim() == 3 else weights.unsqueeze(-1).expand(-1, -1, features)
    laid_out = per_feature.detach().to(own.dtype).repeat(1, 1, repeats).numpy()
    return laid_out, own.numel() // len(weights), features * repeats


def _replicas(count: int) -> list[tuple[np.uint64, np.uint64]]:
    """The work: some replicas at a time."""
    pieces = min(count, 4 * torch.get_num_threads())
    cuts = [count * piece // pieces for piece in range(pieces + 1)]
    return [(np.uint64(a), np.uint64(b)) for a, b in itertools.pairwise(cuts)]


def _flat(tensor: Tensor) -> Array:
    return tensor.detach().contiguous().numpy().reshape(-1)
