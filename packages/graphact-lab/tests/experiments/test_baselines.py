from dataclasses import replace

import numpy as np
import pytest
import torch

from graphact_lab.experiments.consensus.task import doubly_stochastic_weights, metropolis_weights
from graphact_lab.experiments.denoising.task import noisy_hours, station_graph
from graphact_lab.experiments.recommendation.task import RIDGE_STRENGTHS, Options, audience, on_split
from graphact_lab.tasks import (
    baselines,
    centered_by_user,
    consensus,
    denoising_tasks,
    read_molene,
    recommendation_tasks,
    source_localization,
)


def rmse(error):
    return float(np.sqrt(np.mean(np.square(error))))


@pytest.mark.parametrize("order", [0, 3])
def test_consensus(order):
    task = consensus(dtype=torch.float64)
    found = baselines(task, order=order)
    averaging = [f"{words} weights" for words in ("Metropolis", "doubly stochastic")]
    low = [f"least-squares filter of order {order} with {words}" for words in averaging for order in (5, 10)]
    assert list(found) == ["answer zero", "least-squares FIR", *low]
    assert found["answer zero"] == pytest.approx(rmse(task.targets[task.test].numpy()))
    shift, x, y = task.graph.to_dense().numpy(), task.inputs.squeeze(-1).numpy(), task.targets.squeeze(-1).numpy()
    powers = np.stack([x @ np.linalg.matrix_power(shift, k).T for k in range(order + 1)], axis=-1)
    train, test = task.train.numpy(), task.test.numpy()
    taps = np.linalg.lstsq(powers[train].reshape(-1, order + 1), y[train].reshape(-1), rcond=None)[0]
    assert found["least-squares FIR"] == pytest.approx(rmse(powers[test] @ taps - y[test]))


def test_averaging_weights_beat_any_filter_of_the_adjacency():
    """Dense weights made here, powers instead of polynomials, and the figures that an audit found."""
    task = consensus(dtype=torch.float64)
    found = baselines(task, order=3)
    adjacency = (task.graph.to_dense().numpy() != 0).astype(float)
    degree, n = adjacency.sum(1), len(adjacency)
    weights = np.zeros((n, n))
    for i, j in zip(*np.nonzero(adjacency), strict=True):
        weights[i, j] = 1 / (1 + max(degree[i], degree[j]))
    weights += np.diag(1 - weights.sum(1))
    np.testing.assert_allclose(metropolis_weights(task.graph).numpy(), weights, atol=1e-15)
    scaled = doubly_stochastic_weights(task.graph).numpy()
    np.testing.assert_allclose([scaled.sum(0), scaled.sum(1)], np.ones((2, n)), atol=1e-12)
    assert ((scaled != 0) == (adjacency + np.eye(n) != 0)).all()
    x, y = task.inputs.squeeze(-1).numpy(), task.targets.squeeze(-1).numpy()
    train, test = task.train.numpy(), task.test.numpy()
    for words, matrix in (("Metropolis", weights), ("doubly stochastic", scaled)):
        powers = np.stack([x @ np.linalg.matrix_power(matrix, k).T for k in range(6)], axis=-1)
        taps = np.linalg.lstsq(powers[train].reshape(-1, 6), y[train].reshape(-1), rcond=None)[0]
        expected = rmse(powers[test] @ taps - y[test])
        assert found[f"least-squares filter of order 5 with {words} weights"] == pytest.approx(expected, rel=1e-6)
    assert found["least-squares filter of order 5 with Metropolis weights"] == pytest.approx(0.0025, abs=0.001)
    assert found["least-squares filter of order 10 with Metropolis weights"] < 2e-5


def test_denoising(molene_folder):
    temperatures = read_molene(molene_folder)
    task = noisy_hours(temperatures, station_graph(temperatures), 0, 0, 3.0, torch.float64)
    found = baselines(task)
    x, y = task.inputs.squeeze(-1).numpy(), task.targets.squeeze(-1).numpy()
    train, test = task.train.numpy(), task.test.numpy()
    hour, constant = x.mean(1, keepdims=True), np.ones((len(x), 1))
    offset = (y[train] - hour[train]).mean(0)
    affine = np.hstack([x, constant])
    linear_weights = np.linalg.lstsq(x[train], y[train], rcond=None)[0]
    affine_weights = np.linalg.lstsq(affine[train], y[train], rcond=None)[0]
    # one station at a time: E[(x - m)(x - m)^T] w = E[(x - m) (y_i - m_i)], with the noise added to the clean moments
    mean = y[train].mean(0)
    clean = (y[train] - mean).T @ (y[train] - mean) / len(train)
    noisy = clean + task.details["noise_kelvin"] ** 2 * np.eye(len(clean))
    filters = [np.linalg.solve(noisy, clean[:, station]) for station in range(len(clean))]
    wiener = np.stack([mean[i] + (x[test] - mean) @ filters[i] for i in range(len(clean))], axis=1)
    near, linked = np.empty_like(wiener), task.graph.to_dense().numpy() != 0
    for i in range(len(clean)):  # the same from the station and its neighbours alone
        heard = np.flatnonzero(linked[i] | (np.arange(len(clean)) == i))
        near[:, i] = mean[i] + (x[test] - mean)[:, heard] @ np.linalg.solve(
            noisy[np.ix_(heard, heard)], clean[heard, i]
        )
    assert list(found.values()) == pytest.approx(
        [
            rmse(x[test] - y[test]),
            rmse(hour[test] + offset - y[test]),
            rmse(x[test] @ linear_weights - y[test]),
            rmse(affine[test] @ affine_weights - y[test]),
            rmse(wiener - y[test]),
            rmse(near - y[test]),
        ]
    )


