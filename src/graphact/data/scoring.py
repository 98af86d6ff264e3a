"""Losses and metrics by name, for one model or for a whole fleet of them at once."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphact._checks import check_choice, check_integer


def loss_of(name: str, outputs: Tensor, targets: Tensor, *, leading: int = 0) -> Tensor:
    """The mean loss of each model.

    The first ``leading`` dimensions number models (replicas); the mean runs over all others, so that the losses of a
    fleet come back side by side and may be summed without one model influencing the gradient of another.

    Args:
        name: "cross_entropy" (outputs are logits, targets classes), "mse" or "smooth_l1" (threshold 1).
        outputs: answers, read at the node that counts, or at all nodes.
        targets: what should have been answered.
        leading: how many dimensions number models.

    Shapes:
        outputs: ``(*R, B, out_features)`` with targets ``(*R, B)``, or both ``(*R, B, N, 1)``; result: ``R``.

    Raises:
        ValueError: unknown name, or shapes that do not fit together.

    Example:
        >>> import torch
        >>> outputs = torch.tensor([[[1.0], [2.0]], [[1.0], [5.0]]])  # two models, two samples each
        >>> targets = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
        >>> loss_of("mse", outputs, targets, leading=1)
        tensor([0.0000, 4.5000])
        >>> loss_of("mse", outputs, targets)
        tensor(2.2500)
    """
    check_choice("loss", name, tuple(LOSSES))
    return mean_of_each(LOSSES[name](outputs, targets), leading)


def metric_of(name: str, outputs: Tensor, targets: Tensor, *, leading: int = 0) -> Tensor:
    """The metric of each model: "accuracy" in percent (higher is better) or "rmse" (lower is better).

    Arguments and shapes are those of :func:`loss_of`. An answer that holds NaN is never accurate. Without samples
    the result is NaN. The metric of several batches is not the mean of their metrics: give all samples at once.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 4.0], [1.0, 0.0]])
        >>> metric_of("accuracy", logits, torch.tensor([0, 1, 0, 1]))
        tensor(75.)
    """
    check_choice("metric", name, tuple(METRICS))
    metric = METRICS[name]
    return metric.finish(mean_of_each(metric.each(outputs, targets), leading))


def mean_of_each(values: Tensor, leading: int) -> Tensor:
    """The mean over all but the first ``leading`` dimensions."""
    check_integer("leading", leading, minimum=0)
    if leading >= values.dim():
        raise ValueError(f"leading must leave a dimension of samples, got {leading} for shape {tuple(values.shape)}")
    return values.flatten(leading).mean(-1)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each sample."""
    check_classes(outputs, targets)
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error of each number."""
    return (same_shape(outputs, targets) - targets).square()


def smooth_l1(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half the squared error of each number up to an error of 1, beyond it the error minus one half."""
    return F.smooth_l1_loss(same_shape(outputs, targets), targets, reduction="none")


def is_right(outputs: Tensor, targets: Tensor) -> Tensor:
    """One for each sample whose largest output is that of its class, zero for others."""
    check_classes(outputs, targets)
    right = (outputs.argmax(-1) == targets) & ~outputs.isnan().any(-1)
    return right.to(outputs.dtype)


def check_classes(outputs: Tensor, targets: Tensor) -> None:
    """Raise if the outputs are not one row of logits for each target class."""
    if targets.is_floating_point():
        raise TypeError(f"targets must hold classes, that is integers, got {targets.dtype}")
    if outputs.shape[:-1] != targets.shape:
        raise ValueError(
            f"outputs must have the shape {tuple(targets.shape)} of the targets plus one dimension of classes, "
            f"got {tuple(outputs.shape)}"
        )


def same_shape(outputs: Tensor, targets: Tensor) -> Tensor:
    """The outputs, without their last dimension of one number where the targets lack it."""
    if outputs.shape == (*targets.shape, 1):
        return outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise ValueError(
            f"outputs must have the shape {tuple(targets.shape)} of the targets, or one more dimension of size 1, "
            f"got {tuple(outputs.shape)}"
        )
    return outputs


class Metric(NamedTuple):
    """A metric: a value of each sample or number, and what becomes of their mean."""

    each: Callable[[Tensor, Tensor], Tensor]
    finish: Callable[[Tensor], Tensor]
    higher_is_better: bool


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy,
    "mse": squared_error,
    "smooth_l1": smooth_l1,
}
METRICS: dict[str, Metric] = {
    "accuracy": Metric(is_right, lambda share: 100 * share, higher_is_better=True),
    "rmse": Metric(squared_error, torch.sqrt, higher_is_better=False),
}
