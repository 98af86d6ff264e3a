"""Datagrams over UDP that nobody else reads, and that fit into the frames of the network. Encryption needs the extra
``agents``.

A datagram is cut into pieces that fit; every piece is a frame of its own, sealed by ChaCha20-Poly1305 or, without
encryption, authenticated with the key of the link. What does not need to be cut is sent as it is, without encryption.

======  =====  ============================================================================
frame   bytes  fields, little-endian
======  =====  ============================================================================
session 84     ``GK``, version, flag (1: answer me), sender, recipient, epoch, boot identity, challenge, echo of a
               challenge, 16 bytes of BLAKE2b keyed with the key of the link
sealed  46 + n ``GS``, version, 0, sender, session, counter; encrypted: message, piece, pieces, content; 16 bytes of tag
piece   42 + n ``GP``, version, 0, sender, epoch, message, piece, pieces, content; 16 bytes of BLAKE2b as above
======  =====  ============================================================================

**Sessions.** Each node draws a boot identity of 16 random bytes when it starts. The key from i to j is derived from the
key of the link and the boot identities of both, so it is new whenever one of them starts, and the counter, which is the
nonce, never goes back in one life of a node: no nonce is used twice under a key, whatever was lost with a disk. A boot
identity is believed when its message repeats a challenge that was drawn for it, so a recorded one is of no use.
"""

import hashlib
import hmac
import importlib
import itertools
import secrets
import struct
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphact._extras import require
from graphact.agents.addresses import Addresses
from graphact.agents.links import Links
from graphact.agents.messages import MAX_DATAGRAM, TAG_BYTES, RejectedError
from graphact.agents.transports.udp import MOST_DROPPED, UdpTransport

VERSION = 1
SESSION = struct.Struct("<2sBBIIQ16s16s16s")
SEALED = struct.Struct("<2sBBIQQ")
PIECE = struct.Struct("<2sBBIQ")
PART = struct.Struct("<IBB")  # message, piece, pieces
WHOLE = PART.pack(0, 0, 1)
HEADERS = 48
"""Bytes of IPv6 and UDP in a frame of the network."""
SMALLEST_MTU, LARGEST_MTU = 576, MAX_DATAGRAM + HEADERS
ASK_EVERY = 0.02
"""Seconds from one message for a session to the next, for each neighbour."""
WAITING = 64
"""Datagrams that wait for a session, for each neighbour; older ones are lost."""
PARTIAL = 8
"""Messages of which some pieces are there, for each neighbour; each of them takes a datagram at most."""
NOTHING = bytes(16)

Open = Callable[[bytes, bytes, bytes], bytes]  # nonce, content, associated data
Whole = tuple[int, int, int]  # what the pieces of one datagram have in common: session, message, number of pieces


@dataclass
class Peer:
    """One neighbour in one epoch: its key, and the sessions with it."""

    node: int
    epoch: int
    key: bytes
    challenge: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    boot: bytes = b""
    seal: Open | None = None
    session: int = 0
    open: "OrderedDict[int, Open]" = field(default_factory=OrderedDict)  # the session of now, and the one before
    asked: float = float("-inf")
    answered: float = float("-inf")
    waiting: "deque[bytes]" = field(default_factory=lambda: deque(maxlen=WAITING))
    partial: "OrderedDict[Whole, dict[int, bytes]]" = field(default_factory=OrderedDict)


