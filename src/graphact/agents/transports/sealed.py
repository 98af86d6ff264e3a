"""Datagrams over UDP that nobody else reads, and that fit into the frames of the network. Encryption needs the extra
``agents``.

A datagram is cut into pieces that fit; every piece is a frame of its own, sealed by AES-256-GCM or, without encryption,
authenticated with the key of the link. What does not need to be cut is sent as it is, without encryption.

======  =====  ============================================================================
frame   bytes  fields, little-endian
======  =====  ============================================================================
session 84     ``GK``, version, flag (1: answer me), sender, recipient, epoch, boot identity, challenge, echo of a
               challenge, 16 bytes of BLAKE2b keyed with the key of the link
sealed  40 + n ``GS``, version, 0, sender, session, counter; encrypted: content; 16 bytes of tag
        46 + n ``GS``, version, 1, sender, session, counter; encrypted: message, piece, pieces, content; 16 bytes of tag
piece   42 + n ``GP``, version, 0, sender, epoch, message, piece, pieces, content; 16 bytes of BLAKE2b as above
======  =====  ============================================================================

The first 16 bytes of a sealed frame tell its session, and with it the key; the last 12 of its 24 are the nonce; a piece
has associated data, a whole datagram has none. So nothing can be altered, and the way of a message is short.

**Sessions.** Each node draws a boot identity of 16 random bytes when it starts. The key from i to j is derived from the
key of the link and the boot identities of both, so it is new whenever one of them starts, and the counter, which is the
nonce, never goes back in one life of a node: no nonce is used twice under a key, whatever was lost with a disk. A boot
identity is believed when its message repeats a challenge that was drawn for it, so a recorded one is of no use.

**Versions.** ``GK`` and ``GS`` have version 2. Version 1, of development, sealed by ChaCha20-Poly1305 with keys of
another label, so neither opens what the other sealed. A neighbour that asks for a session in another version gets none,
is counted as ``other_version`` and told of.
"""

import hashlib
import hmac
import importlib
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

VERSION = 2
"""Of sessions and sealed frames."""
PIECE_VERSION = 1
SESSION = struct.Struct("<2sBBIIQ16s16s16s")
SEALED = struct.Struct("<2sBBIQQ")
PREFIX = struct.Struct("<2sBBIQ")  # of a sealed frame, the same in all of a session
SESSION_OF, NONCE, CONTENT = slice(16), slice(12, 24), slice(24, None)
"""Parts of a sealed frame. The nonce is the upper half of the session, which is in its key, and the counter."""
PIECE = struct.Struct("<2sBBIQ")
PART = struct.Struct("<IBB")  # message, piece, pieces
CUT = b"piece"
"""Associated data of a sealed piece."""
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
OTHER_VERSION = "it encrypts by another version of the frames; bring all nodes to one version of graphact"

