"""Behaviour of every transport: one suite for the network in memory, UDP and Zenoh."""

import time

import pytest

from agents.networks import MemoryTransport
from graphact_agents.addresses import Addresses
from graphact_agents.transports.memory import MemoryNetwork
from graphact_agents.transports.udp import UdpTransport
from graphact_agents.transports.zenoh import ZenohTransport
from local_agents import free_addresses

PATIENCE = 5.0
BUSY = 30.0
"""Seconds after which what was sent again and again must have arrived, also on a busy machine."""
LINE = {0: (1,), 1: (0, 2), 2: (1,)}


class Memory:
    """Transports that share a network in memory."""

    def __init__(self, neighbors):
        self.network, self.inboxes = MemoryNetwork(neighbors), {}
        self.clock = lambda: self.network.now

    def open(self, node):
        return MemoryTransport(self.network, node, self.inboxes)


class Real:
    """Transports on ports of this machine."""

    clock = staticmethod(time.monotonic)

    def __init__(self, neighbors):
        everywhere = free_addresses(len(neighbors))
        self.addresses = {
            i: Addresses(everywhere[i], {j: everywhere[j] for j in others}) for i, others in neighbors.items()
        }


class Udp(Real):
    def open(self, node):
        return UdpTransport(self.addresses[node])


class Zenoh(Real):
    def open(self, node):
        return ZenohTransport(node, 7, self.addresses[node])


class Ends:
    """The ends of a network, closed when a test is over."""

    def __init__(self, network):
        self.network, self.opened = network, {}

    def open(self, *nodes):
        for node in nodes:
            self.opened[node] = self.network.open(node)
        return [self.opened[node] for node in nodes]

    def meet(self, sender, recipient):
        """Send until something arrives: connections take their time, and nothing is promised before."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.opened[sender].send(recipient, b"hello")
            if self.opened[recipient].receive(0.05) is not None:
                while self.opened[recipient].receive(0.05) is not None:
                    pass
                return
        pytest.fail(f"node {recipient} never heard node {sender}")


@pytest.fixture(params=[Memory, Udp, Zenoh], ids=lambda kind: kind.__name__.lower())
def line(request):
    """Three nodes in a line; the ends are opened by each test."""
    ends = Ends(request.param(LINE))
    yield ends
    for transport in ends.opened.values():
        transport.close()


def collect(transport, wait=0.15, at_least=0):
    """Everything that arrives until nothing does; a busy machine has time to deliver what must arrive."""
    arrived, end = [], time.monotonic() + PATIENCE
    while (datagram := transport.receive(wait)) is not None or (len(arrived) < at_least and time.monotonic() < end):
        arrived += [] if datagram is None else [datagram]
    return arrived


@pytest.mark.parametrize("size", [1, 52, 1500, 65_507])
def test_datagrams_arrive_whole(line, size):
    middle, end = line.open(1, 2)
    line.meet(2, 1)
    sent = bytes(i * 7 % 251 for i in range(size))
    end.send(1, sent)
    assert middle.receive(PATIENCE) == sent


def test_many_datagrams_arrive_both_ways(line):
    """A transport may lose what comes faster than it is read, as real links do; what is sent again arrives."""
    middle, end = line.open(1, 2)
    line.meet(2, 1)
    line.meet(1, 2)
    missing = {end: {b"there %d" % i for i in range(300)}, middle: {b"back %d" % i for i in range(300)}}
    until = time.monotonic() + BUSY
    while any(missing.values()) and time.monotonic() < until:
        sent = {sender: list(waiting) for sender, waiting in missing.items()}
        for sender, to in ((end, 1), (middle, 2)):
            for datagram in sent[sender]:
                sender.send(to, datagram)
        for sender, receiver in ((end, middle), (middle, end)):
            arrived = collect(receiver)
            assert len(arrived) == len(set(arrived))
            assert set(arrived) <= set(sent[sender])
            missing[sender] -= set(arrived)
    assert missing == {end: set(), middle: set()}


def test_nobody_hears_what_is_not_for_him(line):
    first, middle, last = line.open(0, 1, 2)
    for sender, recipient in [(0, 1), (2, 1), (1, 0), (1, 2)]:
        line.meet(sender, recipient)
    links = {
        (first, middle): b"0 to 1",
        (last, middle): b"2 to 1",
        (middle, first): b"1 to 0",
        (middle, last): b"1 to 2",
    }
    missing = {pair: {b"%s, %d" % (text, number) for number in range(20)} for pair, text in links.items()}
    numbers = {first: 0, middle: 1, last: 2}
    until = time.monotonic() + BUSY
    while any(missing.values()) and time.monotonic() < until:  # what is lost on a busy machine is sent again
        sent = {pair: set(waiting) for pair, waiting in missing.items()}
        for (sender, receiver), datagrams in sent.items():
            for datagram in datagrams:
                sender.send(numbers[receiver], datagram)
        for node in numbers:
            arrived, pairs = collect(node), [pair for pair in links if pair[1] is node]
            assert len(arrived) == len(set(arrived))
            assert set(arrived) <= set().union(*(sent[pair] for pair in pairs))
            for pair in pairs:
                missing[pair] -= set(arrived)
    assert not any(missing.values())


def test_strangers_are_refused(line):
    (first,) = line.open(0)
    with pytest.raises(KeyError):
        first.send(2, b"hello")


def test_receiving_waits_as_long_as_told(line):
    (middle,) = line.open(1)
    before = line.network.clock()
    assert middle.receive(0.0) is None
    assert line.network.clock() - before < 0.05
    assert middle.receive(0.25) is None
    assert 0.24 <= line.network.clock() - before < 1.0


def test_a_neighbor_that_is_away_does_no_harm(line):
    (middle,) = line.open(1)
    before = time.monotonic()
    for _ in range(1000):
        middle.send(0, b"x" * 100)
        middle.send(2, b"x" * 100)
    assert time.monotonic() - before < 2.0


def test_a_neighbor_that_does_not_listen_does_no_harm(line):
    middle, end = line.open(1, 2)
    line.meet(1, 2)
    before = time.monotonic()
    for i in range(20_000):
        middle.send(2, b"%d" % i)
    assert time.monotonic() - before < 10.0
    arrived = collect(end)
    assert arrived
    assert set(arrived) <= {b"%d" % i for i in range(20_000)}


def test_a_neighbor_that_comes_back_is_heard_again(line):
    _, end = line.open(1, 2)
    line.meet(2, 1)
    end.close()
    line.open(2)
    line.meet(2, 1)
    line.meet(1, 2)


def test_a_node_that_comes_late_is_heard(line):
    line.open(2)
    line.opened[2].send(1, b"nobody is there")
    time.sleep(0.3)
    line.open(1)
    line.meet(2, 1)
    line.meet(1, 2)


def test_closing(line):
    middle, _ = line.open(1, 2)
    line.meet(2, 1)
    middle.close()
    middle.close()
    middle.send(2, b"hello")
    assert middle.receive(0.01) is None
