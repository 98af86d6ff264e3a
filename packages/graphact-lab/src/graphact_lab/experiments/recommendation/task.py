"""The task of predicting a user's rating of a film from the user's other ratings, and simple methods."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer, check_probability
from graphact.training import Task
from graphact_lab.baselines import constant_answer, score_on_test
from graphact_lab.data.download import PathLike, locate
from graphact_lab.data.movielens import Ratings, read_movielens
from graphact_lab.experiments.recommendation.films import FillIn, filled_in, film_biases, film_graph, take_apart
from graphact_lab.splits import data_generator, random_split

NAME = "recommendation"
FILMS = {"toy-story": 1, "contact": 258, "return-of-the-jedi": 181}
INPUTS = ("as rated", "filled in")
GRAPH_FROM = ("all but test users", "training users")
RIDGE_STRENGTHS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)


@dataclass(frozen=True)
class Options:
    """The arguments of :func:`recommendation` that all films and splits of a call share."""

    similarity: str = "pearson"
    neighbors: int = 10
    min_co_raters: int = 10
    test_fraction: float = 0.1
    validation_fraction: float = 0.1
    dtype: torch.dtype = torch.float32
    inputs: str | FillIn = "as rated"
    graph_from: str = "all but test users"

    def __post_init__(self) -> None:
        check_choice("graph_from", self.graph_from, GRAPH_FROM)
        for name in ("similarity", "neighbors", "min_co_raters"):
            if self.fill_in is not None and getattr(self, name) != getattr(Options, name):
                raise ValueError(
                    f"{name} must be left as it is where inputs are filled in, which brings a film graph of its own "
                    f"(see FillIn), got {getattr(self, name)!r}"
                )

    @property
    def fill_in(self) -> FillIn | None:
        if isinstance(self.inputs, FillIn):
            return self.inputs
        return FillIn() if check_choice("inputs", self.inputs, INPUTS) == "filled in" else None


class Audience(NamedTuple):
    """Everything the splits of one film share: its raters (rows of the matrix), their signals and targets."""

    name: str
    item: int
    raters: Tensor
    inputs: Tensor
    targets: Tensor


def recommendation(
    film: str | int = "toy-story",
    split: int = 0,
    seed: int = 0,
    *,
    directory: PathLike | None = None,
    download: bool = True,
    **options: Any,
) -> Task:
    """Predict the ratings of one film (section 4.4 of the paper, MovieLens 100K).

    The samples are the users who rated the film; a signal holds a user's ratings of all 1682 films, 0 for films not
    rated and for the film in question, whose rating is the target. A share ``test_fraction`` of these users is for
    testing. The paper has no validation set; here a share ``validation_fraction`` of the other users is one, and 0
    gives the paper's 90/10 split with the same test users.

    The film graph (:func:`~graphact_lab.tasks.film_graph`) comes from all users who are not test users, whether they
    rated the film or not; no rating of a test user has any influence on it. With ``graph_from="training users"``
    validation users have none either.

    With ``inputs="filled in"`` the task is another one with the same users and splits. The signal of a user holds the
    user's bias + the residual of each rating, and a weighted mean of the residuals of similar films for films not
    rated. The target is the rating minus the one that filling in alone expects (mean + film bias + user bias +
    filled-in residual), so errors are still in units of the rating scale, and an answer of 0 is the expected rating.
    The loss is the squared error. Biases of films, similarities and graph come from all users who are neither test nor
    validation users; a user's own bias does not know the target.

    Args:
        film: "toy-story", "contact", "return-of-the-jedi", or the number of an item, from 1.
        split: number of the split; it depends on film, split and seed.
        seed: seed of all randomness.
        directory: data directory; see :func:`~graphact_lab.tasks.locate`.
        download: whether missing data may be downloaded.
        options: further ones are ``similarity`` ("pearson", or "co-rated-variance" for that of the authors' group),
            ``neighbors`` (the most similar films of each film that stay connected with it, 10), ``min_co_raters``
            (films with fewer common raters are not similar, 10; "pearson" only), ``inputs`` ("as rated" or "filled
            in", which brings a film graph of its own), ``graph_from`` ("all but test users" or "training users"),
            ``test_fraction`` (0.1), ``validation_fraction`` (0.1, of the remaining users), and ``dtype``.

    Raises:
        DataError: the data is missing or damaged.
    """
    common = Options(**options)
    ratings = read_movielens(locate("ml-100k", directory, download))
    return on_split(ratings, audience(ratings, film, common.dtype), split, seed, common)


def recommendation_tasks(
    films: Sequence[str | int] = tuple(FILMS),
    splits: int = 5,
    seed: int = 0,
    *,
    directory: PathLike | None = None,
    download: bool = True,
    **options: Any,
) -> list[Task]:
    """All tasks ``recommendation(film, split, seed, ...)``, by film, then split; splits of a film share its signals.

    The other arguments are those of :func:`recommendation`. Filled-in signals belong to one split, as the users they
    are filled in from do.
    """
    common = Options(**options)
    ratings = read_movielens(locate("ml-100k", directory, download))
    return [
        on_split(ratings, shared, split, seed, common)
        for film in films
        for shared in [audience(ratings, film, common.dtype)]
        for split in range(check_integer("splits", splits, minimum=1))
    ]


def audience(ratings: Ratings, film: str | int, dtype: torch.dtype) -> Audience:
    """The users who rated a film, their other ratings, and what they thought of it."""
    item = FILMS[check_choice("film", film, tuple(FILMS))] if isinstance(film, str) else film
    if check_integer("film", item, minimum=1) > ratings.matrix.shape[1]:
        raise ValueError(f"film must be an item from 1 to {ratings.matrix.shape[1]}, got {film}")
    raters = np.flatnonzero(ratings.matrix[:, item - 1])
    signals = torch.from_numpy(ratings.matrix[raters]).to(dtype).unsqueeze(-1)
    targets = signals[:, item - 1, 0].clone()
    signals[:, item - 1] = 0
    return Audience(str(film), item, torch.from_numpy(raters), signals, targets)


def on_split(ratings: Ratings, shared: Audience, split: int, seed: int, options: Options) -> Task:
    """The task of one split, with a film graph that its test users had no part in."""
    node, fill_in = shared.item - 1, options.fill_in
    free = len(shared.raters)
    test = round(check_probability("test_fraction", options.test_fraction) * free)
    validation = round(check_probability("validation_fraction", options.validation_fraction) * (free - test))
    generator = data_generator(f"{NAME} split", seed, shared.item, split)
    parts = random_split(free, validation=validation, test=test, generator=generator)
    both = fill_in is not None or options.graph_from == "training users"
    reserved = torch.cat([parts.validation, parts.test]) if both else parts.test
    known = np.delete(ratings.matrix, shared.raters[reserved].numpy(), axis=0)
    details: dict[str, Any] = {"film": shared.name, "title": ratings.titles[node], "item": shared.item}
    details |= {"split": split, "seed": seed, "similarity": options.similarity}
    details |= {name: getattr(fill_in or options, name) for name in ("neighbors", "min_co_raters")}
    details |= {"test_fraction": options.test_fraction, "validation_fraction": options.validation_fraction}
    if fill_in is None:
        graph = film_graph(known, **{name: details[name] for name in ("similarity", "neighbors", "min_co_raters")})
        inputs, targets = shared.inputs, shared.targets
    else:
        asked = ratings.matrix[shared.raters.numpy()]
        stars = asked[:, node].copy()
        asked[:, node] = 0
        graph, signals, expected = filled_in(known, asked, fill_in)
        inputs = torch.from_numpy(signals).to(options.dtype).unsqueeze(-1)
        targets = torch.from_numpy(stars - expected[:, node]).to(options.dtype)
        # Targets are relative to the user's bias: what needs ratings as they are must refuse them.
        details |= {"similarity": "shrunk correlation of residuals", "inputs": "filled in", "fill_in": asdict(fill_in)}
    return Task(
        name=NAME,
        graph=graph.to(dtype=options.dtype),
        inputs=inputs,
        targets=targets,
        **parts._asdict(),
        node=node,
        out_features=1,
        loss="smooth_l1" if fill_in is None else "mse",
        metric="rmse",
        details=details,
    )


def baselines(task: Task, _: int) -> dict[str, float]:
    """A constant, a constant above the user's mean, biases, and linear regression on all other ratings of the user."""
    means = user_means(task)
    with_offset = means + (task.targets - means)[task.train].mean()
    ridge = means + ridge_answers(centered_by_user(task))
    return {
        "mean of the training ratings": constant_answer(task),
        "user's mean + offset": score_on_test(task, with_offset.unsqueeze(-1)),
        "mean + film bias + user bias": score_on_test(task, biased_answers(task).unsqueeze(-1)),
        "ridge regression on the user's centred ratings": score_on_test(task, ridge.unsqueeze(-1)),
    }


def prepared_baselines(task: Task, preparation: str, _: int) -> dict[str, float]:
    """Filling in, corrected by a constant."""
    return {"fill-in alone": constant_answer(task)} if preparation == "fill-in" else {}


def biased_answers(task: Task) -> Tensor:
    """The mean of all ratings, what the film gets more, and what the user gives more than others, both shrunk.

    Means and film biases come from the training users, with their ratings of the film in question; a user's bias from
    this user's other ratings alone. The shrinkage is that of :class:`FillIn`.
    """
    assert task.node is not None
    asked = task.inputs.squeeze(-1).numpy()
    known = asked[task.train].copy()
    known[:, task.node] = task.targets[task.train].numpy()
    mean, film = film_biases(known, FillIn.film_shrinkage)
    _, user, _ = take_apart(asked, mean, film, FillIn.user_shrinkage)
    return torch.from_numpy(mean + film[task.node] + user[:, 0])


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
    if task.name != NAME:
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
