"""Encryption on UDP: nothing is read, no nonce is used twice under a key, recordings are of no use; frames that fit."""

import hashlib
import json
import random
import signal
import sys
import time
import urllib.request

import numpy as np
import pytest
from agents.live import Captured, Daemon, make_network
from agents.networks import links_of

from graphact import nn
from graphact.agents.addresses import Addresses, free_addresses
from graphact.agents.links import Links
from graphact.agents.messages import RejectedError
from graphact.agents.rollout import Network
from graphact.agents.transports.base import open_transport, take_refusals
from graphact.agents.transports.memory import flip_bit
from graphact.agents.transports.sealed import (
    CUT,
    HEADERS,
    NONCE,
    OTHER_VERSION,
    PART,
    PARTIAL,
    SEALED,
    SESSION,
    VERSION,
    SealedTransport,
    tag_of,
)
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
        for end in ends.ends:
            (peer,) = end._peers.values()
            assert {*peer.open} == {*end._by_session}  # keys of lives that are over are forgotten
            assert len(peer.open) <= 2
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


@pytest.mark.parametrize("size", [0, 1, 68, 812, 813, 3000])
def test_frames_are_as_documented(size):
    """An independent reader with the key of the link and both boot identities: the cipher, its keys and its nonces."""
    aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
    invalid = pytest.importorskip("cryptography.exceptions").InvalidTag
    ends, content = Ends(encrypt=True, mtu=900), random.Random(0).randbytes(size)
    try:
        ends.deliver(0, b"begin")
        ends.wires[0].sent.clear()
        ends.deliver(0, content)
        (peer,) = ends.ends[0]._peers.values()
        frames = sealed(ends.wires[0].sent)
        text = bytes(4) + (1).to_bytes(4, "little") + ends.ends[0]._boot + peer.boot
        digest, older = (
            hashlib.blake2b(text, key=PAIR[0].keys[1], digest_size=40, person=label).digest()
            for label in (b"graphact aes-gcm", b"graphact aead")
        )
        found, about = b"", CUT if len(frames) > 1 else None
        for frame in frames:
            *fields, session, counter = SEALED.unpack_from(frame)
            assert fields == [b"GS", VERSION, int(len(frames) > 1), 0]
            assert session.to_bytes(8, "little") == digest[32:] == frame[8:16]
            nonce = digest[36:] + counter.to_bytes(8, "little")
            part = aead.AESGCM(digest[:32]).decrypt(nonce, frame[24:], about)
            found += part if about is None else part[PART.size :]
            for other in (aead.ChaCha20Poly1305(digest[:32]), aead.AESGCM(older[:32])):
                with pytest.raises(invalid):
                    other.decrypt(nonce, frame[24:], about)
        assert found == content
        assert (len(frames) > 1) == (size > 812)
    finally:
        ends.close()


@pytest.mark.parametrize("size", [40, 1000])
def test_every_bit_of_a_header_is_bound(size):
    """Of a whole datagram, which has no associated data, and of a piece; none is taken for the other."""
    ends = Ends(encrypt=True, mtu=900)
    try:
        ends.deliver(0, b"x" * size)
        while ends.ends[1].receive(0.1) is not None:
            pass
        frame = sealed(ends.wires[0].sent)[-1]
        altered = [flip_bit(frame, bit) for bit in range(16, 8 * SEALED.size)]  # beyond the magic
        (peer,), before = ends.ends[1]._peers.values(), ends.ends[1].dropped.get("unopened", 0)
        for each in altered:
            ends.wires[0]._socket.sendto(each, ends.wires[0]._to[1])
        until, arrived = time.monotonic() + PATIENCE, []
        while ends.ends[1].dropped.get("unopened", 0) < before + len(altered) and time.monotonic() < until:
            arrived.append(ends.ends[1].receive(0.01))
        assert {*arrived} == {None}
        assert [ends.ends[1]._take(each) for each in altered] == [None] * len(altered)
        assert ends.ends[1].dropped["unopened"] == before + 2 * len(altered)
        assert not peer.partial
    finally:
        ends.close()


