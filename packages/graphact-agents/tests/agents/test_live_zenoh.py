"""Running agents on Zenoh: who is let in, what it may say, and how much of it."""

import json
import signal
import socket
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from agents.live import PATIENCE, Daemon, make_network
from graphact_agents import Deployment
from graphact_agents.certificates import make_certificates
from graphact_agents.messages import Kind, Message, Payload, encode
from graphact_agents.transports.zenoh import key_prefix

zenoh = pytest.importorskip("zenoh")
LINE = [(0, 1), (1, 2)]
OPTIONS = ["--transport", "zenoh", "--period", "2", "--slot", "0.6"]


@pytest.fixture
def line(tmp_path):
    return make_network(tmp_path, LINE, 3)


def address_of(folder):
    return Deployment.load(folder).reached.listen


@contextmanager
def started(folders, *options):
    """Running agents that have answered completely once, all of them."""
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(folder, *OPTIONS, *options)) for folder in folders]
        for daemon in daemons:
            daemon.next_event("result", where=is_complete)
        yield daemons


def is_complete(event):
    return event["complete"]


@contextmanager
def session(endpoint, tls=None, mode="peer"):
    """Anybody's own session that connects to a node."""
    settings = {
        "mode": mode,
        "connect/endpoints": [endpoint],
        "connect/timeout_ms": 2000,
        "connect/exit_on_failure": False,
        "listen/endpoints": [],
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
    }
    if tls is not None:
        settings["transport/link/tls"] = {
            "root_ca_certificate": str(tls / "ca.pem"),
            "connect_certificate": str(tls / "cert.pem"),
            "connect_private_key": str(tls / "key.pem"),
            "enable_mtls": True,
            "verify_name_on_connect": False,
        }
    config = zenoh.Config()
    for name, value in settings.items():
        config.insert_json5(name, json.dumps(value))
    opened = zenoh.open(config)
    try:
        yield opened
    finally:
        opened.close()


def peak_memory(daemon):
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def counters_at_end(daemon):
    daemon.process.send_signal(signal.SIGTERM)
    return daemon.next_event("end")["counters"]


def test_who_has_no_certificate_of_the_network_is_not_connected(line, tmp_path):
    stranger = tmp_path / "stranger"
    (stranger / "tls").mkdir(parents=True)
    for name, content in make_certificates({0: "127.0.0.1"}, 1)[0].items():  # named node-0, by another authority
        (stranger / name).touch(mode=0o600)
        (stranger / name).write_bytes(content)
    where = address_of(line[1])
    attempts = [
        (f"tcp/{where}", None),
        (f"tls/{where}", stranger / "tls"),
    ]
    with started(line) as daemons:
        for endpoint, tls in attempts:
            with session(endpoint, tls) as outsider:
                heard = []
                outsider.declare_subscriber("**", lambda sample, heard=heard: heard.append(sample))
                assert daemons[1].next_event("result", where=is_complete)
                assert daemons[1].next_event("result", where=is_complete)
                assert len(outsider.info.peers_zid()) == 0
                assert heard == []


@pytest.mark.parametrize("is_encrypted", [True, False], ids=["tls", "plain"])
def test_a_neighbor_says_what_is_its_own_and_no_more_than_a_datagram(line, is_encrypted):
    """Node 2 of a line in wrong hands: for itself it may speak; not for node 0, not to it, and not at length."""
    prefix, where = key_prefix(Deployment.load(line[1]).links.epoch), address_of(line[1])
    tls = line[2] / "tls" if is_encrypted else None
    others = [f"{prefix}/to/1/from/9", f"{prefix}/to/0/from/1", f"{prefix}/to/0/from/2", "else"]
    others += [f"{prefix}/to/1/from/0"] if is_encrypted else []  # without certificates nobody knows who speaks
    options = [] if is_encrypted else ["--no-tls"]
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(folder, *OPTIONS, *options)) for folder in line[:2]]
        for daemon in daemons:
            daemon.next_event("result")
        before = peak_memory(daemons[1])
        endpoint = f"tls/{where}" if is_encrypted else f"tcp/{where}"
        with session(endpoint, tls, mode="client") as captured:
            for _ in range(10):
                for key in others:
                    captured.put(key, b"junk")
            captured.put(f"{prefix}/to/1/from/2", b"junk")
            daemons[1].next_event("result")
            for _ in range(3):
                captured.put(
                    f"{prefix}/to/1/from/2", bytes(60_000_000), congestion_control=zenoh.CongestionControl.BLOCK
                )
            results = daemons[1].results(2)
        assert peak_memory(daemons[1]) - before < 30
        assert all(result["seconds"] < 2 for result in results)
        counters = [counters_at_end(daemon) for daemon in daemons]
    assert [each["malformed"] for each in counters] == [0, 1]
    assert counters[0]["foreign"] == counters[1]["foreign"] == 0


def test_silent_connections_keep_no_neighbor_out(line):
    """400 connections that say nothing wait at node 1 when it starts; its neighbours get in all the same."""
    where = address_of(line[1])
    with ExitStack() as stack, started(line) as daemons:
        daemons[1].kill()
        again = stack.enter_context(Daemon(line[1], *OPTIONS))
        until, opened = time.monotonic() + PATIENCE, 0
        while opened < 400 and time.monotonic() < until:
            try:
                stack.enter_context(socket.create_connection((where.host, where.port), timeout=5))
                opened += 1
            except OSError:
                time.sleep(0.02)
        assert opened == 400
        again.next_event("result", where=is_complete)
        for daemon in (daemons[0], daemons[2]):
            daemon.next_event("result", where=is_complete)


@pytest.mark.slow
def test_a_neighbor_that_floods_takes_little_memory(line):
    """With messages that are just allowed, faster than they are read; others are heard all the same."""
    links, where = Deployment.load(line[1]).links, address_of(line[1])
    message = Message(Kind.DATA, 2, 1, links.epoch, 5, 0, 1, Payload.from_array(np.zeros(8100)))
    forged = encode(message, bytes(32))  # takes its time: all of it is hashed before it is refused
    with Daemon(line[0], *OPTIONS, "--no-tls"), Daemon(line[1], *OPTIONS, "--no-tls") as victim:
        hears_the_other = dict(where=lambda event: event["missed"] and all(0 not in each for each in event["missed"]))
        victim.next_event("result", **hears_the_other)
        before, until = peak_memory(victim), time.monotonic() + 5.0
        with session(f"tcp/{where}", mode="client") as captured:
            quality = {"congestion_control": zenoh.CongestionControl.BLOCK}
            flood = captured.declare_publisher(f"{key_prefix(links.epoch)}/to/1/from/2", **quality)
            while time.monotonic() < until:
                flood.put(forged)
            grown = peak_memory(victim) - before
            assert grown < 40, f"{grown:.0f} MiB"
            assert victim.next_event("result", timeout=10.0)["seconds"] < 2
        victim.next_event("result", **hears_the_other)
        counters = counters_at_end(victim)
    assert counters["overflow"] > 1000
