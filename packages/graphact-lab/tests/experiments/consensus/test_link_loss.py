"""Trained networks on graphs that lost links."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphact.training import Fleet, metric_of
from graphact_lab.descriptions import find_protocol
from graphact_lab.experiments.consensus.experiment import EXPERIMENT
from graphact_lab.experiments.consensus.task import AVERAGING, by_centrality, lossy_metric, metropolis_weights
from graphact_lab.protocols import jobs_of, run_seed
from graphact_lab.runner import make_models


@pytest.mark.parametrize("preparation", ["none", "by-centrality"])
def test_nodes_prepare_their_signals_with_the_links_that_are_left(preparation):
    protocol = replace(find_protocol("consensus", "smoke", "best"), preparation=preparation, loss_realizations=1)
    job = next(job for job in jobs_of(protocol, 3) if job.method == "max-ga")
    plain = EXPERIMENT.make_tasks(protocol, {}, 3, None)
    tasks = EXPERIMENT.prepare_tasks(protocol, {}, plain, 3, None)
    models = make_models(job, tasks)
    found = lossy_metric(Fleet(models, tasks), plain, 0.15, job)
    generator = torch.Generator().manual_seed(run_seed("loss", 3, 0, 0, 0.15))
    thin = plain[0].graph.drop_edges(0.15, generator=generator)
    for model, task, metric in zip(models, plain, found, strict=True):
        signals = task.inputs if preparation == "none" else by_centrality(task.inputs, thin)
        with torch.no_grad():
            answers = model(signals[task.test], thin)
        assert metric == pytest.approx(metric_of("rmse", answers, task.targets[task.test]).item(), rel=1e-4)


def test_without_loss_nothing_changes():
    protocol = replace(find_protocol("consensus", "smoke", "best"), loss_realizations=1)
    job = jobs_of(protocol, 0)[0]
    plain = EXPERIMENT.make_tasks(protocol, {}, 0, None)
    tasks = EXPERIMENT.prepare_tasks(protocol, {}, plain, 0, None)
    fleet = Fleet(make_models(job, tasks), tasks)
    assert lossy_metric(fleet, plain, 0.0, job) == pytest.approx(fleet.metric("test").tolist(), rel=1e-4)


def test_loss_is_drawn_anew_for_every_graph_and_realization_and_averaged():
    protocol = replace(
        find_protocol("consensus", "smoke", "best"), preparation="none", graphs=2, splits=2, loss_realizations=3
    )
    job = jobs_of(protocol, 0)[0]
    plain = EXPERIMENT.make_tasks(protocol, {}, 0, None)
    models = make_models(job, plain)
    found = lossy_metric(Fleet(models, plain), plain, 0.15, job)
    graphs = list({id(task.graph): task.graph for task in plain}.values())
    assert len(graphs) == 2
    thinned = {
        (number, realization): graph.drop_edges(
            0.15, generator=torch.Generator().manual_seed(run_seed("loss", 0, number, realization, 0.15))
        )
        for number, graph in enumerate(graphs)
        for realization in range(3)
    }
    for model, task, value in zip(models, plain, found, strict=True):
        number = next(number for number, graph in enumerate(graphs) if graph is task.graph)
        errors = []
        for realization in range(3):
            answers = model(task.inputs[task.test], thinned[number, realization])
            errors.append(metric_of(task.metric, task.read(answers), task.targets[task.test]).item())
        assert len(set(errors)) == 3
        assert value == pytest.approx(sum(errors) / 3, rel=1e-4)


def test_averaging_filters_take_the_weights_of_the_links_that_are_left():
    protocol = replace(find_protocol("consensus", "smoke", "paper"), graphs=2, splits=2, loss_realizations=2)
    protocol = replace(protocol, loss_probabilities=(0.1, 0.3))
    plain = EXPERIMENT.make_tasks(protocol, {}, 5, None)
    found = EXPERIMENT.evaluate_baselines(protocol, plain, 5)
    assert [condition for condition, _ in found] == [{"loss_probability": 0.1}, {"loss_probability": 0.3}]
    names = [f"least-squares filter of order {k} with {w} weights" for w in AVERAGING for k in (5, 10)]
    for condition, figures in found:
        probability = condition["loss_probability"]
        assert [list(figure) for figure in figures] == [names] * 4
        for place, (task, figure) in enumerate(zip(plain, figures, strict=True)):
            expected = []
            for realization in range(2):
                seed = run_seed("loss", 5, place // 2, realization, probability)
                thin = task.graph.drop_edges(probability, generator=torch.Generator().manual_seed(seed))
                expected.append(error_of_powers(task, metropolis_weights(thin), order=5))
            assert figure[names[0]] == pytest.approx(np.mean(expected), rel=1e-6)
            assert figure[names[1]] < figure[names[0]]  # more exchanges, less error
    assert all(few[names[1]] < many[names[1]] for few, many in zip(found[0][1], found[1][1], strict=True))


def error_of_powers(task, matrix, order):
    """The test RMSE of the filter of powers of ``matrix`` whose taps are fitted on the whole graph, in NumPy."""
    x, y = task.inputs.double().squeeze(-1).numpy(), task.targets.double().squeeze(-1).numpy()

    def powers(samples, own):
        return np.stack([x[samples] @ np.linalg.matrix_power(own, k).T for k in range(order + 1)], -1)

    whole = metropolis_weights(task.graph).numpy()
    taps = np.linalg.lstsq(powers(task.train, whole).reshape(-1, order + 1), y[task.train].ravel(), rcond=None)[0]
    return np.sqrt(np.mean((powers(task.test, matrix.numpy()) @ taps - y[task.test]) ** 2))