class SealedTransport:
    """UDP with frames that fit, encrypted or not.

    Args:
        inner: the transport below.
        links: the links of the node, with their keys.
        mtu: the largest frame of the network in bytes, 576 to 65555; longer datagrams go in pieces.
        encrypt: seal everything; then what is not sealed is dropped.

    Attributes:
        dropped: what was not let in, by reason: of ``strangers``; ``unsealed``, not encrypted where this node encrypts;
            ``unopened``, encrypted for a session that this node has not, or altered; ``forged``, ``foreign`` and
            ``malformed`` frames.

    Raises:
        ModuleNotFoundError: it shall encrypt, and cryptography is not installed.
    """

    def __init__(self, inner: UdpTransport, links: Links, *, mtu: int = LARGEST_MTU, encrypt: bool = True) -> None:
        if not SMALLEST_MTU <= mtu <= LARGEST_MTU:
            raise ValueError(f"mtu must lie between {SMALLEST_MTU} and {LARGEST_MTU}, got {mtu}")
        self._cipher: Any = None
        if encrypt:
            require("encryption on UDP needs", "cryptography")
            self._cipher = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead").ChaCha20Poly1305
        self._inner, self._node = inner, links.node
        self._room = mtu - HEADERS
        self._whole = self._room - SEALED.size - PART.size - TAG_BYTES
        self._boot = secrets.token_bytes(16)
        self._counter, self._message = 0, secrets.randbits(32)  # pieces of an earlier life are those of others
        self._refused: Counter[str] = Counter()
        self._peers: dict[tuple[int, int], Peer] = {}
        self._arrived: deque[bytes] = deque()  # while this node waited to send
        self._hold(links)

    @property
    def dropped(self) -> Mapping[str, int]:
        return {**self._inner.dropped, **self._refused}

    def _hold(self, *links: Links) -> None:
        """Have these epochs; sessions of those that stay go on."""
        wanted = {(each.epoch, j): key for each in links for j, key in each.keys.items()}
        self._peers = {at: self._peers.get(at) or Peer(at[1], at[0], key) for at, key in wanted.items()}
        self._by_epoch = {(epoch.to_bytes(8, "little"), j): peer for (epoch, j), peer in self._peers.items()}
        self._by_session = {session: peer for peer in self._peers.values() for session in peer.open}

    def look_up(self, addresses: Addresses) -> None:
        self._inner.look_up(addresses)

    def reach(self, *places: tuple[Addresses, Links]) -> None:
        self._inner.reach(*places)
        self._hold(*(links for _, links in places))

    # Sending

    def send(self, to: int, datagram: bytes) -> None:
        if self._cipher is None and len(datagram) <= self._room:
            self._inner.send(to, datagram)
            return
        peer = self._peer(datagram, to)
        if self._cipher is None:
            head = PIECE.pack(b"GP", VERSION, 0, self._node, peer.epoch)
            for part in self._cut(datagram, self._room - PIECE.size - TAG_BYTES):
                self._inner.send(to, head + part + tag_of(head + part, peer.key))
        elif peer.seal is not None and len(datagram) <= self._whole:  # as a rule
            self._counter += 1
            head = SEALED.pack(b"GS", VERSION, 0, self._node, peer.session, self._counter)
            self._inner.send(to, head + peer.seal(self._counter.to_bytes(12, "little"), WHOLE + datagram, head))
        elif peer.seal is None:
            peer.waiting.append(datagram)
            self._ask(peer)
            for _ in range(WAITING):  # the answer may be there
                if len(self._arrived) >= WAITING or (frame := self._inner.receive(0.0)) is None:
                    break
                if (arrived := self._take(frame)) is not None:
                    self._arrived.append(arrived)
        else:
            for part in self._cut(datagram, self._room - SEALED.size - TAG_BYTES):
                self._counter += 1
                head = SEALED.pack(b"GS", VERSION, 0, self._node, peer.session, self._counter)
                self._inner.send(to, head + peer.seal(nonce_of(self._counter), part, head))

    def _peer(self, datagram: bytes, to: int) -> Peer:
        """The neighbour in the epoch of a datagram, or in any, if it carries none; KeyError if there is none."""
        peer = self._by_epoch.get((datagram[16:24], to))
        if peer is None:
            peer = next((each for (_, j), each in self._peers.items() if j == to), None)
        if peer is None:
            raise KeyError(f"node {self._node} has no link to node {to}")
        return peer

    def _cut(self, datagram: bytes, room: int) -> list[bytes]:
        """A datagram in parts of at most ``room`` bytes, each with its number."""
        size = room - PART.size
        self._message = (self._message + 1) % 2**32
        count = -(-len(datagram) // size)
        parts = (datagram[size * i : size * (i + 1)] for i in range(count))
        return [PART.pack(self._message, i, count) + part for i, part in enumerate(parts)]

    # Receiving

    def receive(self, timeout: float) -> bytes | None:
        if self._arrived:
            return self._arrived.popleft()
        until = time.monotonic() + timeout if timeout > 0 else 0.0
        for count in itertools.count(1):
            frame = self._inner.receive(timeout)
            if frame is None:
                break
            datagram = self._take(frame)
            if datagram is not None:
                return datagram
            timeout = until - time.monotonic() if until else 0.0
            if timeout <= 0 and (until or count >= MOST_DROPPED):
                break
        return None

    def _take(self, frame: bytes) -> bytes | None:
        """The datagram in a frame, or that which it completes; a frame that is not used is counted."""
        try:
            kind = frame[:2]
            if kind == b"GS" and self._cipher is not None and len(frame) >= SEALED.size + PART.size + TAG_BYTES:
                return self._open(frame)
            if kind == b"GK" and self._cipher is not None and len(frame) == SESSION.size + TAG_BYTES:
                self._meet(frame)
                return None
            if kind == b"GP" and self._cipher is None and len(frame) >= PIECE.size + PART.size + TAG_BYTES:
                _, version, _, sender, epoch = PIECE.unpack_from(frame)
                peer, body = self._peers.get((epoch, sender)), frame[:-TAG_BYTES]
                if peer is None or version != VERSION:
                    raise RejectedError("foreign")
                if not hmac.compare_digest(tag_of(body, peer.key), frame[-TAG_BYTES:]):
                    raise RejectedError("forged")
                return self._join(peer, 0, body[PIECE.size :])
            if self._cipher is not None or kind == b"GP":
                raise RejectedError("unsealed" if self._cipher is not None and kind in (b"GA", b"GP") else "malformed")
            return frame
        except RejectedError as rejected:
            self._refused[rejected.reason] += 1
            return None

    def _open(self, frame: bytes) -> bytes | None:
        _, version, _, sender, session, counter = SEALED.unpack_from(frame)
        peer = self._by_session.get(session)
        if peer is not None and version == VERSION:
            try:
                part = peer.open[session](nonce_of(counter), frame[SEALED.size :], frame[: SEALED.size])
            except Exception:  # cryptography's InvalidTag; whatever it is, nothing of it is used
                part = b""
            if part:
                return part[PART.size :] if part.startswith(WHOLE) else self._join(peer, session, part)
        for (_, j), other in self._peers.items():  # perhaps this node, or that one, has just started
            if j == sender:
                self._ask(other)
        raise RejectedError("unopened")

    def _join(self, peer: Peer, session: int, part: bytes) -> bytes | None:
        """The datagram, once all its parts are there; parts that differ in their number are of different datagrams."""
        message, index, count = PART.unpack_from(part)
        content = part[PART.size :]
        if count == 1 and index == 0:
            return content
        if index >= count:
            raise RejectedError("malformed")
        whole = (session, message, count)
        parts = peer.partial.setdefault(whole, {})
        parts.setdefault(index, content)
        if sum(map(len, parts.values())) > MAX_DATAGRAM:
            del peer.partial[whole]
            raise RejectedError("malformed")
        if len(parts) == count:
            del peer.partial[whole]
            return b"".join(parts[i] for i in range(count))
        while len(peer.partial) > PARTIAL:
            peer.partial.popitem(last=False)
        return None

    # Sessions

    def _ask(self, peer: Peer, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        if now - peer.asked >= ASK_EVERY:
            peer.asked = now
            self._tell(peer, NOTHING, answer_me=True)

    def _tell(self, peer: Peer, echo: bytes, *, answer_me: bool) -> None:
        tags = (VERSION, int(answer_me), self._node, peer.node, peer.epoch, self._boot, peer.challenge, echo)
        body = SESSION.pack(b"GK", *tags)
        self._inner.send(peer.node, body + tag_of(body, peer.key))

    def _meet(self, frame: bytes) -> None:
        """Use a message for a session: believe it if it repeats this node's challenge, and answer it."""
        body, tag = frame[:-TAG_BYTES], frame[-TAG_BYTES:]
        _, version, answer_me, sender, recipient, epoch, boot, challenge, echo = SESSION.unpack(body)
        peer, now = self._peers.get((epoch, sender)), time.monotonic()
        if peer is None or version != VERSION or recipient != self._node:
            raise RejectedError("foreign")
        if not hmac.compare_digest(tag_of(body, peer.key), tag):
            raise RejectedError("forged")
        if hmac.compare_digest(echo, peer.challenge):
            peer.challenge = secrets.token_bytes(16)
            self._begin(peer, boot)
        if answer_me and now - peer.answered >= ASK_EVERY / 4:
            peer.answered = now
            self._tell(peer, challenge, answer_me=boot != peer.boot)
        while peer.seal is not None and peer.waiting:
            self.send(peer.node, peer.waiting.popleft())

    def _begin(self, peer: Peer, boot: bytes) -> None:
        """Begin the session of this life of a neighbour, which both ends derive by themselves."""
        if boot == peer.boot:
            return
        peer.boot = boot
        for outgoing in (True, False):
            ends = (self._node, peer.node) if outgoing else (peer.node, self._node)
            boots = self._boot + boot if outgoing else boot + self._boot
            key = hashlib.blake2b(
                struct.pack("<II", *ends) + boots, key=peer.key, digest_size=40, person=b"graphact aead"
            )
            session, cipher = int.from_bytes(key.digest()[32:], "little"), self._cipher(key.digest()[:32])
            if outgoing:
                peer.session, peer.seal = session, cipher.encrypt
            else:
                peer.open[session] = cipher.decrypt
                self._by_session[session] = peer
        while len(peer.open) > 2:
            del self._by_session[peer.open.popitem(last=False)[0]]

    def close(self) -> None:
        self._inner.close()


def nonce_of(counter: int) -> bytes:
    """The counter as ChaCha20-Poly1305 takes it."""
    return counter.to_bytes(12, "little")


def tag_of(body: bytes, key: bytes) -> bytes:
    """Of a frame; never that of a message (:func:`graphact.agents.messages.authenticate`)."""
    return hashlib.blake2b(body, key=key, digest_size=TAG_BYTES, person=b"graphact frame").digest()
