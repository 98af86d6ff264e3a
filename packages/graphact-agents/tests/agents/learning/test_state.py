"""The state survives a restart, and nothing that was given away is lost."""

import numpy as np
import pytest

from agents.learning.problems import TOO_SHORT_TO_REPEAT, least_squares
from graphact_agents import Faults
from graphact_agents.learning import Learner, Learning, State
from graphact_agents.simulation import Simulation
from support.on_agents import deploy

LOSSY = {"faults": Faults(loss=0.3), "timing": TOO_SHORT_TO_REPEAT}


def mass_on_the_way(states, links):
    """Sums that neighbours have sent and that are not used yet, over all links."""
    place = [{j: k for k, j in enumerate(node.neighbors)} for node in links]
    return sum(
        states[j].given[place[j][i]] - states[i].taken[place[i][j]]
        for i, node in enumerate(links)
        for j in node.neighbors
    )


def check_nothing_is_lost(states, links):
    trackers, gradients = sum(state.tracker for state in states), sum(state.gradient for state in states)
    np.testing.assert_allclose(trackers + mass_on_the_way(states, links), gradients, rtol=0, atol=1e-12)


def test_nothing_is_lost_for_good():
    problem = least_squares()
    links = [node.links for node in deploy(problem.model, problem.graph)]
    training = problem.train(23, **LOSSY)
    assert abs(mass_on_the_way(training.states, links)).max() > 1e-3
    check_nothing_is_lost(training.states, links)


def live(problem, nodes, folder, seed):
    """Five steps of nodes that know nothing but what is in their files."""
    learning, links = Learning("sgd", 0.8 / problem.steepest), [node.links for node in nodes]
    learners = [
        Learner(node, learning, problem.signals[:, i], problem.targets[:, i], folder / f"{i}.npz")
        for i, node in enumerate(nodes)
    ]
    Simulation(links, lambda i, _: learners[i].prepare(), rounds=2, program_id=3).simulate()
    Simulation(
        links, lambda i, run: learners[i].step(run), rounds=2, runs=5, seed=seed, program_id=2, **LOSSY
    ).simulate()


def test_nodes_that_are_rebuilt_from_their_files_every_few_steps(tmp_path):
    """One of them with an older file than the others, once."""
    problem = least_squares()
    nodes = deploy(problem.model, problem.graph)
    for restart in range(4):
        old = State.load(tmp_path / "2.npz") if restart else None
        live(problem, nodes, tmp_path, restart)
        if restart == 2:
            assert old.steps == 10
            old.save(tmp_path / "2.npz")
    states = [State.load(tmp_path / f"{i}.npz") for i in range(len(nodes))]
    assert [state.steps for state in states] == [15 if i == 2 else 20 for i in range(len(nodes))]
    check_nothing_is_lost(states, [node.links for node in nodes])


def test_a_state_as_a_file(tmp_path):
    rng = np.random.default_rng(0)
    vectors, sums = rng.normal(size=(5, 4)), rng.normal(size=(2, 3, 4))
    state = State(7, *vectors[:3], *sums, *vectors[3:])
    state.save(tmp_path / "state.npz")
    again = State.load(tmp_path / "state.npz")
    assert again.steps == 7
    for name in ("parameters", "tracker", "gradient", "given", "taken", "first_moment", "second_moment"):
        np.testing.assert_array_equal(getattr(again, name), getattr(state, name))
    content = (tmp_path / "state.npz").read_bytes()
    for damaged in (content[:100], b"", b"hello", content[:-30]):
        (tmp_path / "bad.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"bad\.npz: not the state of a node that learns"):
            State.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "other.npz", steps=1)
    with pytest.raises(ValueError, match="not the state of a node that learns"):
        State.load(tmp_path / "other.npz")
