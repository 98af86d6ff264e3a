"""The optimizer of the training loop, and how its step size changes."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphact.training.settings import TrainingSettings


def make_optimizer(
    parameters: Sequence[Tensor], spared: Sequence[Tensor], settings: TrainingSettings, on_device: bool
) -> torch.optim.Optimizer:
    """Adam, or AdamW where weights decay.

    Args:
        parameters: all that is trained.
        spared: those that weight decay leaves alone.
        settings: step size, forgetting factors, weight decay.
        on_device: whether steps are to be recorded as CUDA graphs; a step size that changes is then a tensor.
    """
    rate: float | Tensor = settings.learning_rate
    if on_device and settings.schedule != "constant":
        rate = torch.tensor(rate, dtype=torch.float32, device=parameters[0].device)
    options: dict[str, Any] = {"lr": rate, "betas": settings.betas, "foreach": not on_device, "fused": on_device}
    if not settings.weight_decay:
        return torch.optim.Adam(parameters, **options, capturable=on_device)
    known = {id(parameter) for parameter in spared}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in known], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if id(p) in known], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], **options, capturable=on_device)


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainingSettings, epoch: int) -> None:
    """Give the optimizer the step size of an epoch, counted from 1."""
    if settings.schedule == "constant":
        return
    rate = learning_rate(settings, epoch)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(settings: TrainingSettings, epoch: int) -> float:
    """The step size of an epoch, counted from 1.

    Example:
        >>> from graphact.training import TrainingSettings
        >>> settings = TrainingSettings(epochs=4, learning_rate=1.0, schedule="cosine")
        >>> [round(learning_rate(settings, epoch), 3) for epoch in (1, 2, 3, 4)]
        [1.0, 0.854, 0.5, 0.146]
    """
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / settings.epochs)) / 2
