"""Functions of one neighbourhood, in NumPy, for the node in its middle.

``heard`` holds the values of the neighbours that answered, ``(d, ..., F)``; ``own`` is the node's value, ``(..., F)``.
Over an empty neighbourhood max, min and median are 0 and the kernel is 1; NaN in, NaN out.
"""

import numpy as np

from graphact.agents.messages import Array

OPERATIONS = ("max", "min", "median", "kernel")


def reduce(op: str, own: Array, heard: Array, closed: bool, gamma: float) -> Array:
    """The function ``op`` of a neighbourhood, as :mod:`graphact.functional.neighborhood` defines it."""
    if op == "kernel":
        spread = np.square(own - heard).sum(0)
        return np.exp(-spread / (2 * own.dtype.type(gamma) ** 2))
    members = np.concatenate([own[np.newaxis], heard]) if closed else heard
    if len(members) == 0:
        return np.zeros_like(own)
    if op == "max":
        return members.max(0)
    if op == "min":
        return members.min(0)
    middle = np.sort(members, axis=0)[(len(members) - 1) // 2]
    return np.where(np.isnan(members).any(0), np.nan, middle).astype(own.dtype)
