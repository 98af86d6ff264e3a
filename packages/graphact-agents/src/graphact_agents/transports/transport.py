"""The interface of transports, opening one by its name, and driving a node over it."""

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from graphact_agents.addresses import Addresses
from graphact_agents.arguments import check_choice
from graphact_agents.links import Links
from graphact_agents.node import Node
from graphact_agents.runs import RunResult
from graphact_agents.transports.zenoh import ZenohTransport


class Transport(Protocol):
    """The end of the network at one node.

    A transport may lose, delay, repeat or reorder datagrams. It must not deliver them in pieces, and should let in
    neighbours alone, though the node survives if it does not. ``dropped`` counts the datagrams that it did not let in,
    by reason: those of :class:`~graphact_agents.runs.Counters` and of :data:`graphact_agents.status.DROPPED`.
    """

    @property
    def dropped(self) -> Mapping[str, int]: ...

    def send(self, to: int, datagram: bytes) -> None:
        """Hand over a datagram: never waits (a full queue loses it), never fails because the neighbour is away.

        KeyError if ``to`` is not a neighbour.
        """

    def receive(self, timeout: float) -> bytes | None:
        """The next datagram, waiting at most ``timeout`` seconds (0 looks only); None if none came.

        Where many are dropped it returns None before its time: whoever drives a node then sees to its deadlines.
        """

    def close(self) -> None:
        """Leave the network; closing twice does no harm."""


TRANSPORTS = ("zenoh", "udp")


def open_transport(
    name: str,
    links: Links,
    addresses: Addresses,
    tls: Path | None = None,
    *,
    timely: bool = False,
) -> Transport:
    """Return one node's end of a real network.

    Zenoh encrypts with the certificates in the folder ``tls``; UDP does not encrypt. Over UDP runs by a clock, which
    have deadlines, want a ``timely`` one.
    """
    check_choice("transport", name, TRANSPORTS)
    if name == "zenoh":
        return ZenohTransport(links.node, links.epoch, addresses, tls)
    if tls is not None:
        raise ValueError("TLS needs the transport zenoh, got udp")
    from graphact_agents.transports.udp import UdpTransport  # uses poll, which some systems lack

    return UdpTransport(addresses, timely=timely)


BATCH, BATCH_SECONDS = 256, 0.05
"""Datagrams taken in at most, and for how long, before the node sends, closes rounds and lets its driver look up."""


def drive(
    node: Node, transport: Transport, until: float, clock: Callable[[], float] = time.monotonic
) -> list[RunResult]:
    """Let a node work until a time, or until its run ends.

    Between runs it answers requests of neighbours that are still busy; call it then with the time of the next run.

    Args:
        node: the node.
        transport: its end of the network.
        until: when to return at the latest, by ``clock``.
        clock: gives the time in seconds; ``node.begin`` must be given times of the same clock.
    """
    while True:
        for to, datagram in node.take_outgoing():
            transport.send(to, datagram)
        results = node.take_results()
        now = clock()
        if results or now >= until:
            return results
        due = node.deadline
        arrived = transport.receive(max(0.0, (until if due is None else min(until, due)) - now))
        taken, latest = 0, math.inf
        while arrived is not None:
            node.receive(arrived, now := clock())
            taken, latest = taken + 1, latest if taken else now + BATCH_SECONDS
            arrived = transport.receive(0.0) if taken < BATCH and now < latest else None
        node.advance(clock())
