"""Processes that learn: a neighbour in wrong hands, folders that have run before, kills while files are written."""

import json
import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from agents.networks import undirected

from graphact import agents, nn
from graphact.agents import Deployment, deploy
from graphact.agents.addresses import Addresses, free_addresses
from graphact.agents.learning import Learner, Learning, MemoryStore, networked, simulate_training
from graphact.agents.learning.networked import common_step, train_on_processes
from graphact.agents.learning.state import State
from graphact.agents.messages import DIMENSIONS, DTYPES, HEADER, Kind, Message, Payload, encode

STEPS = 24


@pytest.fixture
def folder(tmp_path):
    """The folder of node 0 of two, with its data; node 1 is in wrong hands."""
    torch.manual_seed(0)
    model, places = nn.GCNN([1, 1], order=1, activation="max-ga").double(), free_addresses(2)
    folders = agents.split(model, undirected([(0, 1)], 2), tmp_path / "n", addresses=places, tls=False)
    np.save(folders[0] / "signals.npy", np.ones((2, 1)))
    np.save(folders[0] / "targets.npy", np.ones((2, 1)))
    plan = {"learning": {"rate": 0.01}, "steps": STEPS, "first": 0}
    (folders[0] / "learning.json").write_text(json.dumps(plan))
    return folders[0]


class Mirror:
    """Node 1 answers with the values of node 0 itself; ``lie`` may alter them, or add messages."""

    def __init__(self, folder, lie):
        self.deployment = Deployment.load(folder.parent / "node-1")
        data = np.ones((2, 1)), np.ones((2, 1))
        self.digest = Learner(self.deployment, Learning(rate=0.01), *data, MemoryStore()).digest
        addresses = Addresses.load(folder.parent / "node-1", (0,))
        self.to, self.lie = (addresses.neighbors[0].host, addresses.neighbors[0].port), lie
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.bind((addresses.listen.host, addresses.listen.port))
        self.socket.settimeout(0.1)

    def say(self, run, round_, value, program):
        links = self.deployment.links
        message = Message(Kind.DATA, 1, 0, links.epoch, run, round_, program, Payload.of(value))
        self.socket.sendto(encode(message, links.keys[0], self.digest), self.to)

    def answer(self, process):
        """Until the process ends; its events and what it wrote to standard error."""
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            try:
                datagram = self.socket.recv(65536)
            except TimeoutError:
                continue
            _, _, kind, program, dtype, dimensions, _, _, _, _, run, round_ = HEADER.unpack_from(datagram)
            if kind == Kind.DATA:
                shape = DIMENSIONS[dimensions].unpack_from(datagram, HEADER.size)
                content = datagram[HEADER.size + 4 * dimensions : -16]
                value = np.frombuffer(content, DTYPES[dtype]).reshape(shape)
                self.say(run, round_, self.lie(self, run, round_, value, program), program)
        self.socket.close()
        out, errors = process.communicate(timeout=10)
        return [json.loads(line) for line in out.splitlines()], errors.decode()


def learn(folder, lie):
    command = [sys.executable, "-m", "graphact.cli", "agents", "learn", str(folder), "--transport", "udp"]
    mirror = Mirror(folder, lie)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--slot", "0.4"], **pipes) as process:
        try:
            return (*mirror.answer(process), process.returncode)
        finally:
            process.kill()


def test_a_neighbor_cannot_end_a_training_by_a_datagram(folder):
    """NaN, numbers at the end of the range, and a run that cannot be: each costs a step, at most."""

    def lie(mirror, run, round_, value, program):
        step = run - 1
        if program == 2 and round_ == 0 and step == 3:
            return np.full_like(value, np.nan)
        if program == 2 and round_ == 0 and step == 6:
            return np.full_like(value, 1e300)
        if program == 2 and round_ == 0 and step == 9:
            for far in (10**6, STEPS, run + 9):
                mirror.say(far, 0, value, 2)
        return value

    (folder / "log.jsonl").write_text('{"run": 29000000, "program": 1}\n')  # it has run with a clock
    events, errors, code = learn(folder, lie)
    assert (errors, code) == ("", 0)
    made = {event["step"]: event for event in events if event["event"] == "step"}
    (failed,) = (event for event in events if event["event"] == "failed")
    assert failed["step"] == 6
    assert "not finite" in failed["reason"] or "must be finite" in failed["reason"]
    assert sorted(made) == [step for step in range(STEPS) if step != 6]
    assert [step for step, event in made.items() if not event["complete"]] == [3]
    assert events[-1]["event"] == "trained"
    assert events[-1]["steps"] == STEPS - 1
    assert events[-1]["counters"]["not_finite"] >= 1
    assert events[-1]["counters"]["ahead"] >= 3


