"""The operator's order that a change holds from a run on: signed once, so that nobody else can give or alter it.

A node that missed the order is told by its neighbours, any of which may be in wrong hands; so it must be certain whose
word it is. The signature is Winternitz's, of chains of hashes: the secret key is the beginning of each chain, the
public key is a hash of their ends, and a signature of a number is, for each of its digits, the element so many steps
from the beginning. Who has it can go on towards the ends, but not back; the digits of a checksum go the other way. It
needs nothing but the hash function that authenticates all messages, which an agent has for certain, and a key signs
one number and is forgotten, as an order wants it.
"""

import hashlib
import hmac
import secrets
from typing import NamedTuple

from graphact.agents.messages import MAX_RUN, ORDER_ELEMENT, ORDER_ELEMENTS

DIGITS, CHECKS = 16, 2  # of four bits each: a run has 63, and their sum is at most 240
LONGEST = 15  # steps of a chain
PUBLIC_BYTES = 32
PERSON = b"graphact order"
assert DIGITS + CHECKS == ORDER_ELEMENTS


class Order(NamedTuple):
    """The run from which on a change holds, and the signature of the operator who staged it."""

    run: int
    signature: bytes

    def is_signed(self, public: bytes) -> bool:
        """Whether it was signed with the key that belongs to a public one."""
        if len(self.signature) != ORDER_ELEMENT * ORDER_ELEMENTS or not 0 <= self.run <= MAX_RUN:
            return False
        digits = digits_of(self.run)
        elements = [
            self.signature[start : start + ORDER_ELEMENT] for start in range(0, len(self.signature), ORDER_ELEMENT)
        ]
        ends = [
            step(each, chain, digit, LONGEST) for chain, (each, digit) in enumerate(zip(elements, digits, strict=True))
        ]
        return hmac.compare_digest(public_of(ends), public)


class OrderKey:
    """Signs the order of one change.

    Example:
        >>> from graphact.agents.orders import Order, OrderKey
        >>> key = OrderKey()
        >>> order = key.sign(100)
        >>> order.is_signed(key.public), Order(101, order.signature).is_signed(key.public)
        (True, False)
    """

    def __init__(self, secret: bytes | None = None) -> None:
        secret = secrets.token_bytes(PUBLIC_BYTES) if secret is None else secret
        self._begin = [
            hashlib.blake2b(bytes([chain]), key=secret, digest_size=ORDER_ELEMENT, person=PERSON).digest()
            for chain in range(ORDER_ELEMENTS)
        ]
        self.public = public_of([step(each, chain, 0, LONGEST) for chain, each in enumerate(self._begin)])
        self._signed: int | None = None

    def sign(self, run: int) -> Order:
        """The order for a run; ValueError for a second one, for two signatures together give others away."""
        if self._signed not in (None, run):
            raise ValueError(f"run must be {self._signed}, for which this key has given its order, got {run}")
        self._signed = run
        signed = [
            step(each, chain, 0, digit)
            for chain, (each, digit) in enumerate(zip(self._begin, digits_of(run), strict=True))
        ]
        return Order(run, b"".join(signed))


def digits_of(run: int) -> list[int]:
    """The digits of a run and of its checksum, which falls where a digit rises."""
    digits = [run >> 4 * place & 15 for place in range(DIGITS)]
    missing = sum(LONGEST - digit for digit in digits)
    return [*digits, missing & 15, missing >> 4]


def step(element: bytes, chain: int, begin: int, end: int) -> bytes:
    """Go along a chain."""
    for place in range(begin, end):
        salt = bytes([chain, place])
        element = hashlib.blake2b(element, digest_size=ORDER_ELEMENT, person=PERSON, salt=salt).digest()
    return element


def public_of(ends: list[bytes]) -> bytes:
    """What stands for the ends of all chains."""
    return hashlib.blake2b(b"".join(ends), digest_size=PUBLIC_BYTES, person=PERSON).digest()
