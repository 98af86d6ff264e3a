"""A team of processes in closed loop, and what its agents compute beside the fleet on one device."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import graphact
from graphact.agents.split import plain_model
from graphact.commands.agents_flock import POLICY
from graphact.experiments.flocking.flight import fly
from graphact.experiments.flocking.live import RECORD, Plan, check_flight, fly_live
from graphact.experiments.flocking.pilot import LossyTransport, sense, steer
from graphact.experiments.flocking.policies import Policies
from graphact.experiments.flocking.world import Teams, World, draw_teams, hears, measure, pairs_of

WORLD = World(steps=3, connected=True)
FLIGHT = {"acceleration": 10.0, "squash": False, "input_limit": 10.0}


def exchange(programs: dict, heard: np.ndarray) -> dict:
    """Run programs of all agents round by round; every message arrives."""
    answers, values = {}, {agent: next(program).value for agent, program in programs.items()}
    while len(answers) < len(programs):
        sent, values = values, {}
        for agent, program in programs.items():
            try:
                values[agent] = program.send({int(j): sent[int(j)] for j in np.flatnonzero(heard[agent])}).value
            except StopIteration as stop:
                answers[agent] = stop.value
    return answers


def test_agents_compute_what_the_fleet_computes() -> None:
    model, seen = graphact.load(POLICY).double(), []
    start = draw_teams(1, 12, torch.Generator().manual_seed(0), WORLD)
    fly(Teams(*(part.unsqueeze(0) for part in start)), Policies([model], dtype=torch.float64), WORLD, watch=seen.append)
    plain = plain_model(model)
    for moment in seen:
        state, heard = torch.cat(moment.teams, -1)[0, 0].numpy(), moment.heard[0, 0].numpy()
        programs = {
            agent: steer(plain, FLIGHT, state[agent], tuple(map(int, np.flatnonzero(heard[agent]))))
            for agent in range(12)
        }
        answers = exchange(programs, heard)
        for agent, control in answers.items():
            assert np.allclose(control, moment.control[0, 0, agent], rtol=1e-11, atol=1e-11)


def test_an_agent_senses_what_the_world_measures() -> None:
    teams = draw_teams(1, 15, torch.Generator().manual_seed(4))
    pairs = pairs_of(teams.position[0])
    heard = hears(pairs, 2.0)
    expected, state = measure(pairs, teams.velocity[0], heard, 10.0), torch.cat(teams, -1)[0].numpy()
    for agent in range(15):
        assert np.allclose(sense(state[agent], list(state[heard[agent].numpy()]), 10.0), expected[agent], atol=1e-12)
    assert np.array_equal(sense(state[0], [], 10.0), np.zeros(6))


def test_what_is_lost_is_lost_at_the_given_rate_and_between_halves() -> None:
    class Sink:
        def __init__(self) -> None:
            self.sent: list[int] = []

        def send(self, to: int, datagram: bytes) -> None:
            assert datagram
            self.sent.append(to)

    sink = Sink()
    lossy = LossyTransport(sink, 0, 0.1, 1)
    for number in range(4000):
        lossy.send(number % 4, b"x")
    assert 0.87 < len(sink.sent) / 4000 < 0.93
    assert lossy.lost == 4000 - len(sink.sent)
    sink.sent.clear()
    lossy.apart, lossy.loss = True, 0.0
    for number in range(40):
        lossy.send(number % 4, b"x")
    assert set(sink.sent) == {0, 2}
    assert len(sink.sent) == 20


@pytest.mark.slow
def test_a_team_of_processes_flies_through_faults_and_its_logs_tell_every_control(tmp_path: Path) -> None:
    plan = Plan(agents=5, steps=75, rate=5.0, loss=0.1, killed=2, partition=(0.7, 0.8), world=WORLD)
    steps = []
    facts = fly_live(graphact.load(POLICY), plan, tmp_path, lambda *step: steps.append(step))
    check = check_flight(tmp_path, WORLD)
    assert len(steps) == 75
    assert facts["lost"] > 0
    assert facts["failed"] == 0
    assert check.largest <= 1e-9
    assert check.apart.max() < 1e-6
    with np.load(tmp_path / RECORD) as record:
        arrays = dict(record)
    there = np.isfinite(arrays["controls"]).all(-1)
    assert check.controls == there.sum() > 75
    assert not there[26:37, 2].any()  # dead from a third to half of the flight
    assert there[37:, 2].any()
    assert there[:, [0, 1, 3, 4]].any(0).all()
    number = int(np.flatnonzero(there[:, 0])[0])
    arrays["controls"][number, 0, 0] += 1e-6
    np.savez_compressed(tmp_path / RECORD, **arrays)
    assert check_flight(tmp_path, WORLD).largest == pytest.approx(1e-6, rel=1e-3)


def test_a_policy_is_shipped_that_fits_the_problem() -> None:
    model = graphact.load(POLICY)
    layers = model.layers()
    assert layers[0].in_features == 6
    assert layers[-1].out_features == 2
    assert json.dumps(model.config())
