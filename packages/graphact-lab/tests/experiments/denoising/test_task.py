from dataclasses import replace

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact_lab.data.molene import kilometres_of
from graphact_lab.experiments.denoising.task import noisy_hours, station_graph
from graphact_lab.tasks import DataError, denoising, denoising_tasks, metric_of, read_molene


@pytest.fixture
def temperatures(molene_folder):
    return read_molene(molene_folder)


def make(temperatures, split=0, seed=0, snr_db=3.0, dtype=torch.float64):
    return noisy_hours(temperatures, station_graph(temperatures), split, seed, snr_db, dtype)


def test_shapes_and_sizes(temperatures):
    task = make(temperatures, dtype=torch.float32)
    assert task.inputs.shape == task.targets.shape == (744, 14, 1)
    assert (task.train.numel(), task.validation.numel(), task.test.numel()) == (595, 74, 75)
    assert (task.name, task.node, task.out_features, task.loss, task.metric) == ("denoising", None, 1, "mse", "rmse")
    assert task.inputs.dtype == task.targets.dtype == task.graph.dtype == torch.float32


def test_targets_are_temperatures_minus_one_mean_of_the_training_hours(temperatures):
    task = make(temperatures)
    mean = temperatures.kelvin[task.train.numpy()].mean()
    np.testing.assert_allclose(task.targets.squeeze(-1).numpy(), temperatures.kelvin - mean, atol=1e-9)
    assert task.details["mean_kelvin"] == pytest.approx(mean)
    assert abs(task.targets[task.train].mean()) < 1e-9


@pytest.mark.parametrize("snr_db", [-3.0, 0.0, 3.0, 20.0])
def test_the_noise_has_the_asked_power(temperatures, snr_db):
    task = make(temperatures, snr_db=snr_db)
    noise = task.inputs - task.targets
    measured = 10 * torch.log10(task.targets.square().mean() / noise.square().mean())
    assert measured.item() == pytest.approx(snr_db, abs=0.15)
    assert noise.std().item() == pytest.approx(task.details["noise_kelvin"], rel=0.02)
    assert abs(noise.mean()) < 0.03 * noise.std()


def test_the_noise_is_white(temperatures):
    task = make(temperatures)
    noise = (task.inputs - task.targets).squeeze(-1) / task.details["noise_kelvin"]
    assert (noise.T.cov() - torch.eye(14)).abs().max() < 0.2


def test_one_noise_serves_all_ratios(temperatures):
    low, high = make(temperatures, snr_db=0.0), make(temperatures, snr_db=20.0)
    torch.testing.assert_close(low.inputs - low.targets, 10 * (high.inputs - high.targets))


def test_the_same_numbers_give_the_same_task_bit_for_bit(temperatures):
    first, second = make(temperatures, split=2, seed=3), make(temperatures, split=2, seed=3)
    assert torch.equal(first.inputs, second.inputs)
    assert torch.equal(first.train, second.train)


@pytest.mark.parametrize("changes", [{"split": 1}, {"seed": 1}])
def test_other_numbers_give_other_splits_and_noise(temperatures, changes):
    first, second = make(temperatures), make(temperatures, **changes)
    assert not torch.equal(first.train, second.train)
    assert not torch.allclose(first.inputs - first.targets, second.inputs - second.targets)


def test_the_graph_connects_nearest_stations(temperatures):
    graph = make(temperatures).graph
    dense = graph.to_dense()
    assert torch.linalg.eigvalsh(dense).abs().max().item() == pytest.approx(1)
    expected = Graph.nearest_neighbors(torch.from_numpy(kilometres_of(temperatures.degrees)), 10).to_dense()
    torch.testing.assert_close(dense / dense.max(), expected / expected.max())
    assert graph.degree.min() >= 10
    assert dense[0, 1] > dense[0, 5] > 0


def test_a_named_directory_without_data_is_an_error(tmp_path):
    with pytest.raises(DataError, match="RADOMEH.tar.gz is missing; .*GRAPHACT_DATA or --data"):
        denoising(directory=tmp_path)


def test_the_real_task(real_data):
    task = denoising(split=1, directory=real_data)
    assert task.inputs.shape == (744, 32, 1)
    assert task.graph.num_nodes == 32
    assert torch.linalg.eigvalsh(task.graph.to_dense().double()).abs().max().item() == pytest.approx(1, abs=1e-6)
    assert 281 < task.details["mean_kelvin"] < 281.6
    assert task.details["noise_kelvin"] == pytest.approx(2.07, abs=0.01)


def test_many_real_tasks_are_the_single_ones(real_data):
    tasks = denoising_tasks(splits=2, seed=4, snrs_db=(0.0, 5.0), directory=real_data)
    assert [(task.details["snr_db"], task.details["split"]) for task in tasks] == [(0, 0), (0, 1), (5, 0), (5, 1)]
    single = denoising(split=1, seed=4, snr_db=5.0, directory=real_data)
    assert torch.equal(tasks[-1].inputs, single.inputs)
    assert torch.equal(tasks[-1].test, single.test)
    assert torch.equal(tasks[-1].graph.to_dense(), single.graph.to_dense())
    assert metric_of("rmse", tasks[0].inputs, tasks[0].targets) > metric_of("rmse", tasks[2].inputs, tasks[2].targets)


def test_test_hours_have_no_part_in_the_noise_level_of_training_hours(temperatures):
    """Other temperatures in the hours that are not for training change nothing but these hours."""
    graph, options = station_graph(temperatures), (0, 0, 3.0, torch.float64)
    task = noisy_hours(temperatures, graph, *options, "training hours")
    clean = task.targets[task.train]
    assert task.details["noise_kelvin"] == pytest.approx((clean.square().mean() * 10**-0.3).sqrt().item())
    kelvin = temperatures.kelvin.copy()
    kelvin[np.concatenate([task.validation.numpy(), task.test.numpy()])] += 40.0
    hotter = replace(temperatures, kelvin=kelvin)
    again = noisy_hours(hotter, graph, *options, "training hours")
    assert torch.equal(again.inputs[again.train], task.inputs[task.train])
    assert again.details == task.details
    leaky = [noisy_hours(each, graph, *options).details["noise_kelvin"] for each in (temperatures, hotter)]
    assert leaky[1] > 1.5 * leaky[0]
    with pytest.raises(ValueError, match="noise_from must be one of 'all hours', 'training hours', got 'test'"):
        noisy_hours(temperatures, graph, *options, "test")
