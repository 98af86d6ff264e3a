"""Functions of each value on its own, by name."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphact._checks import HALF_PRECISION

LEAK = 0.01  # the slope of "leaky-relu" below 0

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "relu": torch.relu,
    "leaky-relu": lambda x: F.leaky_relu(x, LEAK),
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "prelu": lambda x, slope: torch.where(x > 0, x, slope * x),
    "maxout": lambda x, slope, offset: reduce(torch.maximum, (a * x + b for a, b in zip(slope, offset, strict=True))),
}

TRAINED = {"prelu": ("slope",), "maxout": ("slope", "offset")}  # the arrays that a function takes beside the signal


def pointwise(x: Tensor, function: str, slope: Tensor | None = None, offset: Tensor | None = None) -> Tensor:
    r"""A function of each value on its own.

    With :math:`\Phi` the distribution function of the standard normal distribution:

    ============== =====================================================
    ``relu``        :math:`\max(x, 0)`
    ``leaky-relu``  :math:`x` above 0, :math:`x / 100` below
    ``prelu``       :math:`x` above 0, :math:`a x` below, a trained
    ``elu``         :math:`x` above 0, :math:`e^x - 1` below
    ``gelu``        :math:`x\,\Phi(x)`
    ``silu``        :math:`x / (1 + e^{-x})`
    ``tanh``        :math:`\tanh x`
    ``abs``         :math:`|x|`
    ``maxout``      :math:`\max_p (a_p x + b_p)`, a and b trained
    ============== =====================================================

    Args:
        x: signal.
        function: its name.
        slope: a of ``prelu`` and ``maxout``.
        offset: b of ``maxout``.

    Shapes:
        x: ``(..., F)``; slope of prelu: any that broadcasts with x; slope and offset of maxout: the same after a first
        dimension P; result: as x.

    Example:
        >>> import torch, graphact
        >>> graphact.functional.pointwise(torch.tensor([-2.0, 3.0]), "prelu", torch.tensor(0.25))
        tensor([-0.5000,  3.0000])
    """
    if function not in FUNCTIONS:
        raise ValueError(f"function must be one of {', '.join(FUNCTIONS)}, got {function!r}")
    expected = TRAINED.get(function, ())
    given = {name: array for name, array in (("slope", slope), ("offset", offset)) if array is not None}
    if tuple(given) != expected:
        names = [" and ".join(names) or "no array" for names in (expected, given)]
        raise TypeError(f"function {function!r} takes {names[0]}, got {names[1]}")
    result: Tensor = FUNCTIONS[function](x, *given.values())
    return result.to(x.dtype) if x.dtype in HALF_PRECISION else result  # which may meet slopes in float32