def test_a_training_that_does_not_get_on_is_no_success(folder):
    events, errors, code = learn(
        folder, lambda _, run, round_, value, program: np.full_like(value, 1e300) if program == 2 else value
    )
    assert code == 2
    assert "and so were 20 steps in a row" in errors
    assert "trained" not in {event["event"] for event in events}


def test_a_node_that_missed_most_steps_is_not_called_trained(folder, monkeypatch):
    monkeypatch.setattr(networked.NodeTraining, "_next_step", lambda self, steps: steps)

    class Nothing:
        def send(self, *_): ...

    learner = Learner(Deployment.load(folder), Learning(), np.ones((2, 1)), np.ones((2, 1)), MemoryStore())
    training = networked.NodeTraining(folder, learner, Nothing(), agents.Timing())
    with pytest.raises(ValueError, match="node 0 must make 24 steps, or most of them, made 0"):
        training.train(STEPS, print)
    training.log.close()


def test_others_must_not_use_the_keys(folder):
    (folder / "keys.json").chmod(0o666)
    _, errors, code = learn(folder, lambda *_: None)
    assert code == 2
    assert "keys.json must be for its owner alone" in errors


class Killed(BaseException):
    """kill -9."""


def problem():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(8, 2, 1)), rng.normal(size=(8, 2, 1))
    return (lambda: deploy(nn.FIR([1, 1], order=1).double(), undirected([(0, 1)], 2))), data, Learning(rate=0.05)


@pytest.mark.slow
def test_a_training_that_is_killed_while_its_folders_are_written_begins_again(tmp_path, monkeypatch):
    """The next start does not mix keys of two draws."""
    nodes, data, learning = problem()
    torch.manual_seed(0)
    first = nodes()

    def save(self, folder, original=Deployment.save):
        if self.node == 1:
            raise Killed
        original(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Deployment, "save", save)
        with pytest.raises(Killed):
            train_on_processes(first, *data, learning, tmp_path / "t", steps=2, slot=10)
    torch.manual_seed(0)
    trained = train_on_processes(second := nodes(), *data, learning, tmp_path / "t", steps=2, slot=10)
    assert trained.counters.links_missed == 0
    np.testing.assert_array_equal(trained.copies, simulate_training(second, *data, learning, steps=2).copies)


@pytest.mark.slow
def test_a_training_goes_on_from_states_that_are_whole(tmp_path):
    """A damaged one is passed over."""
    nodes, data, learning = problem()
    deployed = nodes()
    train_on_processes(deployed, *data, learning, tmp_path / "t", steps=40, slot=10)
    damaged = tmp_path / "t" / "node-1" / "state-40.npz"
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert common_step([tmp_path / "t" / f"node-{i}" for i in range(2)], 40) == 20
    trained = train_on_processes(deployed, *data, learning, tmp_path / "t", steps=45, slot=10)
    np.testing.assert_array_equal(trained.copies, simulate_training(deployed, *data, learning, steps=45).copies)


def test_the_state_of_a_step_is_kept_whole_or_not_at_all(folder, monkeypatch):
    """Killed at any moment of writing state-20.npz, the file is not there, or complete."""
    learner = Learner(Deployment.load(folder), Learning(), np.ones((2, 1)), np.ones((2, 1)), MemoryStore())
    state = State.first(np.zeros(3), 1)
    state.save(folder / "state.npz")

    class Step:
        failure, output, complete = "", 0.5, True

    steps = iter((19, STEPS))
    monkeypatch.setattr(networked.NodeTraining, "_next_step", lambda self, _: next(steps))
    monkeypatch.setattr(networked.NodeTraining, "_run", lambda self, *_: Step())
    training = networked.NodeTraining(folder, learner, None, agents.Timing())

    def killed(*_):
        raise Killed

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(Killed):
        training.train(STEPS, lambda _: None)
    assert not (folder / "state-20.npz").exists()
    training.log.close()
