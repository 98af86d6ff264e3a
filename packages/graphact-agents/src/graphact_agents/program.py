"""Programs: computations of one node that go on in rounds of exchange with its neighbours.

A program is a generator. It yields an :class:`Exchange` (what this node sends in a round, and to whom), is resumed with
what it received, by neighbour, and returns its result. A neighbour that did not answer in time is missing from that
mapping. Programs know neither clocks nor messages, so the same program runs in a simulation, over a network, or in a
plain loop; and one program can take in another with ``yield from``.

    def average(own):
        received = yield Exchange(own)
        return (own + sum(received.values())) / (1 + len(received))
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from graphact_agents.messages import Array

Received = Mapping[int, Array]
"""The values of a round, in ascending order of the neighbours; the arrays are read-only."""

ResultT = TypeVar("ResultT")
Program = Generator["Exchange", Received, ResultT]
AnyProgram = Generator["Exchange", Received, Any]


class Direction(Enum):
    """The direction in which values travel in a round.

    ``FORWARD``: along the edges; a node sends to those who hear it and receives from those it hears (a shift by S).
    ``BACKWARD``: against the edges (a shift by the transpose of S, the adjoint exchange of learning).
    ``BOTH``: to and from all nodes at the other end of an edge (mixing).
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One round, as seen by one node.

    Args:
        value: an array of float32, float64 or int64 for all nodes it goes to, or one array for each of them.
        direction: which way values travel.
        shape: the shape that received arrays must have; that of the value sent when left out. What does not fit is
            dropped, as if it had not come. It must be given where ``value`` is a mapping, for a node may have no node
            to send to.
        dtype: with ``shape``, the dtype that received arrays must have; that of the value sent when left out.
    """

    value: Array | Mapping[int, Array]
    direction: Direction = Direction.FORWARD
    shape: tuple[int, ...] | None = None
    dtype: Any = None
