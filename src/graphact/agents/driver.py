"""Drives a node over a transport, in real time or any other."""

import time
from collections.abc import Callable

from graphact.agents.node import Node
from graphact.agents.runs import RunResult
from graphact.agents.transports.base import Transport

BATCH = 256
"""Datagrams taken in at most before the clock is read again."""


def drive(
    node: Node, transport: Transport, until: float, clock: Callable[[], float] = time.monotonic
) -> list[RunResult]:
    """Let a node work until a time, or until its run ends.

    Between runs it answers requests of neighbours that are still busy; call it then with the time of the next run.

    Args:
        node: the node.
        transport: its end of the network.
        until: when to return at the latest, by ``clock``.
        clock: says the time in seconds; ``node.begin`` must be told times of the same clock.
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
        taken = 0
        while arrived is not None:
            node.receive(arrived, clock())
            taken += 1
            arrived = transport.receive(0.0) if taken < BATCH else None
        node.advance(clock())
