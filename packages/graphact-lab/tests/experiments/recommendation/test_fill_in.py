from dataclasses import asdict, replace
from json import dumps

import numpy as np
import pytest
import torch

from graphact_lab.experiments.recommendation.films import FillIn, filled_in, film_biases
from graphact_lab.experiments.recommendation.task import Options, audience, on_split
from graphact_lab.tasks import (
    baselines,
    centered_by_user,
    metric_of,
    recommendation,
    recommendation_tasks,
)

# Unlike the defaults in every number, and such that each of them makes a difference for 60 users and 15 films.
SETTINGS = FillIn(
    film_shrinkage=2.0,
    user_shrinkage=3.0,
    similarity_shrinkage=8.0,
    min_co_raters=9,
    neighbors=2,
    power=2.0,
    damping=0.1,
)
NODE = 2


def make(ratings, fill_in=SETTINGS, validation_fraction=0.2, dtype=torch.float64):
    options = Options("pearson", 10, 10, 0.2, validation_fraction, dtype, fill_in)
    return on_split(ratings, audience(ratings, NODE + 1, dtype), 0, 0, options)


def raters_of(ratings):
    return np.flatnonzero(ratings.matrix[:, NODE])


def oracle(known, asked, settings):
    """Similarities, signals and expected ratings by loops over single ratings."""
    films = range(known.shape[1])
    given = [rating for row in known for rating in row if rating]
    mean = sum(given) / len(given)
    film = []
    for i in films:
        above = [row[i] - mean for row in known if row[i]]
        film.append(sum(above) / (len(above) + settings.film_shrinkage))

    def apart(row):
        """The user's bias, and the residuals of the films rated."""
        above = {i: row[i] - mean - film[i] for i in films if row[i]}
        user = sum(above.values()) / (len(above) + settings.user_shrinkage)
        return user, {i: value - user for i, value in above.items()}

    users = [apart(row)[1] for row in known]
    similarity = np.zeros((len(films), len(films)))
    for i in films:
        for j in films:
            common = [(user[i], user[j]) for user in users if i in user and j in user]
            if i != j and len(common) >= settings.min_co_raters:
                rho = sum(a * b for a, b in common)
                rho /= (sum(a * a for a, _ in common) * sum(b * b for _, b in common)) ** 0.5
                similarity[i, j] = max(rho, 0) * len(common) / (len(common) + settings.similarity_shrinkage)
    graph = np.zeros_like(similarity)
    for i in films:
        for j in sorted(films, key=lambda other: -similarity[i, other])[: settings.neighbors]:
            graph[i, j] = graph[j, i] = similarity[i, j]
    signals, expected = np.zeros(asked.shape), np.zeros(asked.shape)
    for number, row in enumerate(asked):
        user, residual = apart(row)
        for i in films:
            weight = {j: graph[i, j] ** settings.power for j in residual}
            guess = sum(weight[j] * residual[j] for j in residual) / (sum(weight.values()) + settings.damping)
            signals[number, i] = user + residual.get(i, guess)
            expected[number, i] = mean + film[i] + user + guess
    return graph, signals, expected


def known_and_asked(ratings, task):
    """The users that a split may learn films from, and the samples as the network may see them."""
    raters = raters_of(ratings)
    reserved = set(raters[torch.cat([task.validation, task.test]).numpy()].tolist())
    known = np.array([row for user, row in enumerate(ratings.matrix) if user not in reserved])
    asked = ratings.matrix[raters].copy()
    asked[:, NODE] = 0
    return known, asked


CASES = [
    {},
    {"film_shrinkage": 20.0},
    {"user_shrinkage": 30.0},
    {"similarity_shrinkage": 100.0},
    {"min_co_raters": 14},
    {"neighbors": 1},
    {"neighbors": 15},
    {"power": 3.0},
    {"damping": 1.0},
]


@pytest.mark.parametrize("changes", CASES, ids=str)
def test_against_one_rating_at_a_time(ratings, changes):
    settings = replace(SETTINGS, **changes)
    task = make(ratings, settings)
    graph, signals, expected = oracle(*known_and_asked(ratings, task), settings)
    shift = task.graph.to_dense().numpy()
    np.testing.assert_allclose(shift, graph / np.abs(np.linalg.eigvalsh(graph)).max(), atol=1e-10)
    np.testing.assert_allclose(task.inputs.squeeze(-1).numpy(), signals, atol=1e-10)
    stars = ratings.matrix[raters_of(ratings), NODE]
    np.testing.assert_allclose(task.targets.numpy(), stars - expected[:, NODE], atol=1e-10)
    assert not task.graph.is_directed
    assert task.graph.num_edges > 0