def film_task(ratings, **changes):
    options = replace(Options("pearson", 4, 5, 0.2, 0.2, torch.float64), **changes)
    return on_split(ratings, audience(ratings, 3, torch.float64), 0, 0, options)


def ridge(features, wanted, strength):
    """Weights by the normal equations, an independent way to the same answer."""
    return np.linalg.solve(features.T @ features + strength * np.eye(features.shape[1]), features.T @ wanted)


def test_recommendation(ratings):
    task = film_task(ratings)
    found = baselines(task)
    x, y = task.inputs.squeeze(-1).numpy(), task.targets.numpy()
    train, validation, test = task.train.numpy(), task.validation.numpy(), task.test.numpy()
    mean = np.array([row[row > 0].mean() for row in x])
    features, wanted = np.where(x > 0, x - mean[:, None], 0), y - mean
    offset = wanted[train].mean()

    def error(strength, where):
        weights = ridge(features[train], wanted[train] - offset, strength)
        return rmse(wanted[where] - offset - features[where] @ weights)

    best = min(RIDGE_STRENGTHS, key=lambda strength: error(strength, validation))
    rated = [(u, i, x[u, i]) for u in train for i in range(x.shape[1]) if x[u, i] > 0] + [(u, 2, y[u]) for u in train]
    average = np.mean([stars for _, _, stars in rated])
    film = [
        sum(stars - average for _, j, stars in rated if j == i) / (sum(j == i for _, j, _ in rated) + 5)
        for i in range(x.shape[1])
    ]
    user = [
        sum(x[u, i] - average - film[i] for i in np.flatnonzero(x[u])) / (np.count_nonzero(x[u]) + 40) for u in test
    ]
    biased = rmse(y[test] - average - film[2] - user)
    expected = [rmse(y[test] - y[train].mean()), rmse(y[test] - mean[test] - offset), biased, error(best, test)]
    assert list(found.values()) == pytest.approx(expected)


def test_ridge_without_validation_chooses_by_leaving_one_out(ratings):
    task = film_task(ratings, validation_fraction=0.0)
    centred = centered_by_user(task)
    features, wanted = centred.inputs.squeeze(-1).numpy(), centred.targets.numpy()
    train, test = task.train.numpy(), task.test.numpy()
    offset = wanted[train].mean()

    def left_out(strength):
        errors = []
        for sample in train:
            rest = train[train != sample]
            weights = ridge(features[rest], wanted[rest] - offset, strength)
            errors.append(wanted[sample] - offset - features[sample] @ weights)
        return rmse(errors)

    weights = ridge(features[train], wanted[train] - offset, min(RIDGE_STRENGTHS, key=left_out))
    expected = rmse(wanted[test] - offset - features[test] @ weights)
    assert baselines(task)["ridge regression on the user's centred ratings"] == pytest.approx(expected)


def test_the_precision_of_a_task_does_not_matter():
    exact, rounded = baselines(consensus(dtype=torch.float64), order=5), baselines(consensus(), order=5)
    assert list(exact.values()) == pytest.approx(list(rounded.values()), rel=1e-5)


def test_mistakes_are_named(ratings):
    with pytest.raises(ValueError, match="task.name must be one of 'source-localization'.*got 'chess'"):
        baselines(replace(source_localization(), name="chess"))
    with pytest.raises(ValueError, match="order must be at least 0, got -1"):
        baselines(source_localization(), order=-1)
    with pytest.raises(ValueError, match="ratings as the users gave them"):
        baselines(centered_by_user(film_task(ratings)))


def means(tasks):
    figures = [list(baselines(task).values()) for task in tasks]
    return np.mean(figures, axis=0).tolist()


def test_the_figures_of_molene(real_data):
    assert means(denoising_tasks(splits=10, directory=real_data))[:3] == pytest.approx([2.07, 1.13, 0.87], abs=0.04)


@pytest.mark.slow
def test_the_figures_of_movielens(real_data):
    found = means(recommendation_tasks(["toy-story"], splits=5, directory=real_data))
    assert found == pytest.approx([0.926, 0.860, 0.847, 0.885], abs=0.1)
