"""What blocks of columns spend most of their time on, compiled by Numba: reading neighbours without laying them out."""

from typing import Any

import numpy as np
from torch import Tensor

from graphact.kernels.numba.launch import kernel, ranges, run

Array = np.ndarray[Any, Any]


def mean_and_apart(rowptr: Array, col: Array, y: Tensor, mean: Tensor, apart: Tensor, own: bool) -> None:
    """The mean over what each row reads of ``y`` ``(n, m, F)``, and for every entry its distance from it, ``(E, F)``.

    ``own`` takes the distance from the row's own value instead, and no mean.
    """
    work = ranges(rowptr, 1, len(col) * y[0].numel() if len(y) else 0)
    run(mean_and_apart_kernel, work, rowptr, col, y.numpy(), mean.numpy(), apart.numpy(), own)


@kernel
def mean_and_apart_kernel(
    first: Any, last: Any, rowptr: Any, col: Any, y: Any, mean: Any, apart: Any, own: bool
) -> None:
    """Rows ``first`` to ``last``."""
    columns, features = y.shape[1], y.shape[2]
    for i in range(first, last):
        begin, end = rowptr[i], rowptr[i + 1]
        if begin == end:
            continue
        centre = y[i] if own else mean[i]
        if not own:
            for edge in range(begin, end):
                near = y[col[edge]]
                for m in range(columns):
                    for f in range(features):
                        centre[m, f] += near[m, f]
            share = 1.0 / (end - begin)
            for m in range(columns):
                for f in range(features):
                    centre[m, f] *= share
        for edge in range(begin, end):
            near, total = y[col[edge]], apart[edge]
            for m in range(columns):
                for f in range(features):
                    total[f] += abs(near[m, f] - centre[m, f])


def add_choices(
    outputs: Tensor, free: Tensor, weights: Tensor, tried: Tensor, choices: Tensor, norms: Tensor, index: Tensor
) -> None:
    """To ``norms[index]`` ``(n, O, C)`` the magnitudes of ``outputs`` ``(n, m, O)`` for all choices of what is free."""
    work = ranges(np.arange(len(outputs) + 1), 1, outputs.numel() * len(choices))
    arguments = (outputs, free, weights, tried, choices, norms, index)
    run(add_choices_kernel, work, *(argument.numpy() for argument in arguments))


@kernel
def add_choices_kernel(
    first: Any, last: Any, outputs: Any, free: Any, weights: Any, tried: Any, choices: Any, norms: Any, index: Any
) -> None:
    """Rows ``first`` to ``last``; ``tried`` are the features ``(O, e)`` whose multiples ``choices`` ``(C, e)`` are."""
    for i in range(first, last):
        total = norms[index[i]]
        for m in range(outputs.shape[1]):
            for o in range(outputs.shape[2]):
                for c in range(choices.shape[0]):
                    value = outputs[i, m, o]
                    for t in range(choices.shape[1]):
                        feature = tried[o, t]
                        value += free[i, m, feature] * weights[o, feature] * choices[c, t]
                    total[o, c] += abs(value)
