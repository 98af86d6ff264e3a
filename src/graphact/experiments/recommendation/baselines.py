"""What simple methods make of a user's ratings, and ratings relative to what a user gives on average."""

from dataclasses import replace

import torch
from torch import Tensor

from graphact.data import Task
from graphact.experiments.baselines import constant_answer, score_on_test

RIDGE_STRENGTHS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


def simple_answers(task: Task, _: int) -> dict[str, float]:
    """A constant, a constant above the user's mean, and linear regression on all other ratings of the user."""
    means = user_means(task)
    with_offset = means + (task.targets - means)[task.train].mean()
    ridge = means + ridge_answers(centered_by_user(task))
    return {
        "mean of the training ratings": constant_answer(task),
        "user's mean + offset": score_on_test(task, with_offset.unsqueeze(-1)),
        "ridge regression on the user's centred ratings": score_on_test(task, ridge.unsqueeze(-1)),
    }


def answers_of_prepared(task: Task, preparation: str, _: int) -> dict[str, float]:
    """Filling in, corrected by a constant."""
    return {"fill-in alone": constant_answer(task)} if preparation == "fill-in" else {}


def ridge_answers(task: Task) -> Tensor:
    """Ridge regression with a constant, at the strength that does best on the validation samples.

    Where there are none, the strength is the one with the least leave-one-out error on the training samples.
    """
    signals, offset = task.inputs.squeeze(-1), task.targets[task.train].mean()
    gram = signals @ signals[task.train].T
    eigenvalues, vectors = torch.linalg.eigh(gram[task.train])
    residuals = task.targets[task.train] - offset

    def error(strength: float) -> float:
        inverse = vectors / (eigenvalues + strength) @ vectors.T
        if task.validation.numel() == 0:
            return float((inverse @ residuals / inverse.diagonal()).square().mean())
        answers = offset + gram[task.validation] @ (inverse @ residuals)
        return float((answers - task.targets[task.validation]).square().mean())

    best = min(RIDGE_STRENGTHS, key=error)
    return offset + gram @ (vectors / (eigenvalues + best) @ (vectors.T @ residuals))


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
    return replace(
        task,
        inputs=torch.where(task.inputs != 0, task.inputs - mean[:, None, None], 0.0),
        targets=task.targets - mean,
        details={**task.details, "centered_by_user": True},
    )


def user_means(task: Task) -> Tensor:
    """The mean rating of each user, ``(M,)``; the mean of the training targets for a user without any rating."""
    count = (task.inputs != 0).sum(dim=(1, 2))
    mean = task.inputs.sum(dim=(1, 2)) / count.clamp(min=1)
    return torch.where(count > 0, mean, task.targets[task.train].mean())
