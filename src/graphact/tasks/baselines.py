"""What can be had without a network: the figures that every report shows beside the networks."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer
from graphact.tasks.scoring import metric_of
from graphact.tasks.task import Task
from graphact.tasks.user_centering import centered_by_user, user_means

RIDGE_STRENGTHS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


def baselines(task: Task, *, order: int = 35) -> dict[str, float]:
    """The test metric of simple methods, by name. They are fitted on the training samples, in float64.

    - source localization: "chance";
    - consensus: "answer zero", "least-squares FIR";
    - denoising: "leave the noise in", "mean of the hour over stations + station offset", "centralised linear least
      squares on all stations", the same with a constant, and "centralised Wiener filter", which knows the noise;
    - recommendation: "mean of the training ratings", "user's mean + offset", "ridge regression on the user's centred
      ratings".

    Args:
        task: the task, with ratings as they are (not centred by user).
        order: order of the FIR filter of consensus.

    Example:
        >>> from graphact.tasks import baselines, source_localization
        >>> baselines(source_localization())
        {'chance': 25.0}
    """
    check_choice("task.name", task.name, tuple(BASELINES))
    check_integer("order", order, minimum=0)
    exact = task.to("cpu", torch.float64)
    if task.name == "consensus":
        return consensus(exact, order)
    return BASELINES[task.name](exact)


def prepared_baselines(task: Task, preparation: str, order: int = 35) -> dict[str, float]:
    """What the signals that nodes prepare are worth without a network: the test metric by name.

    - "by-centrality": the best linear filter of them;
    - "local-estimate" and "fill-in", whose targets are what an estimate leaves over: the estimate with a constant;
    - others have none.

    Args:
        task: the prepared task.
        preparation: what prepared it.
        order: order of the linear filter.
    """
    exact = task.to("cpu", torch.float64)
    if preparation == "by-centrality":
        return {"least-squares FIR of the prepared signals": score_on_test(exact, least_squares_fir(exact, order))}
    names = {"local-estimate": "local estimate alone", "fill-in": "fill-in alone"}
    if preparation not in names:
        return {}
    constant = exact.targets[exact.train].mean()
    answers = constant.expand_as(exact.targets)
    return {names[preparation]: score_on_test(exact, answers if exact.node is None else answers.unsqueeze(-1))}


def source_localization(task: Task) -> dict[str, float]:
    """Guessing among equally frequent classes."""
    return {"chance": 100 / task.out_features}


def consensus(task: Task, order: int = 35) -> dict[str, float]:
    """Zero, the expectation of the mean; and the best filter of one order."""
    return {
        "answer zero": score_on_test(task, torch.zeros_like(task.targets)),
        "least-squares FIR": score_on_test(task, least_squares_fir(task, order)),
    }


def least_squares_fir(task: Task, order: int) -> Tensor:
    r"""The outputs of the filter :math:`\sum_{k=0}^{K} c_k T_k(S)` with the least squared error on training samples.

    Chebyshev polynomials :math:`T_k`, which stay bounded on the spectrum of S in [-1, 1], keep the problem solvable in
    double precision at orders where powers of S no longer differ by more than rounding. The filter is one filter of
    S of order K all the same.
    """
    signals, turned = task.inputs.squeeze(-1), task.graph.to_dense().T
    terms = [signals, signals @ turned][: order + 1]
    while len(terms) <= order:
        terms.append(2 * terms[-1] @ turned - terms[-2])
    basis = torch.stack(terms, dim=-1)
    return basis @ least_squares(basis[task.train].flatten(0, 1), task.targets[task.train].flatten(0, 1))


def denoising(task: Task) -> dict[str, float]:
    """Doing nothing, spatial averaging, and the best matrix from all stations to all stations."""
    noisy, clean = task.inputs.squeeze(-1), task.targets.squeeze(-1)
    mean_of_hour = noisy.mean(dim=1, keepdim=True)
    offset = (clean - mean_of_hour)[task.train].mean(dim=0)
    with_constant = torch.cat([noisy, torch.ones_like(mean_of_hour)], dim=1)
    linear = noisy @ least_squares(noisy[task.train], clean[task.train])
    affine = with_constant @ least_squares(with_constant[task.train], clean[task.train])
    mean, centred = clean[task.train].mean(dim=0), (clean - clean[task.train].mean(dim=0))[task.train]
    covariance = centred.T @ centred / len(task.train)
    noise = task.details["noise_kelvin"] ** 2 * torch.eye(len(covariance), dtype=torch.float64)
    wiener = mean + (noisy - mean) @ torch.linalg.solve(covariance + noise, covariance)
    answers = {
        "leave the noise in": noisy,
        "mean of the hour over stations + station offset": mean_of_hour + offset,
        "centralised linear least squares on all stations": linear,
        "centralised linear least squares on all stations, with a constant": affine,
        "centralised Wiener filter": wiener,
    }
    return {name: score_on_test(task, answer.unsqueeze(-1)) for name, answer in answers.items()}


def recommendation(task: Task) -> dict[str, float]:
    """A constant, a constant above the user's mean, and linear regression on all other ratings of the user."""
    means = user_means(task)
    mean_rating = task.targets[task.train].mean().expand_as(task.targets)
    offset = (task.targets - means)[task.train].mean()
    answers = {
        "mean of the training ratings": mean_rating,
        "user's mean + offset": means + offset,
        "ridge regression on the user's centred ratings": means + ridge_answers(centered_by_user(task)),
    }
    return {name: score_on_test(task, answer.unsqueeze(-1)) for name, answer in answers.items()}


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


def least_squares(known: Tensor, wanted: Tensor) -> Tensor:
    """The matrix W with the least squared error of known @ W, the smallest one if there are several."""
    return torch.linalg.lstsq(known, wanted, driver="gelsd").solution


def score_on_test(task: Task, answers: Tensor) -> float:
    """The metric of answers to all samples, over the test samples."""
    return metric_of(task.metric, answers[task.test], task.targets[task.test]).item()


BASELINES: dict[str, Callable[[Task], dict[str, float]]] = {
    "source-localization": source_localization,
    "consensus": consensus,
    "denoising": denoising,
    "recommendation": recommendation,
}
