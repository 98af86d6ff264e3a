"""What a node counts."""

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Messages sent, received and refused by one node, from its start.

    The first group counts what was sent, with ``bytes_sent`` over all of it; ``received`` counts the values accepted.
    The last group says why a datagram was not used: ``malformed`` (not of the format), ``foreign`` (not between this
    node and a neighbour), ``forged`` (wrong key, or altered), ``other_epoch``, ``stale`` (its round is over),
    ``duplicate``, ``overflow`` (the queue of its sender is full), ``misfit`` (wrong dtype, shape or program, or from a
    neighbour that has nothing to say in that round), ``unanswered`` (a request for something this node does not have,
    or has sent a moment ago), ``ahead`` (its run is implausibly far ahead), ``differs`` (a greeting of a neighbour with
    another model or other settings; its values count as ``forged``).
    """

    data_sent: int = 0
    data_bytes_sent: int = 0
    resent: int = 0
    requests_sent: int = 0
    greetings_sent: int = 0
    bytes_sent: int = 0
    received: int = 0
    rounds: int = 0
    links_used: int = 0
    links_missed: int = 0
    malformed: int = 0
    foreign: int = 0
    forged: int = 0
    other_epoch: int = 0
    stale: int = 0
    duplicate: int = 0
    overflow: int = 0
    misfit: int = 0
    unanswered: int = 0
    ahead: int = 0
    differs: int = 0

    def count(self, name: str) -> None:
        """Add one to a counter."""
        setattr(self, name, getattr(self, name) + 1)

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
