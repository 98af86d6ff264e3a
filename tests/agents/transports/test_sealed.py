"""Encryption on UDP: nothing is read, no nonce is used twice under a key, recordings are of no use; frames that fit."""

import random
import signal
import sys
import time

import numpy as np
import pytest
from agents.live import Captured, Daemon, make_network
from agents.networks import links_of

from graphact import nn
from graphact.agents.addresses import Addresses, free_addresses
from graphact.agents.messages import RejectedError
from graphact.agents.rollout import Network
from graphact.agents.transports.base import open_transport
from graphact.agents.transports.sealed import HEADERS, PART, PARTIAL, SEALED, SealedTransport
from graphact.agents.transports.udp import UdpTransport
from graphact.cli import main

PATIENCE = 20.0
PAIR = links_of([(0, 1), (1, 0)], 2)


class Wire(UdpTransport):
    """UDP with a record of what was sent."""

    def __init__(self, addresses):
        self.sent = []
        super().__init__(addresses)

    def send(self, to, datagram):
        self.sent.append(datagram)
        super().send(to, datagram)


class Ends:
    """Two ends of a link, which may start again and again."""

    def __init__(self, **options):
        self.options, places = options, free_addresses(2)
        self.addresses = [Addresses(places[i], {1 - i: places[1 - i]}) for i in range(2)]
        self.wires, self.ends = [None, None], [None, None]
        for i in range(2):
            self.start(i)

    def start(self, i):
        if self.ends[i] is not None:
            self.ends[i].close()
        self.wires[i] = Wire(self.addresses[i])
        self.ends[i] = SealedTransport(self.wires[i], PAIR[i], **self.options)
        return self.ends[i]

    def deliver(self, i, datagram):
        """Send until it arrives; what came before it is dropped."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.ends[i].send(1 - i, datagram)
            for _ in range(50):
                self.ends[i].receive(0.0)
                if (arrived := self.ends[1 - i].receive(0.005)) == datagram:
                    return
                if arrived is None:
                    break
        raise AssertionError("it never arrived")

    def close(self):
        for end in self.ends:
            end.close()


@pytest.fixture
def ends():
    ends = Ends(encrypt=True)
    yield ends
    ends.close()


def sealed(frames):
    return [frame for frame in frames if frame[:2] == b"GS"]


def test_nothing_is_read_on_the_wire(ends):
    secret = b"the temperature is 21.5 degrees here"
    ends.deliver(0, secret)
    ends.deliver(1, secret)
    assert len(sealed(ends.wires[0].sent)) >= 1
    assert not any(secret[:8] in frame for wire in ends.wires for frame in wire.sent)


def test_no_nonce_repeats_under_a_key_whatever_is_lost(ends):
    """Lives of both ends, in any order, without any memory of those before."""
    rng, seen, before = random.Random(0), set(), {}
    for life in range(20):
        i = rng.randrange(2)
        before[i] = [*before.get(i, []), ends.wires[i]]
        ends.start(i)
        for number in range(5):
            ends.deliver(number % 2, b"%d in life %d" % (number, life))
    wires = [wire for i in range(2) for wire in [*before.get(i, []), ends.wires[i]]]
    for wire in wires:
        for frame in sealed(wire.sent):
            _, _, _, sender, session, counter = SEALED.unpack_from(frame)
            assert (sender, session, counter) not in seen
            seen.add((sender, session, counter))
    sessions = {(sender, session) for sender, session, _ in seen}
    assert len(sessions) >= 20
    assert len(seen) >= 100


def test_both_ends_of_a_session_have_keys_of_their_own(ends):
    ends.deliver(0, b"there")
    ends.deliver(1, b"back")
    (first,), (second,) = ends.ends[0]._peers.values(), ends.ends[1]._peers.values()
    assert first.session != second.session
    assert first.session in second.open
    assert second.session in first.open


def test_recordings_of_earlier_lives_are_of_no_use(ends):
    ends.deliver(0, b"before")
    recorded = list(ends.wires[0].sent)
    ends.start(0)
    ends.deliver(0, b"after")
    (peer,) = ends.ends[1]._peers.values()
    boot, session = peer.boot, peer.session
    for frame in recorded * 3:
        ends.wires[0]._socket.sendto(frame, ends.wires[0]._to[1])
        ends.ends[1].receive(0.005)
        ends.ends[0].receive(0.0)
    assert (peer.boot, peer.session) == (boot, session)
    ends.deliver(0, b"and on")
    ends.deliver(1, b"and back")


def test_altered_and_foreign_frames_are_dropped(ends):
    ends.deliver(0, b"x" * 40)
    while ends.ends[1].receive(0.1) is not None:
        pass
    frame, rng = sealed(ends.wires[0].sent)[-1], random.Random(0)
    before = dict(ends.ends[1].dropped)
    hostile = [frame[:n] for n in (0, 1, 3, 24, 45, len(frame) - 1)]
    hostile += [b"GA" + frame[2:], b"GK" + frame[2:], b"GP" + frame]
    for _ in range(200):
        altered = bytearray(frame)
        altered[rng.randrange(len(altered))] ^= 1 << rng.randrange(8)
        hostile.append(bytes(altered))
    for each in hostile:
        ends.wires[0]._socket.sendto(each, ends.wires[0]._to[1])
    until, arrived = time.monotonic() + PATIENCE, []
    while sum(ends.ends[1].dropped.values()) < sum(before.values()) + len(hostile) and time.monotonic() < until:
        arrived.append(ends.ends[1].receive(0.01))
    assert {*arrived} <= {None}
    counted = {name: count - before.get(name, 0) for name, count in ends.ends[1].dropped.items()}
    magic = sum(1 for each in hostile if each[:2] not in (b"GS", b"GA", b"GP"))  # cut short, or altered in these two
    assert counted["unsealed"] >= 2
    assert counted["malformed"] >= magic
    assert counted["unopened"] >= 150
    assert sum(counted.values()) == len(hostile)
    assert counted["strangers"] == 0


@pytest.mark.parametrize("encrypt", [True, False])
def test_frames_fit_into_the_network(encrypt):
    ends = Ends(encrypt=encrypt, mtu=900)
    try:
        content = random.Random(0).randbytes(65_507)
        for size in (1, 800, 851, 852, 853, 5000, 65_507):
            ends.deliver(0, content[:size])
        assert max(map(len, ends.wires[0].sent)) <= 900 - HEADERS
        whole = [frame for frame in ends.wires[0].sent if frame == content[:800]]
        assert bool(whole) == (not encrypt)  # what fits is not touched
    finally:
        ends.close()


@pytest.mark.parametrize("encrypt", [True, False])
def test_pieces_that_never_become_whole_take_little_room(encrypt):
    """A captured neighbour sends the first pieces of many messages."""
    ends = Ends(encrypt=encrypt, mtu=900)
    try:
        ends.deliver(0, b"x" * 2000)
        (peer,) = ends.ends[1]._peers.values()
        for message in range(1000):
            ends.ends[1]._join(peer, 0, PART.pack(message, 0, 200) + bytes(800))
            with pytest.raises(RejectedError):
                ends.ends[1]._join(peer, 0, PART.pack(message, 250, 200) + bytes(800))
        for piece in range(65_507 // 850):
            ends.ends[1]._join(peer, 0, PART.pack(7, piece, 200) + bytes(850))
        assert len(peer.partial) <= PARTIAL
        with pytest.raises(RejectedError):  # more than a datagram holds
            ends.ends[1]._join(peer, 0, PART.pack(7, 199, 200) + bytes(850))
        assert len(peer.partial) <= PARTIAL
        assert sum(len(p) for parts in peer.partial.values() for p in parts.values()) <= (PARTIAL + 1) * 65_507
        ends.deliver(0, b"y" * 3000)
    finally:
        ends.close()


def test_pieces_of_different_datagrams_are_never_joined():
    """One number of a message, other numbers of pieces or another session: a restart, or a captured neighbour."""
    ends = Ends(encrypt=False, mtu=900)
    try:
        (peer,), join = ends.ends[1]._peers.values(), ends.ends[1]._join
        for index, count in [(5, 10), (0, 2), (1, 3), (254, 255)]:
            assert join(peer, 0, PART.pack(7, index, count) + b"x") is None
        for index, count in [(255, 255), (0, 0), (1, 1), (7, 2)]:
            with pytest.raises(RejectedError, match="malformed"):
                join(peer, 0, PART.pack(7, index, count) + b"x")
        assert join(peer, 9, PART.pack(7, 1, 2) + b"of another session") is None
        assert join(peer, 0, PART.pack(7, 0, 2) + b"the first copy counts") is None
        assert join(peer, 0, PART.pack(7, 1, 2) + b"y") == b"xy"
        first = ends.ends[0]._message
        ends.start(0)
        assert ends.ends[0]._message != first  # numbers of two lives do not meet
    finally:
        ends.close()


def test_settings_are_checked(monkeypatch):
    addresses = Ends(encrypt=False)
    addresses.close()
    inner = Wire(addresses.addresses[0])
    try:
        for mtu in (575, 65_556):
            with pytest.raises(ValueError, match=f"mtu must lie between 576 and 65555, got {mtu}"):
                SealedTransport(inner, PAIR[0], mtu=mtu)
        monkeypatch.setitem(sys.modules, "cryptography", None)
        with pytest.raises(ModuleNotFoundError, match="needs the package cryptography"):
            SealedTransport(inner, PAIR[0])
    finally:
        inner.close()
    with pytest.raises(ValueError, match="need the transport udp, got zenoh"):
        open_transport("zenoh", PAIR[0], addresses.addresses[0], encrypt=True)


OPTIONS = ["--transport", "udp", "--period", "0.8", "--slot", "0.2", "--encrypt", "--mtu", "1280"]


@pytest.mark.slow
def test_running_agents_encrypt_and_change_their_keys(tmp_path, capsys):
    folders = make_network(tmp_path, [(0, 1), (1, 2)], 3, nn.FIR([1, 1], order=2).double())
    daemons = [Daemon(folder, *OPTIONS) for folder in folders]
    try:
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"])
        assert main(["agents", "rekey", str(tmp_path / "nodes")]) == 0
        run = int(capsys.readouterr().out.split()[-1])
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"] and event["run"] > run)
        daemons[1].__exit__()
        daemons[1] = Daemon(folders[1], *OPTIONS)
        for daemon in daemons:
            daemon.next_event("result", where=lambda event: event["complete"])
        daemons[0].process.send_signal(signal.SIGTERM)
        counters = daemons[0].next_event("end")["counters"]
        assert counters["forged"] == counters["malformed"] == 0
    finally:
        for daemon in daemons:
            daemon.__exit__()
    assert Network(tmp_path / "nodes").deployments[0].links.first_epoch is not None


def test_a_captured_neighbor_cannot_end_an_agent_by_pieces(tmp_path):
    """Authenticated, of all counts and in any order, with the numbers of one message."""
    folders, rng = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double(), tls=False), random.Random(0)
    options = ["--transport", "udp", "--period", "0.6", "--slot", "0.2", "--mtu", "1280"]
    with Captured(folders[1], slot=0.2, period=0.6) as captured, Daemon(folders[0], *options) as daemon:
        run = daemon.next_event("result")["run"]
        for index, count in [(5, 10), (0, 2), *((rng.randrange(256), rng.randrange(256)) for _ in range(500))]:
            captured.send_piece(0, PART.pack(7, index, count) + b"x")
        captured.say(0, run + 2, value=[1.0], pieces=3)
        result = daemon.next_event("result", where=lambda event: event["run"] == run + 2)
        assert result["complete"]  # what is whole and authentic is used
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.next_event("end")["counters"]["malformed"] > 100


@pytest.mark.slow
def test_who_does_not_encrypt_is_not_heard(tmp_path):
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())
    with Daemon(folders[0], *OPTIONS) as sealed_one, Daemon(folders[1], *OPTIONS[:-3]) as open_one:
        events = [*sealed_one.results(3), *open_one.results(3)]
    assert not any(event["complete"] for event in events)
    assert all(event["missed"] for event in events)
    assert np.isfinite([event["output"] for event in events]).all()