def test_a_piece_without_its_number_is_malformed(ends):
    ends.deliver(0, b"begin")
    (peer,) = ends.ends[0]._peers.values()
    for length in range(PART.size):
        head = SEALED.pack(b"GS", VERSION, 1, 0, peer.session, 2**40 + length)
        assert ends.ends[1]._take(head + peer.seal(head[NONCE], bytes(length), CUT)) is None
    assert ends.ends[1].dropped["malformed"] == PART.size


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


def test_a_datagram_goes_with_the_key_of_its_epoch(ends):
    """While both ends hold two, that of a change beside the one that goes."""
    later = [Links(i, 7, (1 - i,), (1 - i,), {1 - i: b"k" * 32}) for i in range(2)]
    ends.deliver(0, b"of the first epoch alone")
    for i in range(2):
        ends.ends[i].reach((ends.addresses[i], PAIR[i]), (ends.addresses[i], later[i]))
    first, second = ends.ends[0]._peers.values()
    for peer in (first, second, first):
        datagram = bytes(16) + peer.epoch.to_bytes(8, "little") + b"content"
        ends.deliver(0, datagram)
        assert SEALED.unpack_from(sealed(ends.wires[0].sent)[-1])[4] == peer.session
    assert first.session != second.session
    for i in range(2):
        ends.ends[i].reach((ends.addresses[i], later[i]))
    ends.deliver(0, b"of the second alone, and it says so nowhere")
    assert SEALED.unpack_from(sealed(ends.wires[0].sent)[-1])[4] == second.session
    recorded = next(frame for frame in sealed(ends.wires[0].sent) if SEALED.unpack_from(frame)[4] == first.session)
    assert ends.ends[1]._take(recorded) is None  # its key is gone


def ask_as_version(version, links, to, key=None):
    """A message for a session as another version of graphact sends it."""
    body = SESSION.pack(b"GK", version, 1, links.node, to, links.epoch, b"b" * 16, b"c" * 16, bytes(16))
    return body + tag_of(body, key or links.keys[to])


def test_a_neighbor_with_another_version_is_told(ends):
    """It is never answered, so nothing is sealed for it; one without the key cannot claim to be one."""
    ends.start(1)
    end, (peer,) = ends.ends[1], ends.ends[1]._peers.values()
    assert [end._take(ask_as_version(version, PAIR[0], 1)) for version in (1, VERSION + 1)] == [None, None]
    assert take_refusals(end) == {0: OTHER_VERSION}
    assert take_refusals(end) == {}
    assert end._take(ask_as_version(1, PAIR[0], 1, key=bytes(32))) is None
    assert take_refusals(end) == {}
    assert (end.dropped["other_version"], end.dropped["forged"]) == (2, 1)
    assert (ends.wires[1].sent, peer.seal, peer.boot) == ([], None, b"")
    ends.deliver(0, b"of this version")
    assert take_refusals(end) == take_refusals(ends.wires[1]) == {}


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


def test_a_running_agent_tells_of_a_neighbor_with_another_version(tmp_path):
    """An event and the status, until that neighbour was brought to this version and is heard."""
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double(), tls=False)

    def refused(address):
        with urllib.request.urlopen(f"http://{address}/status", timeout=20) as answer:
            status = json.load(answer)
        assert (f"1: {OTHER_VERSION}" in status["trouble"]) == bool(status["peers"]["1"]["refused"])
        return status["peers"]["1"]["refused"]

    with Daemon(folders[0], *OPTIONS, "--status", "0") as daemon:
        address = daemon.next_event("ready")["status"]
        with Captured(folders[1]) as older:
            older.send(0, ask_as_version(1, older.links, 0))
            event = daemon.next_event("refused")
        assert (event["neighbor"], event["reason"], refused(address)) == (1, OTHER_VERSION, OTHER_VERSION)
        with Daemon(folders[1], *OPTIONS) as other:
            other.next_event("result", where=lambda event: event["complete"])
            daemon.next_event("result", where=lambda event: event["complete"])
            assert refused(address) == ""


@pytest.mark.slow
def test_who_does_not_encrypt_is_not_heard(tmp_path):
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())
    with Daemon(folders[0], *OPTIONS) as sealed_one, Daemon(folders[1], *OPTIONS[:-3]) as open_one:
        events = [*sealed_one.results(3), *open_one.results(3)]
    assert not any(event["complete"] for event in events)
    assert all(event["missed"] for event in events)
    assert np.isfinite([event["output"] for event in events]).all()
