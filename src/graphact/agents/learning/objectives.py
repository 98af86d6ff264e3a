"""What a node is to make small: its own loss, and the gradient of that with respect to its own output."""

from collections.abc import Callable

import numpy as np

from graphact._checks import check_choice
from graphact.agents.messages import Array


def evaluate(objective: str, outputs: Array, targets: Array) -> tuple[float, Array]:
    """The mean loss over the samples of one node, and its gradient.

    The loss of the network is the mean over all nodes. A target that is NaN asks for nothing: it adds 0 to the mean.

    Args:
        objective: "mse", "smooth_l1" (threshold 1) or "cross_entropy".
        outputs: ``(B, O)``.
        targets: ``(B, O)``; for the cross entropy classes, ``(B, 1)``.

    Example:
        >>> import numpy as np
        >>> evaluate("mse", np.array([[1.0], [5.0]]), np.array([[3.0], [np.nan]]))
        (2.0, array([[-2.],
               [ 0.]]))
    """
    check_objective(objective)
    expected = (*outputs.shape[:-1], 1) if objective == "cross_entropy" else outputs.shape
    if targets.shape != expected:
        raise ValueError(f"targets of a node must have the shape {expected}, got {targets.shape}")
    losses, gradient = OBJECTIVES[objective](outputs, targets)
    asked = ~np.isnan(targets)
    count = targets.size
    return float(np.where(asked, losses, 0).sum() / count), np.where(asked, gradient, 0).astype(outputs.dtype) / count


def check_objective(objective: str) -> str:
    """Say so if there is no such objective."""
    return check_choice("objective", objective, tuple(OBJECTIVES))


def squared_error(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """The square of each error."""
    error = outputs - targets
    return error**2, 2 * error


def smooth_l1(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Half the square of each error up to 1, beyond it the error minus one half."""
    error = outputs - targets
    size = np.abs(error)
    return np.where(size < 1, 0.5 * error**2, size - 0.5), np.clip(error, -1, 1)


def cross_entropy(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Minus the logarithm of the probability of each class."""
    shifted = outputs - outputs.max(-1, keepdims=True)
    total = np.exp(shifted).sum(-1, keepdims=True)
    classes = np.where(np.isnan(targets), 0, targets).astype(int)
    hit = np.arange(outputs.shape[-1]) == classes
    return np.log(total) - (shifted * hit).sum(-1, keepdims=True), np.exp(shifted) / total - hit


OBJECTIVES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "mse": squared_error,
    "smooth_l1": smooth_l1,
    "cross_entropy": cross_entropy,
}
