"""Checks of arguments, whose errors name the argument, what was expected and what was given."""

import difflib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def check_integer(name: str, value: Any, *, minimum: int) -> int:
    """Return ``value`` if it is an integer of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def check_number(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a number, got {value!r} of type {type(value).__name__}")
    return float(value)


def check_positive(name: str, value: Any) -> float:
    """Return ``value`` if it is a finite number above 0."""
    if not 0 < check_number(name, value) < math.inf:
        raise ValueError(f"{name} must be a finite number above 0, got {value}")
    return float(value)


def check_probability(name: str, value: Any) -> float:
    """Return ``value`` if it lies between 0 and 1."""
    if not 0 <= check_number(name, value) <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
    return float(value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return ``value`` if it is one of ``choices``."""
    if value not in choices:
        near = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}{hint}")
    return str(value)
