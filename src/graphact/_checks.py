"""Argument checks that several layers share. Every message names the argument, what was expected and what came."""

from typing import Any

import torch
from torch import Tensor

from graphact._plain_checks import check_choice, check_integer, check_positive, check_probability

__all__ = [
    "HALF_PRECISION",
    "check_choice",
    "check_companion",
    "check_generator",
    "check_integer",
    "check_positive",
    "check_probability",
    "check_tensor",
]

HALF_PRECISION = (torch.float16, torch.bfloat16)


def check_generator(value: Any) -> torch.Generator | None:
    """Return ``value`` if it is a source of randomness on the CPU, or None."""
    if value is not None and not isinstance(value, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator or None, got {value!r} of type {type(value).__name__}")
    if value is not None and value.device.type != "cpu":
        raise ValueError(f"generator must be on the CPU, so that draws are the same everywhere, got {value.device}")
    return value


def check_tensor(name: str, value: Any) -> Tensor:
    """Return ``value`` if it is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    return value


def check_companion(name: str, value: Tensor, signal: Tensor) -> Tensor:
    """Return ``value`` in the precision of ``signal``, or say why the two do not go together.

    A half-precision signal may meet float32 values (that is what autocast produces). Any other mixture is a mistake
    that would silently lose or invent digits.
    """
    if value.device != signal.device:
        raise ValueError(f"{name} must be on the device of x, {signal.device}, got {value.device}")
    if value.dtype != signal.dtype:
        if not (signal.dtype in HALF_PRECISION and value.dtype.is_floating_point):
            raise TypeError(f"{name} must have the dtype of x, {signal.dtype}, got {value.dtype}")
        return value.to(signal.dtype)
    return value
