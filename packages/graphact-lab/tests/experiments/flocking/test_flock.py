"""examples/flocking: a team of processes in closed loop, and what its agents compute beside the fleet on one device."""

import signal
import sys
import threading

import numpy as np
import pytest
import torch

import graphact
from graphact_lab.experiments.flocking.flight import fly
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.world import Teams, World, draw_teams
from support.on_agents import to_model
from support.places import ROOT

sys.path.insert(0, str(ROOT / "examples" / "flocking"))
import flock
from pilot import LossyTransport, steer

fcntl = pytest.importorskip("fcntl", reason="processes of a flock talk through pipes that do not block, as POSIX has")


def exchange(programs: dict, adjacency: np.ndarray) -> dict:
    """Run programs of all agents round by round; every message arrives."""
    answers, values = {}, {agent: next(program).value for agent, program in programs.items()}
    while len(answers) < len(programs):
        sent, values = values, {}
        for agent, program in programs.items():
            try:
                values[agent] = program.send({int(j): sent[int(j)] for j in np.flatnonzero(adjacency[agent])}).value
            except StopIteration as stop:
                answers[agent] = stop.value
    return answers


def test_agents_compute_what_the_fleet_computes() -> None:
    world, model, seen = World(steps=3), graphact.load(flock.POLICY).double(), []
    flight = {name: getattr(world, name) for name in ("acceleration", "squash", "input_limit")}
    start = draw_teams(1, 12, torch.Generator().manual_seed(0), world)
    fly(Teams(*(part.unsqueeze(0) for part in start)), Policies([model], dtype=torch.float64), world, watch=seen.append)
    plain = to_model(model)
    for moment in seen:
        state, adjacency = torch.cat(moment.teams, -1)[0, 0].numpy(), moment.adjacency[0, 0].numpy()
        programs = {
            agent: steer(plain, flight, state[agent], tuple(map(int, np.flatnonzero(adjacency[agent]))))
            for agent in range(12)
        }
        for agent, control in exchange(programs, adjacency).items():
            assert np.allclose(control, moment.control[0, 0, agent], rtol=1e-11, atol=1e-11)


def test_datagrams_are_lost_at_the_given_rate_and_between_halves() -> None:
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
    assert sink.sent == [0, 2] * 10


def test_a_team_flies_through_faults_and_its_logs_tell_every_control(tmp_path, monkeypatch) -> None:
    """One is killed and comes back, another stands still: its pipe fills up, and holds up nobody."""
    options = flock.parse(["--agents", "6", "--seconds", "15", "--rate", "5", "--loss", "0.1", "--kill", "2"])
    steps, started, frozen = [], {}, 1

    def start(pilots: flock.Pilots, i: int) -> None:
        plain_start(pilots, i)
        started[i] = pilots.running[i]
        fcntl.fcntl(started[i].stdin, fcntl.F_SETPIPE_SZ, 4096)  # full after some twenty steps

    def watch(step: int, *_: object) -> None:
        steps.append(step)
        if step == 10:
            started[frozen].send_signal(signal.SIGSTOP)
            awake = threading.Timer(40.0, started[frozen].send_signal, [signal.SIGCONT])  # or a failure lasts for ever
            awake.daemon = True
            awake.start()

    plain_start = flock.Pilots.start
    monkeypatch.setattr(flock.Pilots, "start", start)
    facts = flock.fly(graphact.load(options.model), options, World(), tmp_path, watch)
    count, largest = flock.check_flight(tmp_path, World())
    assert steps == [*range(75)]
    assert facts["lost"] > 0
    assert (facts["failed"], facts["gone"], facts["idle"]) == (0, [frozen], [])
    assert len(flock.find_failures(facts, largest)) == 1
    with np.load(tmp_path / flock.RECORD) as record:
        arrays = dict(record)
    there = np.isfinite(arrays["controls"]).all(-1)
    assert not there[12:, frozen].any()
    assert not there[26:37, 2].any()  # dead from a third to half of the flight
    assert there[37:, 2].any()
    assert there[50:, [0, 3, 4, 5]].mean() > 0.5
    assert largest <= 1e-9
    assert count == there.sum() > 75
    number = int(np.flatnonzero(there[:, 0])[0])
    arrays["controls"][number, 0, 0] += 1e-6
    np.savez_compressed(tmp_path / flock.RECORD, **arrays)
    assert flock.check_flight(tmp_path, World())[1] == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize(
    ("facts", "largest", "words"),
    [
        ({}, 0.0, []),
        ({"gone": [1, 3]}, 0.0, ["agents 1, 3 did not come to the end"]),
        ({"idle": [0]}, 0.0, ["agents 0 never had a control in time"]),
        ({}, 1e-6, ["differs by 1e-06"]),
        ({"gone": [2]}, float("nan"), ["agents 2 did not come to the end", "differs by nan"]),
    ],
)
def test_the_example_fails_where_the_flight_did(monkeypatch, capsys, facts, largest, words) -> None:
    usual = {"missed": 0, "used": 1, "lost": 0, "gone": [], "idle": []}
    monkeypatch.setattr(flock, "fly", lambda *_: usual | facts)
    monkeypatch.setattr(flock, "check_flight", lambda *_: (1, largest))
    assert flock.main(["--agents", "4"]) == int(bool(words))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))
