"""Compiled mixing of the terms of an activation: every number is read once and written once.

Signals are flat arrays of R x L numbers, R replicas, each cut into parts. The weights of a replica are repeated over a
period of columns, so that loops are long whatever the number of features.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

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


@kernel
def reduce_kernel(sums: Array, grad_beta: Array, grad_weights: Array, features: Size) -> None:
    """Add up the sums of all parts and, where features share a weight, of all features."""
    replicas, parts, terms, period = sums.shape
    for replica in range(replicas):
        grad_weights[replica] = 0
        grad_beta[replica] = sums[replica, :, 0].sum()
        for hop in range(terms - 1):
            for feature in range(features):
                total = 0.0
                for part in range(parts):
                    for c in range(feature, period, features):
                        total += sums[replica, part, hop + 1, c]
                grad_weights[replica, hop, min(feature, grad_weights.shape[2] - 1)] += total


def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """See :func:`graphact.kernels.autograd.mix`."""
    out = torch.empty_like(own, memory_format=torch.contiguous_format)
    signals, beta_array, tiled, work, sizes = _prepare(own, values, beta, weights)
    run(mix_kernel, work, *signals, beta_array, tiled, flat(out), *sizes, len(values) == 2)
    return out


def mix_backward(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """Gradients of :func:`mix` with respect to own, values, beta and weights."""
    outputs = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(len(values) + 1)]
    signals, beta_array, tiled, work, sizes = _prepare(own, values, beta, weights)
    replicas, terms, period = tiled.shape
    sums = np.zeros((replicas, int(sizes[1]), terms + 1, period))
    written = (flat(outputs[0]), flat(outputs[1]), flat(outputs[-1]), sums.reshape(-1, terms + 1, period))
    run(mix_backward_kernel, work, _flat(grad), *signals, beta_array, tiled, *written, *sizes, terms == 2)
    grad_beta, grad_weights = np.empty_like(beta_array), np.empty_like(_by_hop(beta, weights))
    reduce_kernel(sums, grad_beta, grad_weights, own.size(-1))
    grad_coefficients = torch.from_numpy(grad_beta).view(beta.shape), torch.from_numpy(grad_weights).view(weights.shape)
    return outputs[0], outputs[1:], *grad_coefficients


def _prepare(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> tuple[Any, ...]:
    """The signals and beta as arrays, the weights over a period ``(R, K, period)``, the work and sizes of `_cut`."""
    by_hop, features = _by_hop(beta, weights), own.size(-1)
    repeats, work, sizes = _cut(own.numel(), features, beta.numel(), torch.get_num_threads())
    signals = (_flat(own), _flat(values[0]), _flat(values[-1]))
    tiled = np.empty((*by_hop.shape[:2], repeats, features), signals[0].dtype)
    tiled[:] = by_hop[:, :, None]
    return signals, _flat(beta), tiled.reshape(*by_hop.shape[:2], -1), work, sizes


def _by_hop(beta: Tensor, weights: Tensor) -> Array:
    """The weights as an array ``(R, K, F)`` or, where features share them, ``(R, K, 1)``."""
    width = weights.size(-1) if weights.dim() == beta.dim() + 2 else 1
    return _flat(weights).reshape(beta.numel(), -1, width)


@lru_cache(maxsize=256)
def _cut(numbers: int, features: int, replicas: int, threads: int) -> tuple[int, list[Any], tuple[Any, ...]]:
    """Repeats of the features in a period; the work, some parts at a time; numbers, parts, size of a part, period."""
    repeats = max(1, LONG_ENOUGH // features)
    length, period = numbers // replicas, features * repeats
    part = period * max(PERIODS, NUMBERS // period)
    parts = -(-length // part)
    pieces = min(replicas * parts, 4 * threads)
    cuts = [replicas * parts * piece // pieces for piece in range(pieces + 1)]
    work = [(np.uint64(a), np.uint64(b)) for a, b in itertools.pairwise(cuts)]
    return repeats, work, tuple(np.uint64(size) for size in (length, parts, part, period))


def _flat(tensor: Tensor) -> Array:
    return flat(tensor.contiguous())
