"""The parameters that learning changes, their order, and models that it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from agents.learning.problems import cost_of_step
from agents.networks import GRAPHS, directed
from agents.own_operations import registering, soft_max, soft_max_in_numpy
from graphact import nn
from graphact_agents import IncompatibleModelError
from graphact_agents.learning import Learner, Learning, State, simulate_training
from graphact_agents.learning.learner import NotFiniteError
from graphact_agents.learning.mixing import exchange_vectors
from graphact_agents.learning.state import to_vector
from support.on_agents import deploy


def gcnn(**options):
    return nn.GCNN(
        [1, 3, 2],
        order=1,
        activation="kernel-ga",
        hops=2,
        out_features=1,
        bias=True,
        gamma=0.8,
        learn_gamma=True,
        **options,
    ).double()


def samples(graph, count=6):
    return np.random.default_rng(0).normal(size=(2, count, graph.num_nodes, 1))


def test_the_order_of_parameters_is_that_of_the_layers():
    names = deploy(gcnn(), GRAPHS["line"]())[0].model.names
    assert names == (
        *("filters.0.taps", "filters.0.bias", "activations.0.beta", "activations.0.weights", "activations.0.log_gamma"),
        *("filters.1.taps", "filters.1.bias", "activations.1.beta", "activations.1.weights", "activations.1.log_gamma"),
        *("readout.weight", "readout.bias"),
    )


def test_frozen_parameters_are_left_alone_and_not_sent():
    graph, model = directed(6, 0.5, 0), gcnn()
    x, targets = samples(graph)
    whole = cost_of_step(deploy(model, graph)[0].model, 10, 10, 6)
    model.filters[0].taps.requires_grad_(False)
    model.activations[1].log_gamma.requires_grad_(False)
    nodes = deploy(model, graph)
    training = simulate_training(nodes, x, targets, Learning(rate=0.05), steps=10)
    trained = training.model(nodes[0].model)
    unchanged = [n for n, value in trained.parameters.items() if np.array_equal(value, nodes[0].model.parameters[n])]
    assert sorted(unchanged) == ["activations.1.log_gamma", "filters.0.taps"]
    assert trained.frozen == nodes[0].model.frozen
    assert whole.bytes - cost_of_step(nodes[0].model, 10, 10, 6).bytes == 10 * 2 * 8 * (2 * 3 + 1)
    assert training.losses[-1] < training.losses[0]


def test_a_model_with_nothing_to_learn_is_refused():
    model = nn.FIR([1, 1], out_features=None).double().requires_grad_(False)
    with pytest.raises(IncompatibleModelError, match="no parameter to learn that is not frozen"):
        simulate_training(deploy(model, GRAPHS["line"]()), np.ones((2, 6, 1)), np.ones((2, 6, 1)), steps=1)


operation = pytest.fixture(registering)


# Operations of users


def log_mean_exp_gradient(own, neighbors, value, grad, values):
    t = values["t"]
    share = np.exp(neighbors / t)
    share = share / share.sum(-2, keepdims=True)
    through_t = value - (share * neighbors).sum(-2)
    return np.zeros_like(value), grad[..., None, :] * share, {"t": float((grad * through_t).sum())}


@pytest.fixture
def soft(operation):
    """Registers an operation, with or without its gradient."""

    def register(gradient):
        soft_max_in_numpy.gradient = gradient
        operation("soft", soft_max, soft_max_in_numpy, t=0.5)

    yield register
    del soft_max_in_numpy.gradient


def test_an_operation_without_a_gradient_is_refused(soft):
    soft(None)
    nodes = deploy(nn.GraphAdaptive("soft").double(), GRAPHS["line"]())
    with pytest.raises(IncompatibleModelError, match="agents know no gradient of 'soft' to learn with"):
        simulate_training(nodes, np.ones((2, 6, 1)), np.ones((2, 6, 1)), steps=1)


@pytest.mark.parametrize("closed", [False, True])
def test_an_operation_that_declares_its_gradient_is_learned_with(soft, closed):
    """One step of gradient descent on a complete graph is that of autograd."""
    soft(log_mean_exp_gradient)
    graph, model = GRAPHS["complete"](), nn.GraphAdaptive("soft", hops=2, closed=closed, learn_t=True).double()
    x, targets = samples(graph)
    nodes = deploy(model, graph)
    copies = simulate_training(nodes, x, targets, Learning("sgd", rate=0.1), steps=1).copies
    torch.nn.functional.mse_loss(model(torch.from_numpy(x), graph), torch.from_numpy(targets)).backward()
    after = {name: (p - 0.1 * p.grad).detach().numpy() for name, p in model.named_parameters()}
    np.testing.assert_allclose(copies, np.tile(to_vector(after, nodes[0].model), (6, 1)), rtol=1e-10, atol=1e-10)


# Numbers that are not finite


@pytest.mark.parametrize(("which", "value"), [("signals", np.nan), ("signals", np.inf), ("targets", -np.inf)])
def test_data_that_are_not_finite_are_refused_at_their_node(which, value):
    graph = GRAPHS["line"]()
    data = dict(zip(("signals", "targets"), samples(graph), strict=True))
    data[which][2, 3] = value
    with pytest.raises(ValueError, match="signals and targets of node 3 must be finite"):
        simulate_training(deploy(nn.FIR([1, 1]).double(), graph), **data, steps=1)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_gradient_that_is_not_finite_is_refused_at_its_node():
    graph = GRAPHS["line"]()
    x, targets = samples(graph)
    nodes = deploy(nn.GCNN([1, 2, 2], order=1, activation="max-ga").double(), graph)
    with pytest.raises(ValueError, match=r"the gradient of node \d in step \d+ must be finite"):
        simulate_training(nodes, x, targets, Learning("sgd", rate=1e200), steps=20)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_step_whose_state_overflows_is_refused(tmp_path):
    """The square of what a neighbour gave would stay in the second moment of Adam, and end the learning in silence."""
    nodes = deploy(nn.FIR([1, 1], order=0, out_features=None).double(), GRAPHS["line"]())
    learner = Learner(nodes[0], Learning(), np.ones((2, 1)), np.ones((2, 1)), tmp_path / "state.npz")
    learner.weights, before = {1: 0.5}, learner.state
    for given, is_refused in ((1e200, True), (1.0, False)):
        program = learner.step(0)
        size = next(program).value[1].size
        program.send({1: np.full(size, given)})
        with pytest.raises(NotFiniteError if is_refused else StopIteration, match="state" if is_refused else None):
            program.send({1: np.zeros(size)})
        assert (learner.state is before) == is_refused
        assert (tmp_path / "state.npz").exists() != is_refused


def test_a_vector_that_is_not_finite_does_not_spread():
    links = deploy(nn.FIR([1, 1]).double(), GRAPHS["complete"]())[0].links
    program = exchange_vectors(links, np.zeros(2), 2)
    next(program)
    with pytest.raises(StopIteration) as stopped:
        program.send({1: np.ones(2), 2: np.array([np.nan, 0.0]), 3: np.array([np.inf, 0.0])})
    assert list(stopped.value.value) == [1]


# States


def test_a_state_of_another_model_is_refused(tmp_path):
    nodes = deploy(gcnn(), GRAPHS["line"]())
    State.first(np.zeros(3), 2).save(tmp_path / "state.npz")
    learner = Learner(nodes[1], Learning(), np.ones((2, 1)), np.ones((2, 1)), tmp_path / "state.npz")
    with pytest.raises(ValueError, match=r"the state of node 1 must have \(2, \d+\) numbers .* got \(2, 3\)"):
        _ = learner.state


def test_what_learners_must_agree_upon():
    nodes = deploy(gcnn(), GRAPHS["line"]())
    other = replace(nodes[0], model=deploy(gcnn(), GRAPHS["line"]())[0].model)
    settings = [(nodes[0], Learning()), (nodes[1], Learning()), (nodes[0], Learning(rate=0.2)), (other, Learning())]
    digests = [Learner(node, how, np.ones((2, 1)), np.ones((2, 1))).digest for node, how in settings]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
