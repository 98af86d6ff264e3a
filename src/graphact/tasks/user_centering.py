"""Ratings relative to what a user gives on average."""

from dataclasses import replace

import torch
from torch import Tensor

from graphact.tasks.task import Task


def centered_by_user(task: Task) -> Task:
    """A recommendation task whose ratings, in inputs and targets, are relative to the mean rating of their user.

    A user's mean is taken over the ratings in the input, which do not include the target. Films not rated stay 0.
    Errors, and so the RMSE, are still in units of the rating scale.

    Raises:
        ValueError: the task is not a recommendation task, or is centred already.
    """
    if task.name != "recommendation":
        raise ValueError(f"task must be a recommendation task, got {task.name!r}")
    if task.details.get("centered_by_user"):
        raise ValueError("task must hold ratings as the users gave them, got one that is centred by user already")
    if task.details.get("inputs", "as rated") != "as rated":
        raise ValueError(f"task must hold ratings as the users gave them, got inputs {task.details['inputs']!r}")
    mean = user_means(task)
    rated = task.inputs != 0
    return replace(
        task,
        inputs=torch.where(rated, task.inputs - mean[:, None, None], 0.0),
        targets=task.targets - mean,
        details={**task.details, "centered_by_user": True},
    )


def user_means(task: Task) -> Tensor:
    """The mean rating of each user, ``(M,)``; the mean of the training targets for a user without any rating."""
    count = (task.inputs != 0).sum(dim=(1, 2))
    mean = task.inputs.sum(dim=(1, 2)) / count.clamp(min=1)
    return torch.where(count > 0, mean, task.targets[task.train].mean())
