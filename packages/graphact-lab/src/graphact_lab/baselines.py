"""Baselines without a network, which every report shows beside the networks."""

import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.training import Task, metric_of
from graphact_lab.descriptions import EXPERIMENTS, find_experiment


def baselines(task: Task, *, order: int = 35) -> dict[str, float]:
    """The test metric of simple methods, by name. They are fitted on the training samples, in float64.

    - source localization: "chance";
    - consensus: "answer zero", "least-squares FIR", and "least-squares filter of order 5 with Metropolis weights", of
      order 10, and with doubly stochastic weights, in the place of S;
    - denoising: "leave the noise in", "mean of the hour over stations + station offset", "centralised linear least
      squares on all stations", the same with a constant, "centralised Wiener filter", which knows the noise, and
      "Wiener filter of each neighbourhood", which knows it, too, and takes one exchange;
    - recommendation: "mean of the training ratings", "user's mean + offset", "mean + film bias + user bias", "ridge
      regression on the user's centred ratings".

    Args:
        task: the task, with ratings as they are (not centred by user).
        order: order of the FIR filter of consensus.

    Example:
        >>> from graphact_lab.tasks import baselines, source_localization
        >>> baselines(source_localization())
        {'chance': 25.0}
    """
    check_choice("task.name", task.name, EXPERIMENTS)
    check_integer("order", order, minimum=0)
    return find_experiment(task.name).baselines(task.to("cpu", torch.float64), order)


def prepared_baselines(task: Task, preparation: str, order: int = 35) -> dict[str, float]:
    """Return the test metric of prepared signals without a network, by name.

    - "by-centrality": the best linear filter of them;
    - "local-estimate" and "fill-in", whose targets are what an estimate leaves over: the estimate with a constant;
    - others have none.

    Args:
        task: the prepared task.
        preparation: what prepared it.
        order: order of the linear filter.
    """
    check_choice("task.name", task.name, EXPERIMENTS)
    return find_experiment(task.name).prepared_baselines(task.to("cpu", torch.float64), preparation, order)


def constant_answer(task: Task) -> float:
    """The test metric of the mean of the training targets as the answer to everything."""
    answers = task.targets[task.train].mean().expand_as(task.targets)
    return score_on_test(task, answers if task.node is None else answers.unsqueeze(-1))


def least_squares(known: Tensor, wanted: Tensor) -> Tensor:
    """The matrix W with the least squared error of known @ W, the smallest one if there are several."""
    return torch.linalg.lstsq(known, wanted, driver="gelsd").solution


def score_on_test(task: Task, answers: Tensor) -> float:
    """The metric of answers to all samples, over the test samples."""
    return metric_of(task.metric, answers[task.test], task.targets[task.test]).item()
