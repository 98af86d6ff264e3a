import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact_lab.experiments.denoising.task import (
    CHANNELS,
    MEAN_UNIT,
    SPREAD_UNIT,
    TEMPERATURE_UNIT,
    TYPICAL_SPREAD,
    noisy_hours,
)
from graphact_lab.tasks import Temperatures, consensus, denoising_tasks, metric_of, with_local_estimate
from support.tolerances import assert_near

STATIONS, HOURS, TRAINING_HOURS = 7, 300, 240
NOISY, ESTIMATE, SPREAD, MEAN = range(4)

# Station 5 hears station 0, over an edge of weight zero, and not the other way round; station 6 hears nobody.
EDGES = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2), (3, 4), (4, 3), (4, 5), (0, 5)]
WEIGHTS = [0.5] * 9 + [0.0]
HEARD = [[0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4], [0, 4, 5], [6]]


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edge_index(torch.tensor(EDGES).T, torch.tensor(WEIGHTS, dtype=torch.float64), STATIONS)


@pytest.fixture(scope="module")
def temperatures():
    """Hours in which nearby stations are alike, each with a mean and a spread of its own."""
    random = np.random.default_rng(3)
    place = np.arange(STATIONS)
    alike = np.exp(-np.abs(place[:, None] - place) / 3)
    shared = random.normal(size=(HOURS, STATIONS)) @ np.linalg.cholesky(alike).T
    kelvin = 280 + random.normal(size=STATIONS) + (1 + place / 3) * shared
    names = tuple(f"{station}" for station in place)
    return Temperatures(names, np.zeros((STATIONS, 2)), kelvin)


@pytest.fixture
def task(temperatures, graph):
    return noisy_hours(temperatures, graph, 1, 2, 3.0, torch.float64)


def arrays(task):
    return task.inputs.squeeze(-1).numpy(), task.targets.squeeze(-1).numpy(), task.train.numpy()


def local_estimates(task):
    """Means, spreads and estimates of all stations and hours in kelvin, station by station and sum by sum."""
    noisy, clean, train = arrays(task)
    variance = task.details["noise_kelvin"] ** 2
    means = [sum(clean[t, i] for t in train) / len(train) for i in range(STATIONS)]

    def covariance(i, j):
        return sum((clean[t, i] - means[i]) * (clean[t, j] - means[j]) for t in train) / len(train)

    estimates = np.zeros_like(noisy)
    for i, heard in enumerate(HEARD):
        matrix = [[covariance(j, k) + variance * (j == k) for k in heard] for j in heard]
        weights = np.linalg.inv(matrix) @ [covariance(j, i) for j in heard]
        for weight, j in zip(weights, heard, strict=True):
            estimates[:, i] += weight * (noisy[:, j] - means[j])
    return np.array(means), np.array([covariance(i, i) ** 0.5 for i in range(STATIONS)]), estimates


def test_features_and_targets_are_those_of_the_definition(task):
    made = with_local_estimate(task)
    noisy, clean, _ = arrays(task)
    means, spreads, estimates = local_estimates(task)
    assert made.inputs.shape == (HOURS + 12 * TRAINING_HOURS, STATIONS, len(CHANNELS))
    assert_near(made.inputs[:HOURS, :, NOISY] * TEMPERATURE_UNIT, noisy - means)
    assert_near(made.inputs[:HOURS, :, ESTIMATE] * TEMPERATURE_UNIT, estimates)
    assert_near(made.inputs[:, :, SPREAD] * SPREAD_UNIT + TYPICAL_SPREAD, np.tile(spreads, (len(made.inputs), 1)))
    assert_near(made.inputs[:, :, MEAN] * MEAN_UNIT, np.tile(means, (len(made.inputs), 1)))
    assert_near(made.targets[:HOURS, :, 0], clean - means - estimates)


def test_the_temperature_is_mean_plus_estimate_plus_target(task):
    made = with_local_estimate(task, copies=2)
    start = made.inputs[..., MEAN] * MEAN_UNIT + made.inputs[..., ESTIMATE] * TEMPERATURE_UNIT
    recovered = start.unsqueeze(-1) + made.targets
    assert_near(recovered[:HOURS], task.targets)
    assert_near(recovered[HOURS:], task.targets[task.train].repeat(2, 1, 1))


