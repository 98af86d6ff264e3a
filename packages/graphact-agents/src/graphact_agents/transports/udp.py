"""Datagrams over UDP: nothing between the node and the network, for links that lose much."""

import os
import select
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from graphact_agents.addresses import Address, Addresses

RECEIVE_BUFFER = 4 * 2**20
"""Asked of the operating system, so that a burst of all neighbours is not lost while the node computes."""
START_SECONDS, LOOK_UP_SECONDS = 2.0, 5.0
"""Seconds that a start waits for the names of neighbours, and from one look at those that are unknown to the next."""
MAX_DROPPED = 64
"""Datagrams that one call drops before its caller has its turn, so that no stranger keeps a node from its work."""


class UdpTransport:
    """One socket for all neighbours.

    Datagrams that do not come from the address of a neighbour are counted and dropped unread (whoever forges an address
    meets the authentication of the node). A datagram that the system does not take at once is lost.

    Host names are looked up here, those of neighbours again and again until they are known: the name of one that is
    away may be, too. OSError if that of the node itself is unknown, or its address in use or not of this machine.

    Args:
        addresses: its own, and those of its neighbours.
        timely: keep the processor. Otherwise whoever waits for it may send first, and one wake-up serves many
            datagrams: more rounds a second where there is no other work, and beside other work long waits, for Linux
            takes a turn from whoever yields.

    Attributes:
        dropped: datagrams that were not let in, those of ``strangers``.
    """

    def __init__(self, addresses: Addresses, *, timely: bool = False) -> None:
        self._timely = timely
        self._family, own = resolve(addresses.listen)
        self._to: dict[int, SocketAddress | None] = dict.fromkeys(addresses.neighbors)
        self._known: frozenset[SocketAddress] = frozenset()
        self._strangers = 0
        self._socket = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            self._socket.bind(own)
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"cannot listen on {addresses.listen}: {error.strerror}") from error
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._buffer = bytearray(65_536)
        self._view = memoryview(self._buffer)
        self._drained = False
        self._closed = False
        looking = threading.Thread(target=self._look_up, args=(addresses.neighbors,), daemon=True)
        looking.start()
        looking.join(START_SECONDS)
        if unknown := [str(addresses.neighbors[j]) for j, found in self._to.items() if found is None]:
            names = ", ".join(unknown)
            sys.stderr.write(f"graphact-agents: cannot resolve {names} yet; these neighbours are away until then\n")

    def _look_up(self, neighbors: Mapping[int, Address]) -> None:
        """Look up the names of neighbours until all are known; one may take seconds."""
        while not self._closed and (unknown := [j for j, found in self._to.items() if found is None]):
            for j in unknown:
                with suppress(OSError):
                    self._to[j] = found = resolve(neighbors[j], self._family)[1]
                    self._known |= {identity_of(found)}
            if None in self._to.values():
                time.sleep(LOOK_UP_SECONDS)

    @property
    def dropped(self) -> Mapping[str, int]:
        return {"strangers": self._strangers}

    def send(self, to: int, datagram: bytes) -> None:
        address = self._to[to]
        if not self._closed and address is not None:
            with suppress(OSError):  # a full queue, an interface that is down, a firewall: lost, as on the way
                self._socket.sendto(datagram, address)

    def receive(self, timeout: float) -> bytes | None:
        if self._closed:
            return None
        waits = timeout > 0
        datagram = None if waits and self._drained else self._take()  # nothing was there a moment ago: no other look
        if datagram is None and waits and self._drained:
            if not self._timely:
                os.sched_yield()
                datagram = self._take()
            if datagram is None and self._drained and self._poll.poll(min(timeout, 3600.0) * 1000):
                if not self._timely:
                    os.sched_yield()
                datagram = self._take()
        return datagram

    def _take(self) -> bytes | None:
        """The next datagram of a neighbour, if it comes among the next few."""
        self._drained = False
        for _ in range(MAX_DROPPED):
            try:
                size, sender = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                self._drained = True
                return None
            except OSError:  # an error that an earlier datagram met on its way
                continue
            if sender in self._known or identity_of(sender) in self._known:
                return bytes(self._view[:size])
            self._strangers += 1
        return None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._socket.close()


SocketAddress = tuple[Any, ...]  # (host, port), or (host, port, flow, scope) of IPv6


def identity_of(address: SocketAddress) -> SocketAddress:
    """Return what identifies a sender: host and port, and the interface of a link-local IPv6 address."""
    return address if len(address) == 2 else (*address[:2], address[3])


def resolve(address: Address, family: int = 0) -> tuple[socket.AddressFamily, SocketAddress]:
    """The numeric address of a host name, of a given family if one is given."""
    try:
        found = socket.getaddrinfo(address.host, address.port, family, socket.SOCK_DGRAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise OSError(f"cannot resolve {address}: {getattr(error, 'strerror', None) or error}") from error
    return found[0], found[4]
