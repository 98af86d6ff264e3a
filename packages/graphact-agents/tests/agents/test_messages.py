"""The binary format, byte by byte, and everything that must be refused."""

import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphact_agents.messages import (
    MAX_DATAGRAM,
    Kind,
    Message,
    Payload,
    RejectedError,
    authenticate,
    datagram_bytes,
    decode,
    encode,
    link_key,
)

KEY = bytes(range(32))
VALUE = np.array([[1.5, -2.0]])
DATA = Message(Kind.DATA, 7, 3, 99, 5, 2, 1, Payload.from_array(VALUE))


def seal(body, key=KEY):
    return body + authenticate(body, key)


def refused(datagram, recipient=3, epoch=99, keys=None):
    with pytest.raises(RejectedError) as rejected:
        decode(datagram, recipient, epoch, {7: KEY} if keys is None else keys)
    return rejected.value.reason


def test_the_bytes_are_those_of_the_documentation():
    body = b"GA" + bytes([1, 1, 1, 2, 2, 0]) + struct.pack("<IIQQI", 7, 3, 99, 5, 2)
    body += struct.pack("<II", 1, 2) + struct.pack("<dd", 1.5, -2.0)
    assert encode(DATA, KEY) == seal(body)
    assert len(encode(DATA, KEY)) == datagram_bytes((1, 2), float) == 36 + 8 + 16 + 16


def test_the_authentication_is_keyed_blake2b():
    assert authenticate(b"abc", KEY) == hashlib.blake2b(b"abc", key=KEY, digest_size=16).digest()
    assert authenticate(b"abc", KEY) != hashlib.blake2b(b"abc", digest_size=16).digest()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 1, 2, 2)])
def test_round_trip(dtype, shape):
    value = np.random.default_rng(0).normal(size=shape).astype(dtype)
    message = DATA._replace(payload=Payload.from_array(np.asarray(value)))
    got = decode(encode(message, KEY), 3, 99, {7: KEY})
    assert got == message
    assert got.payload.value.dtype == value.dtype
    np.testing.assert_array_equal(got.payload.value, value)
    with pytest.raises(ValueError, match="read-only"):
        got.payload.value[...] = 0


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.HELLO, Kind.WELCOME])
def test_messages_without_values(kind):
    message = Message(kind, 7, 3, 99, 5, 2)
    assert decode(encode(message, KEY), 3, 99, {7: KEY}) == message


def test_greetings_carry_a_digest_and_nothing_else_does():
    for kind in (Kind.HELLO, Kind.WELCOME):
        message = Message(kind, 7, 3, 99, 5, 2, digest=bytes(range(16)))
        datagram = encode(message, KEY, b"the digest counts")  # which authenticates data and requests alone
        body = b"GA" + bytes([1, kind, 0, 0, 0, 0]) + struct.pack("<IIQQI", 7, 3, 99, 5, 2) + bytes(range(16))
        assert datagram == seal(body)
        assert decode(datagram, 3, 99, {7: KEY}) == message
        assert refused(seal(body[:-1])) == refused(seal(body + b"x")) == refused(seal(body[:-15])) == "malformed"
        assert decode(seal(body[:-16]), 3, 99, {7: KEY}) == message._replace(digest=b"")
    for kind in (Kind.DATA, Kind.REQUEST):
        body = encode(DATA if kind == Kind.DATA else Message(kind, 7, 3, 99, 5, 2), KEY)[:-16]
        assert refused(seal(body + bytes(16))) == refused(seal(body[:2] + b"\2" + body[3:])) == "malformed"


def test_greetings_of_other_versions_are_known_as_such_if_they_are_authentic():
    for version, digest in ((0, b""), (2, bytes(range(16)))):
        body = b"GA" + bytes([version, Kind.HELLO, 0, 0, 0, 0]) + struct.pack("<IIQQI", 7, 3, 99, 5, 2) + digest
        with pytest.raises(RejectedError, match="other_version") as rejected:
            decode(seal(body), 3, 99, {7: KEY})
        assert rejected.value.sender == 7
        assert refused(seal(body, bytes(32))) == refused(seal(body), recipient=4) == "malformed"


def test_values_carry_a_mark_and_nothing_else_does():
    assert encode(DATA._replace(mark=True), KEY)[7] == 1
    assert decode(encode(DATA._replace(mark=True), KEY), 3, 99, {7: KEY}).mark is True
    assert refused(encode(Message(Kind.HELLO, 7, 3, 99, 5, 2, mark=True), KEY)) == "malformed"


