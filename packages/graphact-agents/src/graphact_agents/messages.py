"""The messages that neighbours exchange: a small versioned binary format, checked strictly and authenticated.

All numbers are little-endian.

======  =====  ==================================================================================
offset  bytes  field
======  =====  ==================================================================================
0       2      ``GA``
2       1      version: 1
3       1      kind: 1 data, 2 request (send this round again), 3 hello, 4 welcome, 5 presence (in the run to come)
4       1      program: which computation the rounds belong to (1 inference; others are learning's)
5       1      dtype: 0 none, 1 float32, 2 float64, 3 int64
6       1      number of dimensions d, at most 4
7       1      mark: 1 if the value depends on a missed link, here or at another node, otherwise 0
8       4      sender
12      4      recipient
16      8      epoch: the deployment
24      8      run, less than 2^63; in hello and welcome the run after the last of the sender
32      4      round within the run; in hello a nonce, which the welcome repeats; in presence 0
36      4 d    dimensions
36+4d          the values, row by row; in a greeting the digest, 16 bytes, if the node has one
-16     16     keyed BLAKE2b over everything before, with the key of the link
======  =====  ==================================================================================

The tags (epoch, program, run, round, sender, recipient) name a value once and for all: a sender never uses them twice
for different values. Inference and learning count their runs independently, so both may use one run number; program and
digest tell them apart.

The digest stands for what both ends must agree upon: the model, and when runs begin. In data and requests it is the
personalization of BLAKE2b, so that what comes from a node with another digest does not authenticate. A greeting is
authenticated without it and carries it, so that the ends can tell why.

A mark travels on: a node that used a marked value, or missed a link, marks all that it sends in later rounds of the
run.
"""

import hashlib
import hmac
import math
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MAGIC = b"GA"
VERSION = 1
HEADER = struct.Struct("<2sBBBBBBIIQQI")
TAG_BYTES = 16
KEY_BYTES = 32
DIGEST_BYTES = 16
MAX_RUN = 2**63 - 1
MAX_DATAGRAM = 65_507  # what one UDP datagram holds
MAX_DIMENSIONS = 4
OVERHEAD = HEADER.size + TAG_BYTES
DIMENSIONS = tuple(struct.Struct(f"<{count}I") for count in range(MAX_DIMENSIONS + 1))
DTYPES: tuple[np.dtype[Any] | None, ...] = (None, np.dtype("<f4"), np.dtype("<f8"), np.dtype("<i8"))
ITEM_BYTES = tuple(0 if dtype is None else dtype.itemsize for dtype in DTYPES)
DTYPE_CODES = {dtype: code for code, dtype in enumerate(DTYPES) if dtype is not None}


class Kind(IntEnum):
    """The kind of a message."""

    DATA = 1
    REQUEST = 2
    HELLO = 3
    WELCOME = 4
    PRESENCE = 5


KINDS = {int(kind): kind for kind in Kind}
GREETINGS = (Kind.HELLO, Kind.WELCOME, Kind.PRESENCE)


class RejectedError(ValueError):
    """A datagram that is not used; ``reason`` is one of the rejection counters of :class:`Counters`.

    ``sender`` is the neighbour that it is from, where that is certain and worth telling; otherwise -1.
    """

    def __init__(self, reason: str, sender: int = -1) -> None:
        super().__init__(reason)
        self.reason, self.sender = reason, sender


class Payload(NamedTuple):
    """An array, frozen into bytes once for all its recipients."""

    dtype: int
    shape: tuple[int, ...]
    content: bytes

    @classmethod
    def from_array(cls, value: Array) -> "Payload":
        """Freeze an array of float32, float64 or int64 that one datagram holds."""
        code = DTYPE_CODES.get(value.dtype)
        if code is None:
            raise TypeError(f"value must hold float32, float64 or int64, got {value.dtype}")
        if value.ndim > MAX_DIMENSIONS or value.size == 0:
            expected = f"at most {MAX_DIMENSIONS} dimensions, none of them 0"
            raise ValueError(f"value must have {expected}, got the shape {value.shape}")
        size = datagram_bytes(value.shape, value.dtype)
        if size > MAX_DATAGRAM:
            raise ValueError(
                f"value of shape {value.shape} and dtype {value.dtype} makes a datagram of {size} bytes, and one "
                f"holds {MAX_DATAGRAM}: use smaller batches"
            )
        return cls(code, value.shape, value.tobytes())

    @property
    def value(self) -> Array:
        return np.frombuffer(self.content, DTYPES[self.dtype]).reshape(self.shape)


NOTHING = Payload(0, (), b"")


class Message(NamedTuple):
    """One message, without its authentication."""

    kind: Kind
    sender: int
    recipient: int
    epoch: int
    run: int
    round: int = 0
    program_id: int = 0
    payload: Payload = NOTHING
    digest: bytes = b""
    mark: bool = False


