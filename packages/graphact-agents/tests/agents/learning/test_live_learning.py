"""Processes that learn: a neighbour in wrong hands, folders that have run before, kills while files are written."""

import json
import socket
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import graphact_agents as agents
from agents.networks import directed, undirected
from graphact import nn
from graphact_agents import Deployment, load_model
from graphact_agents.command import main
from graphact_agents.learning import Learner, Learning, networked, simulate_training
from graphact_agents.learning.state import State, to_vector
from graphact_agents.log import Began
from graphact_agents.messages import DIMENSIONS, DTYPES, HEADER, Kind, Message, Payload, encode
from local_agents import LocalAgents, free_addresses
from support.on_agents import split

STEPS = 24


@pytest.fixture
def folder(tmp_path):
    """The folder of node 0 of two, with its data; node 1 is in wrong hands."""
    torch.manual_seed(0)
    model, places = nn.GCNN([1, 1], order=1, activation="max-ga").double(), free_addresses(2)
    folders = split(model, undirected([(0, 1)], 2), tmp_path / "n", addresses=places, tls=False)
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
        self.digest = Learner(self.deployment, Learning(rate=0.01), *data).digest
        addresses = self.deployment.reached
        self.to, self.lie = (addresses.neighbors[0].host, addresses.neighbors[0].port), lie
        self.socket = socket.socket(type=socket.SOCK_DGRAM)
        self.socket.bind((addresses.listen.host, addresses.listen.port))
        self.socket.settimeout(0.1)

    def send_value(self, run, round_, value, program):
        links = self.deployment.links
        message = Message(Kind.DATA, 1, 0, links.epoch, run, round_, program, Payload.from_array(value))
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
                self.send_value(run, round_, self.lie(self, run, round_, value, program), program)
        self.socket.close()
        out, errors = process.communicate(timeout=10)
        return [json.loads(line) for line in out.splitlines()], errors.decode()


def learn(folder, lie):
    command = [sys.executable, "-m", "graphact_agents.command", "learn", str(folder), "--transport", "udp"]
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
                mirror.send_value(far, 0, value, 2)
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

    learner = Learner(Deployment.load(folder), Learning(), np.ones((2, 1)), np.ones((2, 1)))
    training = networked.NodeTraining(folder, learner, Nothing(), agents.Timing())
    with pytest.raises(ValueError, match="node 0 must make 24 steps, or most of them, made 0"):
        training.train(STEPS, print)
    training.log.close()


def test_another_deployment_begins_again(folder):
    """Its graph or its model may differ: what a node learned before belongs to neither."""
    learner = Learner(Deployment.load(folder), Learning(), np.ones((2, 1)), np.ones((2, 1)))
    for epoch, stays in ((1, False), (1, True), (2, False)):
        files = [folder / name for name in ("state.npz", "prepared.npz")]
        for file in files:
            file.touch()
        learner.links = replace(learner.links, epoch=epoch)
        training = networked.NodeTraining(folder, learner, None, agents.Timing())
        assert [file.exists() for file in files] == [stays, stays]
        training.log.append(Began(7, 2))
        training.log.close()


@pytest.mark.parametrize("changes", [{"steps": float("inf")}, {"steps": "many"}, {"first": None}, {"learning": [1]}])
def test_a_damaged_plan_is_told_in_one_line(folder, changes, capsys):
    plan = {"learning": {"rate": 0.01}, "steps": 30, "first": 0}
    (folder / "learning.json").write_text(json.dumps(plan | changes))
    assert main(["learn", str(folder)]) == 2
    assert "learning.json: damaged: " in capsys.readouterr().err


def test_others_must_not_use_the_keys(folder):
    (folder / "keys.json").chmod(0o666)
    _, errors, code = learn(folder, lambda *_: None)
    assert code == 2
    assert "keys.json must be for its owner alone" in errors


@pytest.mark.parametrize("transport", ["udp", "zenoh"])
def test_processes_learn_what_the_simulation_does(tmp_path, transport):
    """To the bit where no link is missed."""
    torch.manual_seed(0)
    graph, model = directed(4, 0.5, 3), nn.GCNN([1, 2, 2], order=1, activation="median-ga").double()
    folders = split(model, graph, tmp_path / "n", addresses=free_addresses(4), tls=False)
    x, targets = np.random.default_rng(0).normal(size=(2, 8, 4, 1))
    options = {"rate": 0.05}
    for i, folder in enumerate(folders):
        np.save(folder / "signals.npy", x[:, i])
        np.save(folder / "targets.npy", targets[:, i])
        (folder / "learning.json").write_text(json.dumps({"learning": options, "steps": 12, "first": 0}))
    files = [folder / "signals.npy" for folder in folders]
    with LocalAgents(folders, ["--transport", transport, "--slot", "10"], files, command="learn") as processes:
        events = processes.wait()
    assert {event["steps"] for event in events if event["event"] == "trained"} == {12}
    nodes = [Deployment.load(folder) for folder in folders]
    expected = simulate_training(nodes, x, targets, Learning(**options), steps=12)
    for folder, state in zip(folders, expected.states, strict=True):
        np.testing.assert_array_equal(State.load(folder / "state.npz").parameters, state.parameters)
        trained = load_model(folder / "trained.safetensors")
        np.testing.assert_array_equal(to_vector(trained.parameters, trained), state.parameters)
