"""Consensus under link loss, by agents and centralised: the same in distribution.

In both cases every link is lost with probability p for a whole inference, in both directions, and the error is the RMSE
of a trained network over the test signals, one error for each draw of links. The two samples of errors are compared by
the two-sample Kolmogorov-Smirnov statistic; equal distributions are not rejected at the level 0.01 (the seeds are
fixed, so the test gives the same answer every time).
"""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from graphact import nn
from graphact.training import Task, TrainingSettings, fit
from graphact_agents import Faults, Timing, simulate_inference
from graphact_lab.data.communities import BlockModel
from support.on_agents import deploy

LEVEL = 0.01
LOSSES = (0.025, 0.05, 0.075, 0.1, 0.125, 0.15)
DRAWS = 16
SIGNALS = 300


@cache
def trained():
    """A network trained for consensus on a smaller graph of the paper's kind, and its test signals."""
    generator = torch.Generator().manual_seed(0)
    graph = BlockModel(5, 6).draw(generator)
    signals = torch.randn(SIGNALS, graph.num_nodes, 1, dtype=torch.float64, generator=generator)
    targets = signals.mean(1, keepdim=True).repeat(1, graph.num_nodes, 1)
    places = torch.arange(SIGNALS)
    torch.manual_seed(0)
    task = Task(
        "consensus", graph, signals, targets, places[:240], places[240:270], places[270:], None, 1, "mse", "rmse", {}
    )
    model = nn.GCNN([1, 4], order=3, activation="max-ga", hops=1).double()
    result = fit(model, task, TrainingSettings(epochs=30, learning_rate=0.02))
    assert result.test < 0.13  # answering zero gives 0.18
    return model, graph, signals[270:].numpy(), targets[270:].numpy()


def errors_of_agents(p, seed):
    model, graph, signals, targets = trained()
    stream = np.repeat(signals[np.newaxis], DRAWS, 0)
    timing = Timing(slot=0.05, request_after=0.04)
    answer = simulate_inference(deploy(model, graph), stream, faults=Faults(link_loss=p), timing=timing, seed=seed)
    for run, lost in enumerate(answer.outcome.lost_links):
        check_exact(answer.outputs[run], signals, lost)
    return np.sqrt(np.square(answer.outputs - targets).mean((1, 2, 3)))


def check_exact(outputs, signals, lost):
    """With the same links lost, the centralised model gives the same numbers."""
    model, graph, _, _ = trained()
    matrix = graph.to_dense().clone()
    for i, j in lost:
        matrix[i, j] = matrix[j, i] = 0.0
    with torch.no_grad():
        expected = model(torch.from_numpy(signals), type(graph).from_dense(matrix)).numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-12, atol=1e-12)


def errors_centralised(p, seed, draws=200):
    model, graph, signals, targets = trained()
    generator = torch.Generator().manual_seed(seed)
    errors = []
    with torch.no_grad():
        for _ in range(draws):
            outputs = model(torch.from_numpy(signals), graph.drop_edges(p, generator=generator)).numpy()
            errors.append(np.sqrt(np.square(outputs - targets).mean()))
    return np.array(errors)


@pytest.mark.slow
@pytest.mark.parametrize("p", LOSSES)
def test_the_errors_have_the_same_distribution(p):
    agents, centralised = errors_of_agents(p, seed=1), errors_centralised(p, seed=2)
    assert ks_2samp(agents, centralised).pvalue > LEVEL


def test_the_statistic_sees_a_difference():
    """Half the loss is told apart from the whole: the test above can fail."""
    assert ks_2samp(errors_centralised(0.05, 3, DRAWS), errors_centralised(0.1, 2)).pvalue < LEVEL


def test_errors_grow_with_loss():
    means = [errors_centralised(p, 2, 50).mean() for p in LOSSES]
    assert means == sorted(means)
