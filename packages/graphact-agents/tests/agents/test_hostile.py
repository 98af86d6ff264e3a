"""Strangers on the wire. `make soak` sends a million hostile datagrams."""

import numpy as np
import pytest

from agents import hostile
from agents.networks import links_of
from graphact_agents import Exchange, MemoryLog, Node


def test_hostile_datagrams():
    sent, counters, _ = hostile.attack(50_000)
    assert sent >= 50_000
    for reason in ("malformed", "foreign", "forged", "stale"):
        assert getattr(counters, reason) > 1000


def exchange_once(value):
    return (yield Exchange(np.array([value])))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recorded_message_of_an_earlier_run_is_refused(restarted):
    places = links_of([(0, 1), (1, 0)], 2)
    nodes = [Node(place, MemoryLog()) for place in places]
    recorded = []
    for run in (0, 1):
        for node in nodes:
            node.begin(run, exchange_once(float(run)), now=float(run))
        for node in nodes:
            for to, datagram in node.take_outgoing():
                recorded.append((to, datagram))
                nodes[to].receive(datagram, float(run))
    if restarted:
        nodes[0] = Node(places[0], nodes[0].log)
    nodes[0].begin(2, exchange_once(2.0), now=2.0)
    for to, datagram in recorded:
        if to == 0:
            nodes[0].receive(datagram, 2.0)
    assert nodes[0].busy
    assert nodes[0].counters.stale == 2
