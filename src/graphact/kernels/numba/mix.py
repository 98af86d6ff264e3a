"""Compiled mixing of the terms of an activation: every number is read once and written once.

Signals are flat arrays of R x L numbers, R replicas, each cut into parts. The weights of a replica are repeated over a
period of columns, so that loops are long whatever the number of features.
"""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from graphact.kernels.numba.launch import Array, Size, flat, helper, kernel, run

LONG_ENOUGH = 256  # columns in a period
# a part, what one thread does at a time, has so many numbers, and periods enough that its sums are small beside it
NUMBERS, PERIODS = 65536, 16
ONE = np.uint64(1)


@helper
def _part(task: Size, length: Size, parts: Size, size: Size) -> tuple[Size, Size, Size]:
    """The replica of a part, and where its numbers begin and end."""
    replica, part = task // parts, task % parts
    begin = replica * length + part * size
    return replica, begin, min(begin + size, (replica + ONE) * length)


@kernel
def mix_kernel(
    first: Size, last: Size, own: Array, term: Array, second: Array, beta: Array, weights: Array, out: Array,
    length: Size, parts: Size, part: Size, period: Size, two: bool
) -> None:  # fmt: skip
    """``out = beta ReLU(own) + w_1 term + w_2 second``; the range counts the parts of all replicas."""
    for task in range(first, last):
        replica, begin, end = _part(task, length, parts, part)
        b, zero = beta[replica], own.dtype.type(0)
        for start in range(begin, end, period):
            size = min(period, end - start)
            for c in range(size):
                x = own[start + c]
                out[start + c] = b * (zero if x <= 0 else x) + weights[replica, 0, c] * term[start + c]
            if two:
                for c in range(size):
                    out[start + c] += weights[replica, 1, c] * second[start + c]


@kernel
def mix_backward_kernel(
    first: Size, last: Size, grad: Array, own: Array, term: Array, second: Array, beta: Array, weights: Array,
    grad_own: Array, grad_term: Array, grad_second: Array, sums: Array, length: Size, parts: Size, part: Size,
    period: Size, two: bool
) -> None:  # fmt: skip
    """Gradients of the signals, and of the coefficients as sums over the columns of the period, part by part."""
    for task in range(first, last):
        replica, begin, end = _part(task, length, parts, part)
        b, zero = beta[replica], own.dtype.type(0)
        for start in range(begin, end, period):
            size = min(period, end - start)
            for c in range(size):
                g, x = grad[start + c], own[start + c]
                grad_own[start + c] = zero if x <= 0 else b * g
                sums[task, 0, c] += g * (zero if x <= 0 else x)
            for c in range(size):
                g = grad[start + c]
                grad_term[start + c] = weights[replica, 0, c] * g
                sums[task, 1, c] += g * term[start + c]
            if two:
                for c in range(size):
                    g = grad[start + c]
                    grad_second[start + c] = weights[replica, 1, c] * g
                    sums[task, 2, c] += g * second[start + c]


def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """See :func:`graphact.kernels.autograd.mix`."""
    out = torch.empty_like(own, memory_format=torch.contiguous_format)
    tiled, sizes = _tile_weights(own, weights)
    signals = (flat(own), flat(values[0]), flat(values[-1]), flat(beta), tiled, flat(out))
    run(mix_kernel, _tasks(len(beta) * int(sizes[1])), *signals, *sizes, len(values) == 2)
    return out


def mix_backward(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Gradients of :func:`mix` with respect to own, values, beta and weights."""
    tiled, sizes = _tile_weights(own, weights)
    _, parts, _, period = (int(size) for size in sizes)
    grad_own = torch.empty_like(own, memory_format=torch.contiguous_format)
    grad_values = [torch.empty_like(grad_own) for _ in values]
    sums = own.new_zeros(len(beta) * parts, len(values) + 1, period, dtype=torch.float64)
    inputs = (flat(grad), flat(own), flat(values[0]), flat(values[-1]), flat(beta), tiled)
    outputs = (flat(grad_own), flat(grad_values[0]), flat(grad_values[-1]), sums.numpy())
    run(mix_backward_kernel, _tasks(len(sums)), *inputs, *outputs, *sizes, len(values) == 2)
    by_period = sums.view(len(beta), parts, len(values) + 1, period).sum(1)
    by_feature = by_period.unflatten(2, (-1, own.size(-1))).sum(2)
    of_weights = by_feature[:, 1:] if weights.dim() == 3 else by_feature[:, 1:].sum(-1)
    return grad_own, grad_values, by_feature[:, 0].sum(-1).to(own.dtype), of_weights.to(own.dtype)


def _tile_weights(own: Tensor, weights: Tensor) -> tuple[Array, tuple[np.uint64, ...]]:
    """The weights over a period ``(R, K, period)``; the sizes of a replica, its number of parts, a part, a period."""
    features = own.size(-1)
    repeats = max(1, LONG_ENOUGH // features)
    per_feature = weights if weights.dim() == 3 else weights.unsqueeze(-1).expand(-1, -1, features)
    tiled = per_feature.detach().to(own.dtype).repeat(1, 1, repeats).numpy()
    length, period = own.numel() // len(weights), features * repeats
    part = period * max(PERIODS, NUMBERS // period)
    return tiled, tuple(np.uint64(size) for size in (length, -(-length // part), part, period))


def _tasks(count: int) -> list[tuple[np.uint64, np.uint64]]:
    """The work: some parts at a time."""
    pieces = min(count, 4 * torch.get_num_threads())
    cuts = [count * piece // pieces for piece in range(pieces + 1)]
    return [(np.uint64(a), np.uint64(b)) for a, b in itertools.pairwise(cuts)]
