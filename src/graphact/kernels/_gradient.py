"""What the gradients of all passes over the neighbours need."""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from graphact.kernels.backends import backend, requested
from graphact.kernels.reference import Lists

PER_DIRECTION = len(Lists._fields)
NO_GRADIENTS = [None] * PER_DIRECTION


def with_backend_of_forward(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Autograd may run a backward pass in a thread of its own, which knows nothing of a ``with backend(...)``."""

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Tensor) -> Any:
        with backend(ctx.backend):
            return backward(ctx, *gradients)

    return run


def save_all(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep some signals and the lists of both directions, which come last."""
    *signals, incoming, outgoing = inputs
    ctx.backend = requested()
    ctx.save_for_backward(*signals, *incoming, *outgoing)


def saved(ctx: Any) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """What was kept: signals, incoming and outgoing lists."""
    signals_and_lists = list(ctx.saved_tensors)
    outgoing = signals_and_lists[-PER_DIRECTION:]
    incoming = signals_and_lists[-2 * PER_DIRECTION : -PER_DIRECTION]
    return signals_and_lists[: -2 * PER_DIRECTION], incoming, outgoing
