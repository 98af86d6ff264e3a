"""Nodes of two epochs of one network behind one transport, so that a change takes effect at one run for all.

An epoch has its own keys, its own rows and its own model. While one follows another, a node holds both: values of runs
before the change travel in the old epoch and those from it on in the new one, and what is late of the old one can still
be asked for. Every message carries its epoch and is authenticated with its keys, so nothing of one is taken for the
other.
"""

from collections.abc import Iterable

from graphact.agents.messages import HEADER
from graphact.agents.node import Node
from graphact.agents.runs import Counters, RunResult

EPOCH = slice(16, 24)  # of a message
OVERLAP = 2
"""Runs of a new epoch after which the old one is forgotten."""


class Epochs:
    """One node in its current epoch, the next one and the last one; to be driven like a :class:`Node`.

    All nodes share one log, and so the numbers that are used up.
    """

    def __init__(self, current: Node) -> None:
        self.current = current
        self.others: list[Node] = []
        self._by_epoch = {epoch_of(current): current}
        self._forgotten = Counters()

    def add(self, node: Node) -> None:
        """Hold another epoch, beside the current one."""
        self.others.append(node)
        self._by_epoch[epoch_of(node)] = node

    def switch(self, node: Node) -> None:
        """Go on with another epoch, at the run that the current one is in; the one before is kept."""
        if self.current.busy:
            raise RuntimeError(f"run {self.current.run} is in progress")
        node.go_on_from(self.current)
        self.others = [self.current, *(other for other in self.others if other is not node)]
        self.current = node

    def forget(self, nodes: Iterable[Node]) -> None:
        """Hold some of the other epochs no longer."""
        for node in list(nodes):
            self.others.remove(node)
            del self._by_epoch[epoch_of(node)]
            self._forgotten += node.counters

    @property
    def counters(self) -> Counters:
        """Of all epochs together."""
        return sum((node.counters for node in self.others), self._forgotten + self.current.counters)

    # As a driver sees a node

    @property
    def deadline(self) -> float | None:
        return self.current.deadline

    def receive(self, datagram: bytes, now: float) -> None:
        node = self.current
        if self.others and len(datagram) >= HEADER.size:
            node = self._by_epoch.get(datagram[EPOCH], node)
        node.receive(datagram, now)

    def advance(self, now: float) -> None:
        self.current.advance(now)

    def take_outgoing(self) -> list[tuple[int, bytes]]:
        outgoing = self.current.take_outgoing()
        for other in self.others:
            outgoing += other.take_outgoing()
        return outgoing

    def take_results(self) -> list[RunResult]:
        return self.current.take_results()


def epoch_of(node: Node) -> bytes:
    """As messages carry it."""
    return node.links.epoch.to_bytes(8, "little")
