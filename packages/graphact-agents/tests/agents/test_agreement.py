"""Nodes that do not agree on the model or on settings do not take part with each other, and tell why."""

import time
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

import graphact_agents as agents
from agents.live import Daemon
from agents.networks import links_of, pass_on, undirected
from agents.one_node import lone_node, pending_bytes, result_of, said, talk
from graphact import nn
from graphact_agents import Deployment, MemoryLog, Node, Timing
from graphact_agents.agent import Agent, BackToBack, Clocked
from graphact_agents.messages import Kind
from graphact_agents.signals import FileSignals
from local_agents import free_addresses
from support.on_agents import deploy, split, to_model

ONE, OTHER = b"1" * 16, b"2" * 16


def nodes_with(*digests):
    """Two nodes that hear each other."""
    places = links_of([(0, 1), (1, 0)], 2)
    return [Node(place, MemoryLog(), seed=0, digest=digest) for place, digest in zip(places, digests, strict=True)]


def test_nodes_that_agree_take_part():
    nodes = nodes_with(ONE, ONE)
    nodes[0].greet()
    for node in nodes:
        node.begin(0, talk(1.0), now=0.0)
    pass_on(nodes, 0.0)
    assert nodes[0].welcomed_by == {1}
    assert all(result_of(node).complete and not node.refusals for node in nodes)


@pytest.mark.parametrize("lose", [(), (Kind.HELLO,), (Kind.WELCOME,)])
@pytest.mark.parametrize("digests", [(ONE, OTHER), (ONE, b""), (b"", ONE)])
def test_values_of_another_model_are_never_used(digests, lose):
    """Also when the greetings are lost: every message is bound to the digest of its sender."""
    nodes = nodes_with(*digests)
    for node in nodes:
        node.greet()
        node.begin(0, talk(1.0), now=0.0)
    pass_on(nodes, 0.0, lose)
    for node in nodes:
        node.advance(1.0)
        assert result_of(node).missed == ((1 - node.links.node,),)
        assert (node.counters.received, node.latest_heard, node.counters.forged) == (0, -1, 1)
        assert node.welcomed_by == set()
        assert set(node.refusals) == (set() if Kind.HELLO in lose else {1 - node.links.node})


@pytest.mark.parametrize(
    ("digest", "reason"),
    [
        (OTHER, "its model, slot, period, origin or dynamic differs from that of this node"),
        (b"", "its greeting has no digest of model and settings"),
    ],
)
def test_the_reason(digest, reason):
    nodes = nodes_with(ONE, digest)
    nodes[1].greet()
    pass_on(nodes, 0.0)
    assert nodes[0].refusals == {1: reason}
    assert nodes[0].counters.differs == 1


def test_a_node_that_was_corrected_takes_part_again():
    nodes = nodes_with(ONE, OTHER)
    nodes[1].greet()
    pass_on(nodes, 0.0)
    assert set(nodes[0].refusals) == {1}
    nodes[1] = Node(nodes[1].links, nodes[1].log, seed=0, digest=ONE)
    for node in nodes:
        node.begin(0, talk(1.0), now=0.0)
    pass_on(nodes, 0.0)
    assert result_of(nodes[0]).complete
    assert not nodes[0].refusals


def test_a_digest_has_16_bytes():
    with pytest.raises(ValueError, match="digest must have 16 bytes or none, got 3"):
        nodes_with(b"abc", ONE)


def model(seed=0, **options):
    parameters = dict(to_model(nn.GCNN([1, 2], order=1, activation="max-ga", **options).double()).parameters)
    rng = np.random.default_rng(seed)
    plain = to_model(nn.GCNN([1, 2], order=1, activation="max-ga", **options).double())
    return replace(plain, parameters={name: rng.normal(size=value.shape) for name, value in parameters.items()})


def digest_of(model, timing, schedule):
    """The digest with which an agent of these settings greets."""
    deployment = deploy(model, undirected([(0, 1)], 2))[0]
    return Agent(deployment, Silent(), MemoryLog(), Silent(), schedule, print, timing).node.digest


def test_what_must_agree():
    base = digest_of(model(), Timing(), Clocked(0.0, 1.0))
    assert digest_of(model(), Timing(request_after=0.1), Clocked(0, 1)) == base
    changes = [
        (model(1), Timing(), Clocked(0.0, 1.0)),
        (model(closed=True), Timing(), Clocked(0.0, 1.0)),
        (model(), Timing(slot=0.2), Clocked(0.0, 1.0)),
        (model(), Timing(), Clocked(0.5, 1.0)),
        (model(), Timing(), Clocked(0.0, 2.0)),
        (model(), Timing(), BackToBack(0.0)),
    ]
    assert len({base, *(digest_of(*change) for change in changes)}) == 7


def test_a_model_from_a_file_agrees_with_the_one_in_memory(tmp_path):
    (tmp_path / "a").mkdir()
    agents.save_model(model(), tmp_path / "a" / "model.safetensors")
    assert agents.load_model(tmp_path / "a" / "model.safetensors").digest == model().digest


class Silent:
    """A transport that leads nowhere."""

    def __init__(self):
        self.sent, self.now, self.dropped = [], 0.0, {}

    def send(self, to, datagram):
        self.sent.append((to, datagram[3]))

    def receive(self, timeout):
        self.now += max(timeout, 1e-3)


