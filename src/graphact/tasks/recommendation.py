"""Recommendation: what will a user think of a film, from the user's ratings of other films."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer, check_probability
from graphact.tasks.data import PathLike, locate
from graphact.tasks.film_graph import film_graph
from graphact.tasks.movielens import Ratings, read_movielens
from graphact.tasks.randomness import generator_for
from graphact.tasks.splits import random_split
from graphact.tasks.task import Task

NAME = "recommendation"
FILMS = {"toy-story": 1, "contact": 258, "return-of-the-jedi": 181}


class Options(NamedTuple):
    """What all films and splits of a call have in common."""

    similarity: str
    neighbors: int
    min_co_raters: int
    test_fraction: float
    validation_fraction: float
    dtype: torch.dtype


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
    similarity: str = "pearson",
    neighbors: int = 10,
    min_co_raters: int = 10,
    test_fraction: float = 0.1,
    validation_fraction: float = 0.1,
    directory: PathLike | None = None,
    download: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Task:
    """Predict the ratings of one film (section 4.4 of the paper, MovieLens 100K).

    The samples are the users who rated the film; a signal holds a user's ratings of all 1682 films, 0 for films not
    rated and for the film in question, whose rating is the target. A share ``test_fraction`` of these users is for
    testing. The paper has no validation set; here a share ``validation_fraction`` of the other users is one, and 0
    gives the paper's 90/10 split with the same test users.

    The film graph (:func:`~graphact.tasks.film_graph`) comes from all users who are not test users, whether they
    rated the film or not; no rating of a test user has any influence on it.

    Args:
        film: "toy-story", "contact", "return-of-the-jedi", or the number of an item, from 1.
        split: number of the split; it depends on film, split and seed.
        seed: seed of all randomness.
        similarity: "pearson", or "co-rated-variance" for the similarity of the authors' group.
        neighbors: how many of the most similar films of each film stay connected with it.
        min_co_raters: films with fewer common raters are not similar ("pearson" only).
        test_fraction: share of the users for testing.
        validation_fraction: share of the remaining users for validation.
        directory: data directory; see :func:`~graphact.tasks.locate`.
        download: whether missing data may be downloaded.
        dtype: floating-point type of graph, signals and targets.

    Raises:
        DataError: the data is missing or damaged.
    """
    options = Options(similarity, neighbors, min_co_raters, test_fraction, validation_fraction, dtype)
    ratings = read_movielens(locate("ml-100k", directory, download))
    return on_split(ratings, audience(ratings, film, dtype), split, seed, options)


def recommendation_tasks(
    films: Sequence[str | int] = tuple(FILMS),
    splits: int = 5,
    seed: int = 0,
    *,
    similarity: str = "pearson",
    neighbors: int = 10,
    min_co_raters: int = 10,
    test_fraction: float = 0.1,
    validation_fraction: float = 0.1,
    directory: PathLike | None = None,
    download: bool = True,
    dtype: torch.dtype = torch.float32,
) -> list[Task]:
    """All tasks ``recommendation(film, split, seed, ...)``, by film, then split; splits of a film share its signals."""
    options = Options(similarity, neighbors, min_co_raters, test_fraction, validation_fraction, dtype)
    ratings = read_movielens(locate("ml-100k", directory, download))
    return [
        on_split(ratings, shared, split, seed, options)
        for film in films
        for shared in [audience(ratings, film, dtype)]
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
    """The task of one split, with the film graph that its test users had no part in."""
    count = shared.raters.numel()
    test = round(check_probability("test_fraction", options.test_fraction) * count)
    validation = round(check_probability("validation_fraction", options.validation_fraction) * (count - test))
    generator = generator_for(f"{NAME} split", seed, shared.item, split)
    parts = random_split(count, validation=validation, test=test, generator=generator)
    others = np.delete(ratings.matrix, shared.raters[parts.test].numpy(), axis=0)
    graph = film_graph(
        others,
        similarity=options.similarity,
        neighbors=options.neighbors,
        min_co_raters=options.min_co_raters,
    )
    return Task(
        name=NAME,
        graph=graph.to(dtype=options.dtype),
        inputs=shared.inputs,
        targets=shared.targets,
        train=parts.train,
        validation=parts.validation,
        test=parts.test,
        node=shared.item - 1,
        out_features=1,
        loss="smooth_l1",
        metric="rmse",
        details={
            "film": shared.name,
            "title": ratings.titles[shared.item - 1],
            "item": shared.item,
            "split": split,
            "seed": seed,
            "similarity": options.similarity,
            "neighbors": options.neighbors,
            "min_co_raters": options.min_co_raters,
            "test_fraction": options.test_fraction,
            "validation_fraction": options.validation_fraction,
        },
    )