def test_the_samples_and_splits_are_those_of_the_ratings_as_they_are(ratings):
    plain, filled = make(ratings, fill_in="as rated"), make(ratings)
    for name in ("train", "validation", "test"):
        assert torch.equal(getattr(plain, name), getattr(filled, name))
    assert plain.targets.tolist() == ratings.matrix[raters_of(ratings), NODE].tolist()
    assert (filled.name, filled.node, filled.out_features) == (plain.name, plain.node, plain.out_features)
    assert "inputs" not in plain.details
    assert ratings.matrix[raters_of(ratings), NODE].all(), "the ratings themselves must not be zeroed"


def test_details_say_what_was_done(ratings):
    details = make(ratings).details
    assert (details["inputs"], details["fill_in"]) == ("filled in", asdict(SETTINGS))
    assert (details["similarity"], details["neighbors"]) == ("shrunk correlation of residuals", 2)
    dumps(details)


def test_of_a_user_without_other_ratings_the_film_tells_all(ratings):
    known = ratings.matrix[1:]
    found = filled_in(known, np.zeros((1, 15)), SETTINGS)
    mean, film = film_biases(known, SETTINGS.film_shrinkage)
    assert not found.signals.any()
    np.testing.assert_allclose(found.expected[0], mean + film)


def test_films_that_nobody_rated_or_that_are_like_none(ratings):
    known = ratings.matrix.copy()
    known[:, 9] = 0
    found = filled_in(known, ratings.matrix, SETTINGS)
    assert found.graph.degree[9] == 0
    assert np.isfinite(found.signals).all()
    assert np.isfinite(found.expected).all()


def test_ratings_that_biases_explain_make_no_film_similar():
    found = filled_in(np.full((20, 4), 3.0), np.full((2, 4), 3.0), FillIn(neighbors=2))
    assert found.graph.num_edges == 0
    np.testing.assert_allclose(found.expected, 3.0)


def test_what_needs_ratings_as_they_are_refuses_filled_in_ones(ratings):
    for function in (baselines, centered_by_user):
        with pytest.raises(ValueError, match="task must hold ratings as the users gave them"):
            function(make(ratings))


def test_more_neighbors_than_films(ratings):
    with pytest.raises(ValueError, match="neighbors must be at most the number of films, 15, got 16"):
        make(ratings, replace(SETTINGS, neighbors=16))


def test_nobody_to_learn_from():
    with pytest.raises(ValueError, match="ratings must hold at least one rating, got none"):
        filled_in(np.zeros((0, 4)), np.ones((1, 4)), FillIn(neighbors=2))


@pytest.mark.parametrize("make_tasks", [recommendation, lambda **options: recommendation_tasks(["contact"], **options)])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": "guessed"}, "inputs must be one of 'as rated', 'filled in', got 'guessed'"),
        (
            {"inputs": "filled in", "similarity": "co-rated-variance"},
            "similarity must be left as it is where inputs are filled in.*got 'co-rated-variance'",
        ),
        ({"inputs": "filled in", "neighbors": 20}, "neighbors must be left as it is.*got 20"),
        ({"inputs": "filled in", "min_co_raters": 5}, "min_co_raters must be left as it is.*got 5"),
    ],
)
def test_options_that_do_not_go_together(make_tasks, options, message):
    with pytest.raises(ValueError, match=message):
        make_tasks(**options)


@pytest.mark.slow
def test_the_real_ratings(real_data):
    options = dict(seed=1, inputs="filled in", validation_fraction=0.0, directory=real_data)
    tasks = recommendation_tasks(["return-of-the-jedi"], splits=2, **options)
    alone = []
    for task in tasks:
        assert task.inputs.shape == (507, 1682, 1)
        assert task.inputs.dtype == torch.float32
        assert task.details["fill_in"] == asdict(FillIn())
        assert 60_000 < task.graph.num_edges < 90_000
        offset = task.targets[task.train].mean()
        alone.append(metric_of("rmse", offset.expand(task.test.numel(), 1), task.targets[task.test]).item())
    # made by a program that shares no code with this one but the splits; a constant reaches 0.9
    assert alone == pytest.approx([0.5613, 0.6646], abs=2e-4)
    single = recommendation("return-of-the-jedi", 1, **options)
    assert torch.equal(single.inputs, tasks[1].inputs)
    assert torch.equal(single.targets, tasks[1].targets)
