"""Argument checks that need no torch. Every message names the argument, what was expected and what came."""

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any


def check_integer(name: str, value: Any, *, minimum: int) -> int:
    """Return ``value`` as an int that is at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` as a finite float above zero."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    if not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` as a float between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    if not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
    return float(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return str(value)