Open = Callable[[bytes, bytes, bytes | None], bytes]  # nonce, content, associated data
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
    prefix: bytes = b""  # of all whole datagrams that it is sent
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
            ``unopened``, encrypted for a session that this node has not, or altered; ``other_version``, of a
            neighbour with another version of the frames; ``forged``, ``foreign`` and ``malformed`` frames.

    Raises:
        ModuleNotFoundError: it shall encrypt, and cryptography is not installed.
    """

    def __init__(self, inner: UdpTransport, links: Links, *, mtu: int = LARGEST_MTU, encrypt: bool = True) -> None:
        if not SMALLEST_MTU <= mtu <= LARGEST_MTU:
            raise ValueError(f"mtu must lie between {SMALLEST_MTU} and {LARGEST_MTU}, got {mtu}")
        self._cipher: Any = None
        if encrypt:
            require("encryption on UDP needs", "cryptography")
            self._cipher = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead").AESGCM
        self._inner, self._node = inner, links.node
        self._room = mtu - HEADERS
        self._whole = self._room - SEALED.size - TAG_BYTES
        self._boot = secrets.token_bytes(16)
        self._counter, self._message = 0, secrets.randbits(32)  # pieces of an earlier life are those of others
        self._refused: Counter[str] = Counter()
        self._refusals: dict[int, str] = {}
        self._peers: dict[tuple[int, int], Peer] = {}
        self._arrived: deque[bytes] = deque()  # while this node waited to send
        self._hold(links)

    @property
    def dropped(self) -> Mapping[str, int]:
        return {**self._inner.dropped, **self._refused}

    def take_refusals(self) -> dict[int, str]:
        """Why neighbours cannot be understood, those that were heard since the last call."""
        taken, self._refusals = self._refusals, {}
        return taken

    def _hold(self, *links: Links) -> None:
        """Have these epochs; sessions of those that stay go on."""
        wanted = {(each.epoch, j): key for each in links for j, key in each.keys.items()}
        self._peers = {at: self._peers.get(at) or Peer(at[1], at[0], key) for at, key in wanted.items()}
        self._by_epoch = {(epoch.to_bytes(8, "little"), j): peer for (epoch, j), peer in self._peers.items()}
        counts = Counter(j for _, j in self._peers)
        self._sole = {j: peer for (_, j), peer in self._peers.items() if counts[j] == 1}
        self._find_sessions()

    def _find_sessions(self) -> None:
        self._by_session = {session: peer for peer in self._peers.values() for session in peer.open}
        self._openers = {
            PREFIX.pack(b"GS", VERSION, 0, peer.node, session): opener
            for peer in self._peers.values()
            for session, opener in peer.open.items()
        }

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
        peer = self._sole.get(to) or self._peer(datagram, to)
        seal = peer.seal
        if seal is not None and len(datagram) <= self._whole:  # as a rule
            self._counter += 1
            head = peer.prefix + self._counter.to_bytes(8, "little")
            self._inner.send(to, head + seal(head[NONCE], datagram, None))
        elif seal is not None:
            for part in self._cut(datagram, self._whole):
                self._counter += 1
                head = SEALED.pack(b"GS", VERSION, 1, self._node, peer.session, self._counter)
                self._inner.send(to, head + seal(head[NONCE], part, CUT))
        elif self._cipher is None:
            head = PIECE.pack(b"GP", PIECE_VERSION, 0, self._node, peer.epoch)
            for part in self._cut(datagram, self._room - PIECE.size - TAG_BYTES):
                self._inner.send(to, head + part + tag_of(head + part, peer.key))
        else:
            peer.waiting.append(datagram)
            self._ask(peer)
            for _ in range(WAITING):  # the answer may be there
                if len(self._arrived) >= WAITING or (frame := self._inner.receive(0.0)) is None:
                    break
                if (arrived := self._take(frame)) is not None:
                    self._arrived.append(arrived)

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
        count = 0
        while (frame := self._inner.receive(timeout)) is not None:
            opener = self._openers.get(frame[SESSION_OF])
            datagram = None if opener is None else unseal(opener, frame, None)  # as a rule
            if datagram is None:
                datagram = self._take(frame)
            if datagram is not None:
                return datagram
            count += 1
            timeout = until - time.monotonic() if until else 0.0
            if timeout <= 0 and (until or count >= MOST_DROPPED):
                break
        return None

    def _take(self, frame: bytes) -> bytes | None:
        """The datagram in a frame, or that which it completes; a frame that is not used is counted."""
        try:
            return self._read(frame)
        except RejectedError as rejected:
            self._refused[rejected.reason] += 1
            if rejected.reason == "other_version":
                self._refusals[rejected.sender] = OTHER_VERSION
            return None

    def _read(self, frame: bytes) -> bytes | None:
        kind = frame[:2]
        if kind == b"GS" and self._cipher is not None and len(frame) >= SEALED.size + TAG_BYTES:
            return self._open(frame)
        if kind == b"GK" and self._cipher is not None and len(frame) == SESSION.size + TAG_BYTES:
            self._meet(frame)
            return None
        if kind == b"GP" and self._cipher is None and len(frame) >= PIECE.size + PART.size + TAG_BYTES:
            _, version, _, sender, epoch = PIECE.unpack_from(frame)
            peer, body = self._peers.get((epoch, sender)), frame[:-TAG_BYTES]
            if peer is None or version != PIECE_VERSION:
                raise RejectedError("foreign")
            if not hmac.compare_digest(tag_of(body, peer.key), frame[-TAG_BYTES:]):
                raise RejectedError("forged")
            return self._join(peer, 0, body[PIECE.size :])
        if self._cipher is not None or kind == b"GP":
            raise RejectedError("unsealed" if self._cipher is not None and kind in (b"GA", b"GP") else "malformed")
        return frame

    def _open(self, frame: bytes) -> bytes | None:
        _, version, is_cut, sender, session, _ = SEALED.unpack_from(frame)
        peer, content = self._by_session.get(session), None
        if peer is not None and (version, sender) == (VERSION, peer.node) and is_cut <= 1:
            content = unseal(peer.open[session], frame, CUT if is_cut else None)
        if content is None:
            for (_, j), other in self._peers.items():  # perhaps this node, or that one, has just started
                if j == sender:
                    self._ask(other)
            raise RejectedError("unopened")
        assert peer is not None
        return self._join(peer, session, content) if is_cut else content

    def _join(self, peer: Peer, session: int, part: bytes) -> bytes | None:
        """The datagram, once all its parts are there; parts that differ in their number are of different datagrams."""
        if len(part) < PART.size:
            raise RejectedError("malformed")
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
        if peer is None or recipient != self._node:
            raise RejectedError("foreign")
        if not hmac.compare_digest(tag_of(body, peer.key), tag):
            raise RejectedError("forged")
        if version != VERSION:
            raise RejectedError("other_version", sender)
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
            key, session = session_of(peer.key, ends, boots)
            cipher = self._cipher(key)
            if outgoing:
                peer.session, peer.seal = session, cipher.encrypt
                peer.prefix = PREFIX.pack(b"GS", VERSION, 0, self._node, session)
            else:
                peer.open[session] = cipher.decrypt
        while len(peer.open) > 2:
            peer.open.popitem(last=False)
        self._find_sessions()

    def close(self) -> None:
        self._inner.close()


def unseal(opener: Open, frame: bytes, about: bytes | None) -> bytes | None:
    """The content of a sealed frame with this associated data; None if it is not authentic."""
    try:
        return opener(frame[NONCE], frame[CONTENT], about)
    except Exception:  # cryptography's InvalidTag; whatever it is, nothing of it is used
        return None


def session_of(key: bytes, ends: tuple[int, int], boots: bytes) -> tuple[bytes, int]:
    """The key and the number of a session in one direction. The label names the cipher: no key is that of another."""
    text = struct.pack("<II", *ends) + boots
    digest = hashlib.blake2b(text, key=key, digest_size=40, person=b"graphact aes-gcm").digest()
    return digest[:32], int.from_bytes(digest[32:], "little")


def tag_of(body: bytes, key: bytes) -> bytes:
    """Of a frame; never that of a message (:func:`graphact.agents.messages.authenticate`)."""
    return hashlib.blake2b(body, key=key, digest_size=TAG_BYTES, person=b"graphact frame").digest()
