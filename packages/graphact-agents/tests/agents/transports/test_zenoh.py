"""Zenoh alone: who is connected, and encryption."""

import time

import pytest

from graphact_agents.addresses import Address, Addresses
from graphact_agents.certificates import TLS_FOLDER, make_certificates
from graphact_agents.transports.transport import open_transport
from graphact_agents.transports.zenoh import ZenohTransport, endpoints
from local_agents import free_addresses


def open_line(tls=None):
    """A line of three."""
    a, b, c = free_addresses(3)
    places = [Addresses(a, {1: b}), Addresses(b, {0: a, 2: c}), Addresses(c, {1: b})]
    return [ZenohTransport(i, 5, place, None if tls is None else tls[i]) for i, place in enumerate(places)]


def close_all(transports):
    for transport in transports:
        transport.close()


def connections(transport):
    return len(transport._session.info.peers_zid())


def wait_until_connected(transport, neighbors, timeout):
    """Wait for this many neighbours, at most ``timeout`` seconds; whether they came."""
    until = time.monotonic() + timeout
    while (missing := connections(transport) < neighbors) and time.monotonic() < until:
        time.sleep(0.01)
    return not missing


def test_the_ends_of_a_line_are_not_connected_and_hear_nothing_of_each_other():
    """Even a node that listens to every key there is hears its neighbours alone."""
    line = open_line()
    heard = [[], [], []]
    try:
        listeners = [
            transport._session.declare_subscriber("**", lambda sample, keys=keys: keys.append(str(sample.key_expr)))
            for transport, keys in zip(line, heard, strict=True)
        ]
        assert wait_until_connected(line[1], 2, timeout=5)
        until = time.monotonic() + 20
        while time.monotonic() < until and [len(set(keys)) for keys in heard] != [2, 4, 2]:
            line[0].send(1, b"from 0")
            line[2].send(1, b"from 2")
            line[1].send(0, b"from 1")
            line[1].send(2, b"from 1")
            time.sleep(0.02)
        time.sleep(0.2)
        assert [connections(transport) for transport in line] == [1, 2, 1]
        assert len(listeners) == 3
    finally:
        close_all(line)
    senders = [{key.rpartition("/")[2] for key in keys} for keys in heard]
    assert senders == [{"0", "1"}, {"0", "1", "2"}, {"1", "2"}]  # everybody hears himself, too


def certified(folder, count):
    """The files of nodes of this machine, signed by an authority of their own."""
    for node, files in make_certificates(dict.fromkeys(range(count), "127.0.0.1"), 1).items():
        (folder / f"node-{node}" / TLS_FOLDER).mkdir(parents=True)
        for name, content in files.items():
            (folder / f"node-{node}" / name).touch(mode=0o600)
            (folder / f"node-{node}" / name).write_bytes(content)
    return [folder / f"node-{i}" / TLS_FOLDER for i in range(count)]


def test_tls_lets_in_nodes_with_a_certificate_of_the_authority_alone(tmp_path):
    line = open_line([*certified(tmp_path / "ours", 2), certified(tmp_path / "theirs", 3)[2]])
    try:
        assert wait_until_connected(line[0], 1, timeout=5)
        until = time.monotonic() + 5
        arrived = None
        while arrived is None and time.monotonic() < until:
            line[0].send(1, b"secret")
            arrived = line[1].receive(0.05)
        assert arrived == b"secret"
        time.sleep(1.0)  # the stranger goes on trying
        assert [connections(transport) for transport in line] == [1, 1, 0]
    finally:
        close_all(line)


def test_tls_is_one_encrypted_link_and_needs_all_files(tmp_path):
    address = Address("10.0.0.7", 7500)
    assert endpoints(address, None) == ["tcp/10.0.0.7:7500?rel=1", "udp/10.0.0.7:7500?rel=0"]
    assert endpoints(address, tmp_path) == ["tls/10.0.0.7:7500"]
    with pytest.raises(FileNotFoundError, match="ca.pem is missing; TLS needs ca.pem, cert.pem and key.pem"):
        ZenohTransport(0, 1, Addresses(address, {}), tmp_path)


def test_udp_cannot_encrypt(tmp_path):
    addresses = Addresses(Address("127.0.0.1", 1), {})
    with pytest.raises(ValueError, match="TLS needs the transport zenoh, got udp"):
        open_transport("udp", None, addresses, tmp_path)
    with pytest.raises(ValueError, match="transport must be one of 'zenoh', 'udp', got 'pigeon'"):
        open_transport("pigeon", None, addresses)