def test_data_and_requests_are_bound_to_the_digest():
    digests = b"", b"1" * 16, b"2" * 16
    for message in (DATA, Message(Kind.REQUEST, 7, 3, 99, 5, 2)):
        for one in digests:
            for other in digests:
                if one == other:
                    assert decode(encode(message, KEY, one), 3, 99, {7: KEY}, other) == message
                else:
                    with pytest.raises(RejectedError, match="forged"):
                        decode(encode(message, KEY, one), 3, 99, {7: KEY}, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [("run", 2**63), ("run", -1), ("epoch", 2**64), ("sender", 2**32), ("round", 2**32), ("program_id", 256)],
)
def test_numbers_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"{name} of a message must lie between 0 and \\d+, got {value}"):
        encode(DATA._replace(**{name: value}), KEY)


def test_not_contiguous_values_travel_in_order():
    value = np.arange(12.0).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(Payload.from_array(value).value, value)


def body_with(**changes):
    """The body of DATA with some fields changed."""
    fields = dict(
        magic=b"GA", version=1, kind=1, program=1, dtype=2, dimensions=2, zero=0, sender=7, recipient=3, epoch=99, run=5
    )
    fields |= {key: value for key, value in changes.items() if key in fields}
    head = struct.pack("<2sBBBBBBIIQQI", *fields.values(), 2)
    shape = changes.get("shape", (1, 2))
    return head + struct.pack(f"<{len(shape)}I", *shape) + changes.get("content", VALUE.tobytes())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(magic=b"GB"), "malformed"),
        (dict(version=2), "malformed"),
        (dict(kind=0), "malformed"),
        (dict(kind=5), "malformed"),
        (dict(kind=2), "malformed"),  # a request carries nothing
        (dict(dtype=0), "malformed"),  # data carries something
        (dict(dtype=4), "malformed"),
        (dict(dtype=1), "malformed"),
        (dict(dimensions=1), "malformed"),
        (dict(dimensions=5, shape=(1, 1, 1, 1, 2)), "malformed"),
        (dict(dimensions=255), "malformed"),
        (dict(zero=2), "malformed"),
        (dict(shape=(1, 3)), "malformed"),
        (dict(shape=(0, 2), content=b""), "malformed"),
        (dict(shape=(2**32 - 1, 2**32 - 1)), "malformed"),
        (dict(content=VALUE.tobytes() + b"\0"), "malformed"),
        (dict(content=VALUE.tobytes()[:-1]), "malformed"),
        (dict(sender=3), "foreign"),  # reflected
        (dict(sender=8), "foreign"),
        (dict(recipient=4), "foreign"),
        (dict(epoch=98), "other_epoch"),
        (dict(run=2**63), "malformed"),
    ],
)
def test_well_authenticated_nonsense_is_refused(changes, reason):
    assert decode(seal(body_with()), 3, 99, {7: KEY}) == DATA
    assert refused(seal(body_with(**changes))) == reason


def test_wrong_keys_and_altered_messages_are_refused():
    datagram = encode(DATA, KEY)
    assert refused(encode(DATA, bytes(32))) == "forged"
    for position in range(len(datagram)):
        altered = bytearray(datagram)
        altered[position] ^= 1
        assert refused(bytes(altered)) in ("malformed", "foreign", "forged")


@pytest.mark.parametrize("datagram", [b"", b"GA", b"\0" * 51, b"\0" * 52, b"\xff" * 100, b"\0" * (MAX_DATAGRAM + 1)])
def test_noise_is_refused(datagram):
    assert refused(datagram) == "malformed"


@given(st.binary(max_size=200), st.integers(0, 200))
def test_cut_or_prolonged_messages_are_refused(noise, length):
    datagram = encode(DATA, KEY)
    cut = datagram[:length] + noise
    if cut != datagram:
        assert refused(cut) in ("malformed", "foreign", "forged")


def test_a_link_has_one_key_and_every_link_another():
    keys = {frozenset((i, j)): link_key(KEY, i, j) for i in range(12) for j in range(i)}
    assert len(set(keys.values())) == len(keys)
    assert link_key(KEY, 1, 2) == link_key(KEY, 2, 1) != link_key(bytes(32), 1, 2)
    assert link_key(KEY, 1, 12) != link_key(KEY, 11, 2)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.zeros(3, "f2"), TypeError, "float32, float64 or int64, got float16"),
        (np.zeros((1, 1, 1, 1, 1)), ValueError, "at most 4 dimensions"),
        (np.zeros((0, 3)), ValueError, "none of them 0, got the shape \\(0, 3\\)"),
        (np.zeros(8200), ValueError, "makes a datagram of 65656 bytes, and one holds 65507"),
    ],
)
def test_values_that_cannot_be_sent(value, error, message):
    with pytest.raises(error, match=message):
        Payload.from_array(value)
