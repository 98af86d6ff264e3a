"""Orders of a change: signed once by the operator, and passed on by nodes that need not be trusted."""

import numpy as np
import pytest
from agents.networks import links_of, pair, pass_on, undirected
from agents.one_node import lone_node, said, talk

from graphact import agents, nn
from graphact.agents import MemoryLog, Node, Timing, simulate_inference, simulated_actors
from graphact.agents.changes import MemoryChanges
from graphact.agents.log import Began
from graphact.agents.messages import MAX_RUN, Kind
from graphact.agents.node import ORDER_EVERY
from graphact.agents.orders import LONGEST, Order, OrderKey, digits_of, step
from graphact.agents.renewal import renew


@pytest.mark.parametrize("run", [0, 1, 15, 16, 2_000_000_000, MAX_RUN])
def test_the_operator_signs_a_run_and_nobody_another(run):
    key = OrderKey()
    order = key.sign(run)
    assert order.is_signed(key.public)
    assert key.sign(run) == order
    assert not order.is_signed(OrderKey().public)
    for other in {0, 1, 15, 16, run ^ 1, run ^ 2**40, min(run + 1, MAX_RUN)} - {run}:
        assert not Order(other, order.signature).is_signed(key.public)
        with pytest.raises(ValueError, match=f"run must be {run}, for which this key has given its order, got {other}"):
            key.sign(other)
    for place in (0, 24, 200, 431):
        altered = order.signature[:place] + bytes([order.signature[place] ^ 1]) + order.signature[place + 1 :]
        assert not Order(run, altered).is_signed(key.public)
    for damaged in (b"", order.signature[:-1], order.signature + b"x"):
        assert not Order(run, damaged).is_signed(key.public)
    assert not Order(-1, order.signature).is_signed(key.public)
    assert not Order(2**64, order.signature).is_signed(key.public)


def test_going_on_along_the_chains_gives_no_other_order():
    """Any larger digit can be reached by everybody; a digit of the checksum is smaller then."""
    key = OrderKey(bytes(32))
    signature, run = key.sign(0x123).signature, 0x124
    elements = [signature[24 * i : 24 * i + 24] for i in range(18)]
    digits, wanted = digits_of(0x123), digits_of(run)
    assert sum(digits[:16]) + 16 * digits[17] + digits[16] == 16 * LONGEST
    forged = [step(e, i, a, b) for i, (e, a, b) in enumerate(zip(elements, digits, wanted, strict=True))]
    assert [i for i, (a, b) in enumerate(zip(digits, wanted, strict=True)) if b < a] == [16]
    assert not Order(run, b"".join(forged)).is_signed(key.public)


def orders_in(node):
    return [(to, datagram) for to, datagram in node.take_outgoing() if datagram[3] == Kind.ORDER]


def test_a_node_asks_whoever_uses_an_epoch_that_it_does_not_know_to_hold():
    key = OrderKey()
    places = links_of([(0, 1), (1, 0)], 2)
    prepared = Node(places[0], MemoryLog(), Timing(), order_key=key.public)
    told = Node(places[1], MemoryLog(), Timing(), order=key.sign(5))
    prepared.receive(said(prepared, 1, kind=Kind.HELLO), 0.0)  # nobody is told by it that the epoch is used
    assert orders_in(prepared) == []
    told.begin(5, talk(1.0), now=1.0)
    pass_on([prepared, told], 1.0)
    assert prepared.order == key.sign(5)
    assert prepared.latest_heard == 5
    assert prepared.counters.forged == told.counters.forged == 0


