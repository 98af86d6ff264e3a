"""The replay against the oracle of plain loops, which shares no code with it."""

import numpy as np
import pytest

from agents.replay import answered_links, replay
from graphact import nn
from graphact_agents.log import Began, RoundClosed
from support import oracle
from support.graphs import random_case
from support.on_agents import to_model

OPS = {"max": "max-ga", "median": "median-ga", "kernel": "kernel-ga"}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("op", OPS)
def test_with_all_links_and_with_links_lost_for_the_whole_inference(seed, op):
    case = random_case(seed)
    features = case.x.shape[-1]
    model = to_model(
        nn.GCNN(
            [features, 3], order=2, activation=OPS[op], hops=2, out_features=None, gamma=0.9, closed=bool(seed % 2)
        ).double()
    )
    kept = case.edges & (np.random.default_rng(seed).random(case.edges.shape) < (0.6 if seed % 3 else 1.0))
    np.fill_diagonal(kept, np.diag(case.edges))
    matrix = np.where(kept, case.matrix, 0.0)
    size = len(matrix)
    links = kept & ~np.eye(size, dtype=bool)
    actual = replay(
        model, case.matrix, case.x, np.repeat(links[None], model.rounds, 0), np.ones((model.rounds, size), bool)
    )
    parameters = model.parameters
    filtered = oracle.graph_filter(matrix, case.x, parameters["filters.0.taps"])
    beta, weights = float(parameters["activations.0.beta"]), parameters["activations.0.weights"]
    closed = bool(seed % 2) and op != "kernel"
    expected = oracle.activation("graph_adaptive", matrix, links, filtered, beta, weights, op, 0.9, closed)
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12)


def test_values_of_dead_nodes_show():
    """Node 1 closed no round: whoever used it later gets NaN, whoever did not does not."""
    model = to_model(nn.GraphFilter(1, 1, order=2).double())
    matrix = np.ones((3, 3)) - np.eye(3)
    used = np.zeros((2, 3, 3), bool)
    used[0, 0, 1] = used[1, 2, 1] = True
    closed = np.array([[True, False, True], [True, False, True]])
    out = replay(model, matrix, np.ones((3, 1)), used, closed)
    assert np.isnan(out).squeeze().tolist() == [False, True, True]


def test_links_from_logs():
    logs = [[Began(4, 1), RoundClosed(4, 0, (1, 2))], [RoundClosed(3, 0, (0,))], [RoundClosed(4, 1, ())]]
    used, closed = answered_links(logs, run=4, rounds=2)
    assert np.argwhere(used).tolist() == [[0, 0, 1], [0, 0, 2]]
    assert np.argwhere(closed).tolist() == [[0, 0], [1, 2]]
