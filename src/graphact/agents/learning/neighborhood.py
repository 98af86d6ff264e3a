"""Gradients of the functions of one neighbourhood (:mod:`graphact.agents.operations`), for the node in its middle."""

import bisect
from dataclasses import dataclass

import numpy as np

from graphact.agents.messages import Array
from graphact.agents.operations import reduce


@dataclass(frozen=True)
class Neighborhood:
    """What a node knows of its neighbourhood in one round.

    Attributes:
        node: its number, which decides ties in closed neighbourhoods.
        own: its value, ``(..., F)``.
        members: the neighbours that answered, ascending.
        heard: their values, ``(d, ..., F)``.
    """

    node: int
    own: Array
    members: tuple[int, ...]
    heard: Array


def reduce_back(around: Neighborhood, op: str, closed: bool, gamma: float, grad: Array) -> tuple[Array, Array, Array]:
    r"""The function ``op`` of a neighbourhood, and what flows back through it.

    Max, min and median hand the gradient to the neighbour that was chosen, among equal ones to that of the lowest
    number. Of the kernel :math:`g = \exp(-\sum_j (x_i - x_j)^2 / 2\gamma^2)`

    .. math:: \partial g / \partial x_j = g\,(x_i - x_j) / \gamma^2, \qquad
        \partial g / \partial x_i = -\textstyle\sum_j \partial g / \partial x_j .

    Args:
        around: the neighbourhood.
        op: ``max``, ``min``, ``median`` or ``kernel``.
        closed: count the node among its neighbours.
        gamma: width of the kernel.
        grad: the gradient of the result, ``(..., F)``.

    Returns:
        The function ``(..., F)``, the gradient of the node's value ``(..., F)``, those of its neighbours' values
        ``(d, ..., F)``.
    """
    own, heard = around.own, around.heard
    value = reduce(op, own, heard, closed, gamma)
    if op == "kernel":
        pulls = grad * value * (own - heard) / own.dtype.type(gamma) ** 2
        return value, -pulls.sum(0), pulls
    place = bisect.bisect(around.members, around.node)
    everybody = np.insert(heard, place, own, axis=0) if closed else heard
    if len(everybody) == 0:
        return value, np.zeros_like(own), np.zeros_like(heard)
    chosen = np.argmax((everybody == value) | np.isnan(everybody), axis=0)  # the first of them
    routed = np.where(chosen == np.arange(len(everybody)).reshape(-1, *[1] * own.ndim), grad, own.dtype.type(0))
    if not closed:
        return value, np.zeros_like(own), routed
    return value, routed[place], np.delete(routed, place, axis=0)


def kernel_width_gradient(around: Neighborhood, value: Array, gamma: float, grad: Array) -> float:
    r"""The gradient of :math:`\log\gamma` through the kernel: :math:`g \sum_j (x_i - x_j)^2 / \gamma^2`."""
    spread = np.square(around.own - around.heard).sum(0)
    return float((grad * value * spread).sum() / gamma**2)
