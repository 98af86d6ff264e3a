"""UDP alone."""

import socket
import time

import pytest

from graphact_agents.addresses import Address, Addresses
from graphact_agents.transports import udp
from graphact_agents.transports.udp import UdpTransport
from local_agents import free_addresses


@pytest.fixture
def pair():
    a, b = free_addresses(2)
    transports = [UdpTransport(Addresses(a, {1: b})), UdpTransport(Addresses(b, {0: a}))]
    yield [*transports, b]
    for transport in transports:
        transport.close()


def test_datagrams_of_other_addresses_are_dropped(pair):
    first, second, address = pair
    with socket.socket(type=socket.SOCK_DGRAM) as stranger:
        for _ in range(10):
            stranger.sendto(b"stranger", (address.host, address.port))
        first.send(1, b"neighbour")
        assert second.receive(1.0) == b"neighbour"
        assert second.receive(0.05) is None


@pytest.mark.parametrize("timely", [True, False])
def test_one_that_is_timely_keeps_the_processor(timely, monkeypatch):
    a, b = free_addresses(2)
    first, second = UdpTransport(Addresses(a, {1: b})), UdpTransport(Addresses(b, {0: a}), timely=timely)
    yielded = []
    monkeypatch.setattr("graphact_agents.transports.udp.os.sched_yield", lambda: yielded.append(True))
    assert second.receive(0.01) is None
    assert second.receive(0.01) is None
    for word in (b"one", b"two"):
        first.send(1, word)
        assert second.receive(1.0) == word
    assert bool(yielded) != timely
    first.close()
    second.close()


def test_what_is_too_long_is_lost(pair):
    first, second, _ = pair
    first.send(1, b"x" * 70_000)
    first.send(1, b"y")
    assert second.receive(1.0) == b"y"


def test_an_unknown_name_of_its_own():
    with pytest.raises(OSError, match=r"cannot resolve nowhere.invalid:1"):
        UdpTransport(Addresses(Address("nowhere.invalid", 1), {}))


def test_a_neighbour_whose_name_is_unknown_is_away_until_it_is_known(monkeypatch, capsys):
    """It takes no other link along, and none of its datagrams is lost on the way later."""
    (a, b, c), names = free_addresses(3), {}
    look_up = socket.getaddrinfo
    monkeypatch.setattr(udp, "LOOK_UP_SECONDS", 0.01)
    monkeypatch.setattr(udp.socket, "getaddrinfo", lambda host, *rest: look_up(names.get(host, host), *rest))
    first = UdpTransport(Addresses(a, {1: b, 2: Address("nowhere.invalid", c.port)}))
    second, third = UdpTransport(Addresses(b, {0: a})), UdpTransport(Addresses(c, {0: a}))
    first.send(1, b"one")
    first.send(2, b"lost")
    assert second.receive(1.0) == b"one"
    assert f"cannot resolve nowhere.invalid:{c.port} yet" in capsys.readouterr().err
    names["nowhere.invalid"] = c.host
    until = time.monotonic() + 30
    while third.receive(0.05) is None:
        first.send(2, b"two")
        assert time.monotonic() < until
    third.send(0, b"back")
    assert first.receive(1.0) == b"back"
    for transport in (first, second, third):
        transport.close()


def test_a_foreign_address():
    with pytest.raises(OSError, match=r"cannot listen on 192.0.2.1:7500"):
        UdpTransport(Addresses(Address("192.0.2.1", 7500), {}))


def test_ipv6():
    try:
        probe = UdpTransport(Addresses(Address("::1", 0), {}))
    except OSError:
        pytest.skip("this machine has no IPv6")
    probe.close()
    with (
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as two,
    ):
        one.bind(("::1", 0))
        two.bind(("::1", 0))
        a, b = Address("::1", one.getsockname()[1]), Address("::1", two.getsockname()[1])
    first, second = UdpTransport(Addresses(a, {1: b})), UdpTransport(Addresses(b, {0: a}))
    first.send(1, b"six")
    assert second.receive(1.0) == b"six"
    first.close()
    second.close()