def test_questions_and_orders_have_a_limited_rate():
    key = OrderKey()
    node = lone_node((1, 2), order_key=key.public)
    for k in range(10):
        node.receive(said(node, 1, run=5, round_=k), 0.001 * k)
    assert [to for to, _ in orders_in(node)] == [1]
    false = dict(kind=Kind.ORDER, program=0, run=7, signature=bytes(432))
    for k in range(10):
        node.receive(said(node, 1, **false), 1.0 + 0.001 * k)
    assert (node.counters.forged, node.counters.overflow) == (1, 9)
    assert "not the operator" in node.refusals[1]
    assert node.order is None
    node.receive(said(node, 2, **false | {"signature": key.sign(7).signature}), 1.0)  # another neighbour is heard
    assert node.order == key.sign(7)
    assert [to for to, _ in orders_in(node)] == [1]  # it passes it on
    node.receive(said(node, 2, **false), 2.0)
    assert node.counters.duplicate == 1
    for k in range(10):
        node.receive(said(node, 1, kind=Kind.ORDER, program=0), 3.0 + 0.01 * k)
    assert [to for to, _ in orders_in(node)] == [1]
    node.receive(said(node, 1, kind=Kind.ORDER, program=0), 3.0 + ORDER_EVERY)
    assert [to for to, _ in orders_in(node)] == [1]


def test_a_node_without_an_order_answers_no_question_and_takes_none():
    node = lone_node()
    node.receive(said(node, 1, kind=Kind.ORDER, program=0), 0.0)
    node.receive(said(node, 1, kind=Kind.ORDER, program=0, signature=OrderKey().sign(3).signature), 0.0)
    assert (node.counters.unanswered, node.counters.duplicate, node.order) == (1, 1, None)
    assert orders_in(node) == []


@pytest.mark.parametrize("seed", range(8))
def test_one_node_that_is_told_is_enough(seed, monkeypatch):
    """In simulations of a line: whoever is told passes it on, and all change at one run, without a missed link."""
    monkeypatch.setattr(simulated_actors, "NOT_TOLD", 0.9)
    graph = undirected([(i, i + 1) for i in range(5)], 6)
    nodes = agents.deploy(nn.FIR([1, 1], order=2).double(), graph, epoch=seed, secret=bytes(32))
    new = renew(dict(enumerate(nodes)), epoch=77, secret=bytes(range(32)))
    signals = np.ones((7, 6, 1))
    changes = [(4, [new[i] for i in range(6)])]
    told = []
    monkeypatch.setattr(MemoryChanges, "commit", watching(told))
    answer = simulate_inference(nodes, signals, changes=changes, seed=seed, timing=Timing(slot=1.0))
    epochs = {(r.run, r.epoch) for log in answer.outcome.logs for r in log.records if isinstance(r, Began)}
    assert all(result.complete for result in answer.outcome.results.values())
    if told:
        assert epochs == {(run, 77 if run >= 4 else None) for run in range(7)}
    else:
        assert epochs == {(run, None) for run in range(7)}


def watching(told, original=MemoryChanges.commit):
    def commit(self, order):
        told.append(order)
        original(self, order)

    return commit


def test_a_recording_does_not_make_a_neighbor_look_alive():
    node = lone_node((1,))
    recorded = [said(node, 1, run=0), said(node, 1, kind=Kind.REQUEST), said(node, 1, kind=Kind.HELLO)]
    recorded += [said(node, 1, kind=Kind.PRESENCE, run=0), said(node, 1, kind=Kind.WELCOME, run=1, round_=4)]
    node.begin(0, talk(1.0), now=0.0)
    node.receive(recorded[0], 0.1)
    assert node.last_heard == {1: 0.1}
    for run in (1, 2):
        node.begin(run, talk(1.0), now=10.0 * run)
        node.advance(10.0 * run + 1.0)
    for k, datagram in enumerate(recorded):
        node.receive(datagram, 50.0 + k)
    assert node.last_heard == {1: 0.1}
    node.receive(said(node, 1, run=3), 60.0)
    assert node.last_heard == {1: 60.0}


def test_nodes_that_greet_are_heard_by_the_answer():
    nodes = pair()
    nodes[0].greet()
    pass_on(nodes, 3.0)
    assert nodes[0].last_heard == {1: 3.0}