WORD = 2**32 - 1
MAX_FIELD = {"sender": WORD, "recipient": WORD, "epoch": 2**64 - 1, "run": MAX_RUN, "round": WORD, "program_id": 255}
"""The largest value of every number of a message; the smallest is 0."""


def datagram_bytes(shape: tuple[int, ...], dtype: "np.dtype[Any] | type") -> int:
    """The size of a data message that carries an array of this shape."""
    return OVERHEAD + 4 * len(shape) + math.prod(shape) * np.dtype(dtype).itemsize


def encode(message: Message, key: bytes, digest: bytes = b"") -> bytes:
    """The datagram of a message, authenticated with the key of the link and, unless it is a greeting, with a digest."""
    kind, sender, recipient, epoch, run, round_, program_id, (code, shape, content), own_digest, mark = message
    tags = (MAGIC, VERSION, kind, program_id, code, len(shape), mark, sender, recipient, epoch, run, round_)
    try:
        head = HEADER.pack(*tags)
    except struct.error:
        check_range(message)
        raise
    if run > MAX_RUN:
        check_range(message)
    body = head + DIMENSIONS[len(shape)].pack(*shape) + content + own_digest
    return body + authenticate(body, key, b"" if kind in GREETINGS else digest)


def check_range(message: Message) -> None:
    """Raise ValueError if a number of a message does not fit."""
    for name, most in MAX_FIELD.items():
        if not 0 <= (value := getattr(message, name)) <= most:
            raise ValueError(f"{name} of a message must lie between 0 and {most}, got {value}")


def decode(datagram: bytes, recipient: int, epoch: int, keys: Mapping[int, bytes], digest: bytes = b"") -> Message:
    """The message in a datagram, if it is one from a neighbour (those of ``keys``) to ``recipient`` in this epoch.

    RejectedError if it is not, for the ``reason``; nothing of the content has been used then.
    """
    if not OVERHEAD <= len(datagram) <= MAX_DATAGRAM:
        raise RejectedError("malformed")
    tags = HEADER.unpack_from(datagram)
    magic, version, kind, program_id, code, dimensions, mark, sender, addressed, at, run, round_ = tags
    if magic != MAGIC or version != VERSION or kind not in KINDS:
        raise not_of_this_version(datagram, recipient, keys)
    start, end = HEADER.size + 4 * dimensions, len(datagram) - TAG_BYTES
    if dimensions > MAX_DIMENSIONS or start > end or mark > 1 or code >= len(DTYPES) or run > MAX_RUN:
        raise RejectedError("malformed")
    shape = DIMENSIONS[dimensions].unpack_from(datagram, HEADER.size)
    carries, greets = kind == Kind.DATA, kind in GREETINGS
    size = math.prod(shape) * ITEM_BYTES[code] if carries else 0
    fits = size == end - start > 0 if carries else end - start in ((0, DIGEST_BYTES) if greets else (0,))
    if not fits or (not carries and (code or dimensions or mark)):
        raise RejectedError("malformed")
    key = keys.get(sender)
    if key is None or addressed != recipient:
        raise RejectedError("foreign")
    if not hmac.compare_digest(authenticate(datagram[:end], key, b"" if greets else digest), datagram[end:]):
        raise RejectedError("forged")
    if at != epoch:
        raise RejectedError("other_epoch", sender if greets else -1)
    content = datagram[start:end]
    if carries:
        payload = Payload(code, shape, content)
        return Message(Kind.DATA, sender, addressed, at, run, round_, program_id, payload, b"", mark == 1)
    return Message(KINDS[kind], sender, addressed, at, run, round_, program_id, NOTHING, content)


def not_of_this_version(datagram: bytes, recipient: int, keys: Mapping[int, bytes]) -> RejectedError:
    """Return the error for a datagram that does not begin as those of this version do."""
    magic, version, kind, *_, sender, addressed, _, _, _ = HEADER.unpack_from(datagram)
    known = magic == MAGIC and version != VERSION and kind in GREETINGS and addressed == recipient
    key = keys.get(sender) if known else None
    if key is None or not hmac.compare_digest(authenticate(datagram[:-TAG_BYTES], key), datagram[-TAG_BYTES:]):
        return RejectedError("malformed")
    return RejectedError("other_version", sender)


def authenticate(body: bytes, key: bytes, digest: bytes = b"") -> bytes:
    """The authentication tag of a message."""
    return hashlib.blake2b(body, key=key, digest_size=TAG_BYTES, person=digest).digest()


def link_key(secret: bytes, first: int, second: int) -> bytes:
    """The key of the link between two nodes, derived from the secret of a deployment."""
    low, high = sorted((first, second))
    return hashlib.blake2b(b"graphact link %d %d" % (low, high), key=secret, digest_size=KEY_BYTES).digest()