def test_copies_are_training_hours_with_fresh_noise_of_the_same_variance(task):
    made = with_local_estimate(task, copies=5)
    assert torch.equal(made.train, torch.cat([task.train, torch.arange(HOURS, HOURS + 5 * TRAINING_HOURS)]))
    assert torch.equal(made.validation, task.validation)
    assert torch.equal(made.test, task.test)
    measured = (made.inputs[..., NOISY] * TEMPERATURE_UNIT).double()
    known = task.targets[task.train, :, 0] - task.targets[task.train, :, 0].mean(dim=0)
    noise = torch.cat([measured[task.train], measured[HOURS:]]).reshape(6, *known.shape) - known
    noise = noise / task.details["noise_kelvin"]
    assert (noise.square().mean(dim=(1, 2)) - 1).abs().max() < 0.1
    assert (noise.flatten(1) @ noise.flatten(1).T / known.numel() - torch.eye(6)).abs().max() < 0.1
    together = noise.flatten(0, 1)
    assert (together.T @ together / len(together) - torch.eye(STATIONS)).abs().max() < 0.15


@pytest.mark.parametrize("changes", [{"split": 2}, {"seed": 3}])
def test_other_splits_and_seeds_have_other_copies(task, changes):
    other = with_local_estimate(replace(task, details={**task.details, **changes}))
    made = with_local_estimate(task)
    assert torch.equal(made.inputs[:HOURS], other.inputs[:HOURS])
    assert not torch.isclose(made.inputs[HOURS:, :, NOISY], other.inputs[HOURS:, :, NOISY]).all(dim=1).any()


def test_the_given_task_stays_and_details_say_what_was_done(task):
    inputs, targets = task.inputs.clone(), task.targets.clone()
    made, again = with_local_estimate(task, copies=3), with_local_estimate(task, copies=3)
    assert torch.equal(made.inputs, again.inputs)
    assert torch.equal(task.inputs, inputs)
    assert torch.equal(task.targets, targets)
    assert made.graph is task.graph
    assert (made.name, made.node, made.out_features, made.loss, made.metric) == ("denoising", None, 1, "mse", "rmse")
    assert json.loads(json.dumps(made.details)) == {
        **task.details,
        "local_estimate": True,
        "noisy_copies": 3,
        "channels": ["noisy", "local estimate", "spread", "mean"],
    }


def test_other_tasks_and_a_second_time_are_errors(task):
    with pytest.raises(ValueError, match="task must be a denoising task, got 'consensus'"):
        with_local_estimate(consensus())
    with pytest.raises(ValueError, match="measurements as they are, got one that holds local estimates already"):
        with_local_estimate(with_local_estimate(task, copies=0))
    with pytest.raises(ValueError, match="one input feature, got 2"):
        with_local_estimate(replace(task, inputs=task.inputs.expand(-1, -1, 2)))
    with pytest.raises(ValueError, match=r"split, seed and noise_kelvin, got none for \['noise_kelvin', 'split'\]"):
        with_local_estimate(replace(task, details={"seed": 0}))
    with pytest.raises(ValueError, match="copies must be"):
        with_local_estimate(task, copies=-1)


@pytest.mark.parametrize("factor", [0.0, 0.8, 1.2, float("nan")])
def test_noise_that_the_training_hours_contradict_is_an_error(task, factor):
    details = {**task.details, "noise_kelvin": task.details["noise_kelvin"] * factor}
    with pytest.raises(ValueError, match="noise_kelvin'.* must be positive and agree to 10% with the noise of the"):
        with_local_estimate(replace(task, details=details))


def test_the_real_local_estimate(real_data):
    tasks = [task for seed in (1, 2) for task in denoising_tasks(10, seed, directory=real_data)]
    made = [with_local_estimate(task, copies=0) for task in tasks]
    left = [task.targets[task.test] for task in made]
    errors = [metric_of("rmse", torch.zeros_like(error), error) for error in left]
    assert torch.stack(errors).mean().item() == pytest.approx(0.841, abs=0.002)
    assert made[0].inputs[made[0].train].std(dim=(0, 1)).min() > 0.4
    assert made[0].inputs[made[0].train].abs().max() < 8
