"""Functions of each value on its own in NumPy, as :mod:`graphact.functional.elementwise` defines them, and gradients.

``FUNCTIONS`` and ``SLOPES`` take the node's value ``(..., F)``; those of trained arrays take these after it.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact_agents.messages import Array

if TYPE_CHECKING:
    from graphact_agents.model import ModelLayer

LEAK = 0.01
ERFC = np.vectorize(math.erfc, otypes=[np.float64])  # a node has few values, and needs no SciPy


def normal_cdf(x: Array) -> Array:
    """The distribution function of the standard normal distribution."""
    cdf: Array = (ERFC(-x / math.sqrt(2)) / 2).astype(x.dtype)
    return cdf


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow."""
    return (1 + np.tanh(x / 2)) / 2


def lines(x: Array, slope: Array, offset: Array) -> Array:
    """The lines of which Maxout takes the largest, ``(P, ..., F)``."""
    return np.stack([a * x + b for a, b in zip(slope, offset, strict=True)])


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "leaky-relu": lambda x: np.where(x > 0, x, x.dtype.type(LEAK) * x),
    "elu": lambda x: np.where(x > 0, x, np.asarray(np.expm1(np.minimum(x, 0)))),
    "gelu": lambda x: x * normal_cdf(x),
    "silu": lambda x: x * sigmoid(x),
    "tanh": np.tanh,
    "abs": np.abs,
    "prelu": lambda x, slope: np.where(x > 0, x, slope * x),
    "maxout": lambda x, slope, offset: lines(x, slope, offset).max(0),
}
SLOPES: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: x > 0,
    "leaky-relu": lambda x: np.where(x > 0, 1, x.dtype.type(LEAK)),
    "elu": lambda x: np.exp(np.minimum(x, 0)),
    "gelu": lambda x: normal_cdf(x) + x * np.exp(-np.square(x) / 2) / np.sqrt(2 * np.pi, dtype=x.dtype),
    "silu": lambda x: sigmoid(x) * (1 + x * sigmoid(-x)),
    "tanh": lambda x: 1 - np.square(np.tanh(x)),
    "abs": np.sign,
}


def evaluate(layer: "ModelLayer", x: Array) -> Array:
    """The function of a node's own value."""
    return FUNCTIONS[layer.settings["function"]](x, *layer.arrays.values())


def backward(layer: "ModelLayer", x: Array, grad: Array) -> tuple[Array, dict[str, Array]]:
    """The gradients of the value and of the trained arrays."""
    function, slope = layer.settings["function"], layer.arrays.get("slope")
    if slope is None:
        return grad * SLOPES[function](x), {}
    if function == "prelu":
        below = grad * np.minimum(x, 0)
        return grad * np.where(x > 0, 1, slope), {"slope": total_like(slope, below)}
    offset = layer.arrays["offset"]
    back, parts = np.zeros_like(x), [grad * share for share in shares(lines(x, slope, offset))]
    for each, part in zip(slope, parts, strict=True):
        back = back + each * part
    grad_slope = np.stack([total_like(slope[0], part * x) for part in parts])
    return back, {"slope": grad_slope, "offset": np.stack([total_like(offset[0], part) for part in parts])}


def shares(values: Array) -> list[Array]:
    """Return for each of the values ``(P, ...)`` its share of the largest: 1, 0, or parts of 1 for equal ones."""
    largest, found = values[0], [np.ones_like(values[0])]
    for value in values[1:]:
        kept = np.where(value > largest, 0, np.where(value == largest, 0.5, 1)).astype(values.dtype)
        found, largest = [*(share * kept for share in found), 1 - kept], np.maximum(largest, value)
    return found


def total_like(array: Any, values: Array) -> Array:
    """The sum of values ``(..., F)`` over all samples, and over features where an array is shared by them."""
    return np.asarray(values.reshape(-1, values.shape[-1]).sum(0) if np.ndim(array) else values.sum())
