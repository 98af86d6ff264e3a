"""A team of processes in closed loop, and what its agents compute beside the fleet on one device."""

import json
import os
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import graphact
from graphact_lab.experiments.flocking import live
from graphact_lab.experiments.flocking.flight import fly
from graphact_lab.experiments.flocking.live import RECORD, FlightPlan, Pilots, check_flight, fly_live
from graphact_lab.experiments.flocking.pilot import LossyTransport, sense, steer
from graphact_lab.experiments.flocking.policies import Policies
from graphact_lab.experiments.flocking.world import Teams, World, draw_teams, hears, measure, pairs_of
from support.places import ROOT

sys.path.insert(0, str(ROOT / "examples" / "agents"))
import flock

from support.on_agents import to_model

fcntl = pytest.importorskip("fcntl", reason="processes of a flock talk through pipes that do not block, as POSIX has")
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
    model, seen = graphact.load(flock.POLICY).double(), []
    start = draw_teams(1, 12, torch.Generator().manual_seed(0), WORLD)
    fly(Teams(*(part.unsqueeze(0) for part in start)), Policies([model], dtype=torch.float64), WORLD, watch=seen.append)
    plain = to_model(model)
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
    plan = FlightPlan(agents=5, steps=75, rate=5.0, loss=0.1, killed=2, partition=(0.7, 0.8), world=WORLD)
    steps = []
    facts = fly_live(graphact.load(flock.POLICY), plan, tmp_path, lambda *step: steps.append(step))
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


@pytest.mark.slow
def test_an_agent_that_stands_still_holds_up_nobody_and_is_named(tmp_path: Path, monkeypatch) -> None:
    """Its pipe fills up; a world that waited for it would tell nobody anything any more."""
    plan = FlightPlan(agents=5, steps=80, rate=8.0, loss=0.0, killed=None, partition=(1.0, 1.0), world=WORLD)
    started, frozen, killed = {}, 1, 3

    def start(pilots: Pilots, i: int) -> None:
        plain_start(pilots, i)
        started[i] = pilots.running[i]
        fcntl.fcntl(started[i].stdin, fcntl.F_SETPIPE_SZ, 4096)  # full after some thirty steps

    def watch(step: int, *_: object) -> None:
        if step == 10:
            started[frozen].send_signal(signal.SIGSTOP)
            awake = threading.Timer(40.0, started[frozen].send_signal, [signal.SIGCONT])  # or a failure lasts for ever
            awake.daemon = True
            awake.start()
        if step == 20:
            started[killed].kill()

    plain_start = Pilots.start
    monkeypatch.setattr(Pilots, "start", start)
    facts = fly_live(graphact.load(flock.POLICY), plan, tmp_path, watch)
    check = check_flight(tmp_path, WORLD)
    assert (facts["gone"], facts["idle"]) == ([frozen, killed], [])
    assert check.largest <= 1e-9
    with np.load(tmp_path / RECORD) as record:
        there = np.isfinite(record["controls"]).all(-1)
    assert not there[12:, frozen].any()
    assert not there[22:, killed].any()
    assert there[50:, [0, 2, 4]].mean() > 0.5
    assert len(flock.find_failures(facts, check)) == 1


def test_of_what_an_agent_is_told_after_it_stood_still_no_line_is_torn(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(theirs, False)
    with os.fdopen(theirs, "wb") as stream, Pilots([], [], tmp_path / "errors.txt") as pilots:
        pilots.running, pilots._rest = {0: SimpleNamespace(stdin=stream, kill=lambda: None)}, {0: b""}
        long = {"state": "x" * 5000}  # more than the pipe holds
        pilots.tell(0, long)
        pilots.tell(0, {"run": 1})
        torn = os.read(ours, 1 << 16)
        assert 0 < len(torn) < 5000
        pilots.tell(0, {"run": 2})
        rest, *later = os.read(ours, 1 << 16).split(b"\n")
        assert json.loads(torn + rest) == long
        assert later == [b'{"run": 2}', b""]
        for run in range(1000):
            pilots.tell(0, {"run": run})
        pilots._rest[0] = b""
        told = os.read(ours, 1 << 16).split(b"\n")[:-1]
        assert [json.loads(line)["run"] for line in told] == [*range(len(told))]
        assert 50 < len(told) < 1000
        os.close(ours)
        pilots.tell(0, {"run": 1000})  # nobody is there


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
    usual = {"controls": 1.0, "missed": 0, "used": 1, "lost": 0, "sent": 0, "variance": 0.0, "gone": [], "idle": []}
    monkeypatch.setattr(live, "fly_live", lambda *_: usual | facts)
    monkeypatch.setattr(live, "check_flight", lambda *_: live.Check(1, largest, np.zeros(3)))
    assert flock.main(["--agents", "4"]) == int(bool(words))
    said = capsys.readouterr().err
    assert len(said.splitlines()) == len(words)
    assert all(word in said for word in words)


def test_a_policy_is_shipped_that_fits_the_problem() -> None:
    model = graphact.load(flock.POLICY)
    layers = model.layers()
    assert layers[0].in_features == 6
    assert layers[-1].out_features == 2
    assert json.dumps(model.config())