def test_silent_neighbors_are_greeted_again_after_a_run(tmp_path):
    network = Silent()
    deployment = deploy(model(), undirected([(0, 1), (1, 2)], 3))[1]
    np.save(tmp_path / "x.npy", np.zeros((2, 1)))
    signals = FileSignals(tmp_path / "x.npy", deployment.model)
    agent = Agent(
        deployment, network, MemoryLog(), signals, Clocked(0.0, 5.0), lambda event: None, clock=lambda: network.now
    )
    assert agent.work(runs=2) == "2 runs are done"
    agent.linger()
    assert [to for to, kind in network.sent if kind == Kind.HELLO] == [0, 2] * 3


def test_processes_with_different_models_tell_and_never_answer_wrongly(tmp_path):
    """Node 2 of a line is given another model: 0 and 1 agree, 1 and 2 refuse each other."""
    graph = undirected([(0, 1), (1, 2)], 3)
    folders = split(nn.GCNN([1, 1], order=1).double(), graph, tmp_path / "nodes", addresses=free_addresses(3))
    other = Deployment.load(folders[2])
    replace(other, model=to_model(nn.GCNN([1, 1], order=1).double())).save(folders[2])
    origin = time.time() + 3.0
    options = ["--transport", "udp", "--origin", repr(origin), "--period", "1", "--runs", "3"]
    for folder in folders:
        np.save(folder / "x.npy", np.ones((50, 1)))
    with ExitStack() as opened:
        daemons = [opened.enter_context(Daemon(folder, *options)) for folder in folders]
        for daemon in daemons:
            daemon.next_event("end")
    events = [daemon.events for daemon in daemons]
    missed = [[event["missed"] for event in each if event["event"] == "result"] for each in events]
    refused = [{e["neighbor"]: e["reason"] for e in each if e["event"] == "refused"} for each in events]
    assert [len(each) for each in missed] == [3, 3, 3]
    assert all(2 in each for run in missed[1] for each in run)
    assert all(each == [1] for run in missed[2] for each in run)
    assert [set(each) for each in refused] == [set(), {2}, {1}]
    assert refused[1][2] == "its model, slot, period, origin or dynamic differs from that of this node"


def test_run_numbers_far_ahead_are_refused():
    node = lone_node((1, 2))
    node.begin(5, talk(1.0, rounds=2), now=0.0)
    for run in (2**64 - 1, 2**63):  # out of range: not even a message
        with pytest.raises(ValueError, match="run of a message must lie between 0 and"):
            said(node, 1, run=run)
    node.receive(said(node, 1, run=2**63 - 1), now=0.1)
    node.receive(said(node, 1, run=5 + 2**32 + 1), now=0.1)
    assert (node.counters.ahead, node.latest_heard, pending_bytes(node)) == (2, -1, 0)
    assert node.refusals == {1: "its run is more than 4294967296 ahead of this node"}
    node.receive(said(node, 1, run=5 + 2**32), now=0.1)
    assert node.latest_heard == 5 + 2**32  # a node that was away for long goes on with it


def test_nor_does_the_answer_to_a_greeting_carry_a_node_away():
    node = lone_node()
    node.greet()
    nonce = node._nonce
    node.receive(said(node, 1, run=2**62, round_=nonce, kind=Kind.WELCOME, program=0), now=0.0)
    assert (node.counters.ahead, node.latest_heard) == (1, -1)
    node.receive(said(node, 1, run=8_640_000, round_=nonce, kind=Kind.WELCOME, program=0), now=0.0)
    assert node.latest_heard == 8_639_999


def test_the_clock_says_how_far_runs_can_be():
    """By a clock that counts tenths of seconds from 1970 a fresh node is 17 thousand million runs behind."""
    node = lone_node()
    run = 17_500_000_000
    node.receive(said(node, 1, run=run), now=0.0)
    assert node.counters.ahead == 1
    node.expect(run - 1)
    node.receive(said(node, 1, run=run), now=0.0)
    node.begin(run, talk(1.0), now=0.0)
    assert result_of(node).complete


def test_the_last_number():
    node = lone_node()
    with pytest.raises(ValueError, match="run must be less than 9223372036854775807, the end of all numbers"):
        node.begin(2**63 - 1, talk(1.0), now=0.0)
    with pytest.raises(ValueError, match="program_id must lie between 0 and 255, got 256"):
        node.begin(0, talk(1.0), now=0.0, program_id=256)
    node.begin(2**63 - 2, talk(1.0), now=0.0)
    node.greet()
    assert len(node.take_outgoing()) == 2


def test_a_captured_node_cannot_stop_a_network_without_a_clock():
    """It names the highest number there is; the others go on with theirs, and start again."""
    nodes = [Node(place, MemoryLog(), seed=0) for place in links_of([(0, 1), (1, 0), (1, 2), (2, 1)], 3)]
    schedule = BackToBack(0.0)
    for _ in range(3):
        nodes[1].receive(said(nodes[1], 2, run=2**63 - 1), now=0.0)
        for node in nodes[:2]:
            node.begin(schedule.next_run(node, -1, 0.0)[0], talk(1.0), now=0.0)
        for node in nodes[:2]:
            for to, datagram in node.take_outgoing():
                nodes[to].receive(datagram, 0.0)
            node.advance(1.0)
        nodes[:2] = [Node(node.links, node.log, seed=0) for node in nodes[:2]]
        nodes[1].greet()
    assert [node.run for node in nodes[:2]] == [2, 2]
