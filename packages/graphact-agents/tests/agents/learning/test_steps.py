"""Single steps: equality with the centralised step, what they cost, and that nobody but neighbours is asked."""

import numpy as np
import pytest

from agents.learning.problems import cost_of_step, step_rounds, train_centrally
from agents.networks import GRAPHS, directed
from graphact import nn
from graphact_agents.learning import (
    Learner,
    Learning,
    learner,
    mixing,
    simulate_training,
)
from graphact_agents.learning.learner import preparation_rounds, samples_of
from graphact_agents.learning.mixing import OPTIMIZERS, metropolis_weights
from graphact_agents.learning.state import to_vector
from graphact_agents.simulation import Simulation
from support.on_agents import deploy, to_model

TOLERANCE = 1e-10


def gcnn(activation="max-ga", **options):
    return nn.GCNN([1, 3, 2], order=1, activation=activation, hops=1, out_features=1, **options).double()


def samples(graph, count=7, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, count, graph.num_nodes, 1))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_on_a_complete_graph_agents_make_the_centralised_steps(optimizer):
    """There the weights are uniform, 1/N. With batches, so that the order of the samples counts."""
    graph, model = GRAPHS["complete"](), gcnn()
    learning = Learning(optimizer, rate=0.02, batch=3)
    x, targets = samples(graph)
    nodes = deploy(model, graph)
    begin = to_vector(nodes[0].model.parameters, nodes[0].model)
    training = simulate_training(nodes, x, targets, learning, steps=25)
    losses = train_centrally(model, graph, x, targets, learning, 25)
    central = to_vector(to_model(model).parameters, nodes[0].model)
    np.testing.assert_allclose(training.losses, losses, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(training.copies, np.tile(central, (6, 1)), rtol=TOLERANCE, atol=TOLERANCE)
    assert abs(central - begin).max() > 0.02


def test_every_pass_takes_every_sample_once_in_an_order_of_its_own():
    learning = Learning(batch=3, seed=5)
    passes = [np.concatenate([samples_of(4 * number + k, 10, learning) for k in range(4)]) for number in range(3)]
    for order in passes:
        assert sorted(order) == list(range(10))
    assert len({tuple(order) for order in passes}) == 3
    assert len(samples_of(3, 10, learning)) == 1
    assert samples_of(3, 10, Learning(batch=10)) == samples_of(3, 10, Learning()) == slice(None)
    assert list(samples_of(0, 10, Learning(batch=3, seed=6))) != list(passes[0][:3])


def test_the_weights_of_metropolis():
    nodes = deploy(gcnn(), GRAPHS["star"]())
    outcome = Simulation([n.links for n in nodes], lambda i, _: metropolis_weights(nodes[i].links), rounds=1).simulate()
    assert outcome.results[0, 0].output == dict.fromkeys(range(1, 7), 1 / 7)
    assert outcome.results[0, 3].output == {0: 1 / 7}


@pytest.mark.parametrize("graph", ["directed", "random", "disconnected"])
def test_costs_to_the_byte(graph):
    graph, steps = GRAPHS[graph](), 3
    model, learning = gcnn("kernel-ga"), Learning(batch=4)
    x, targets = samples(graph, count=8)
    nodes = deploy(model, graph)
    pairs = sum(len(node.links.neighbors) for node in nodes)
    cost = cost_of_step(nodes[0].model, graph.num_edges, pairs, 4)
    counters = simulate_training(nodes, x, targets, learning, steps=steps).counters
    preparing = pairs * 64 + graph.num_edges * (60 + 8 * 8)  # degrees, then one shift of 8 numbers
    assert counters.data_sent == steps * cost.messages + pairs + graph.num_edges
    assert counters.bytes_sent == steps * cost.bytes + preparing
    assert cost.rounds == step_rounds(nodes[0].model) == learner.step_rounds(nodes[0].model)
    assert counters.rounds == graph.num_nodes * (steps * cost.rounds + preparation_rounds(nodes[0].model, (8, 1)))


def test_the_cost_by_hand():
    """Order 1, one hop, two layers: 1 + 2 + 1 + 2 rounds, of which the first is prepared; 28 parameters."""
    model = to_model(gcnn())
    assert sum(p.size for p in model.parameters.values()) == 6 + 4 + 12 + 3 + 3
    cost = cost_of_step(model, 10, 10, 5, slot=0.1)
    assert cost.rounds == 5 + 5 + 2
    assert cost.messages == 120
    assert cost.bytes == 10 * (2 * (3 * (60 + 5 * 3 * 8) + 2 * (60 + 5 * 2 * 8)) + 2 * (56 + 28 * 8))
    assert cost.longest == pytest.approx(1.2)


def test_long_vectors_and_many_signals_go_in_pieces(monkeypatch):
    graph, model = directed(6, 0.5, 0), gcnn()
    x, targets = samples(graph)
    learning = Learning(rate=0.02)
    whole = simulate_training(deploy(model, graph), x, targets, learning, steps=5).copies
    monkeypatch.setattr(mixing, "MAX_PIECE", 5)
    monkeypatch.setattr("graphact_agents.learning.learner.MAX_PIECE", 5)
    monkeypatch.setattr("graphact_agents.learning.learner.MAX_DATAGRAM", 52 + 8 + 16)
    nodes = deploy(model, graph)
    assert preparation_rounds(nodes[0].model, (7, 1)) == 1 + 4
    training = simulate_training(nodes, x, targets, learning, steps=5)
    np.testing.assert_allclose(training.copies, whole, rtol=TOLERANCE, atol=TOLERANCE)
    pairs = sum(len(node.links.neighbors) for node in nodes)
    cost = cost_of_step(nodes[0].model, graph.num_edges, pairs, 7)
    assert cost.rounds == learner.step_rounds(nodes[0].model) == 10 + 12
    assert training.counters.data_sent == 5 * cost.messages + pairs + 4 * graph.num_edges


def test_cross_entropy_at_one_node_in_single_precision():
    graph = GRAPHS["random"]()
    model = nn.GCNN([1, 4], order=2, activation="max-ga", hops=1, out_features=2)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, graph.num_nodes, 1)).astype(np.float32)
    targets = np.full((40, graph.num_nodes, 1), np.nan)
    targets[:, 3, 0] = x[:, 3, 0] > 0
    nodes = deploy(model, graph)
    training = simulate_training(nodes, x, targets, Learning(objective="cross_entropy", rate=0.05), steps=60)
    assert training.losses[-1] < 0.3 * training.losses[0]
    assert training.model(nodes[0].model).dtype == np.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "lbfgs"}, "optimizer must be one of"),
        ({"rate": 0}, "rate must be a finite number above 0, got 0"),
        ({"objective": "hinge"}, "objective must be one of"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        Learning(**options)


def test_samples_that_do_not_fit():
    nodes = deploy(gcnn(), GRAPHS["line"]())
    good = np.zeros((4, 6, 1))
    with pytest.raises(ValueError, match=r"signals must have the shape \(M, 6, 1\), got \(4, 5, 1\)"):
        simulate_training(nodes, good[:, :5], good, steps=1)
    with pytest.raises(ValueError, match=r"targets must have the shape \(4, 6, 1\), got \(4, 6, 2\)"):
        simulate_training(nodes, good, np.zeros((4, 6, 2)), steps=1)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        simulate_training(nodes, good, good, steps=0)
    with pytest.raises(ValueError, match="signals and targets must be as many, at least one, got 0, 0"):
        simulate_training(nodes, good[:0], good[:0], steps=1)
    learner = Learner(nodes[0], Learning(), good[:, 0], good[:, 0])
    with pytest.raises(RuntimeError, match="the preparation must come before the first step"):
        next(learner.step(0))
