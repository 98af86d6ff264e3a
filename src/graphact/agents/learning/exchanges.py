"""Exchanges of parameter vectors with everybody at the other end of an edge."""

import math
from collections.abc import Mapping

import numpy as np

from graphact.agents.links import Links
from graphact.agents.messages import Array
from graphact.agents.program import Direction, Exchange, Program

PIECE = 8_000
"""How many numbers of float64 travel in one message; a longer vector takes several rounds."""


def vector_rounds(length: int) -> int:
    """How many rounds a vector takes."""
    return math.ceil(length / PIECE)


def exchange_vectors(links: Links, values: Array | Mapping[int, Array], length: int) -> Program[dict[int, Array]]:
    """Send all neighbours a vector, or each its own; the finite vectors of those of whom every piece came.

    Args:
        links: whom this node is connected with.
        values: a vector ``(P,)`` for everybody, or one for each neighbour.
        length: P.
    """
    heard: dict[int, list[Array]] = {j: [] for j in links.neighbors}
    for start in range(0, length, PIECE):
        piece = slice(start, min(length, start + PIECE))
        said = {j: v[piece] for j, v in values.items()} if isinstance(values, Mapping) else values[piece]
        shape = (piece.stop - piece.start,)
        received = yield Exchange(said, Direction.BOTH, shape=shape, dtype=np.float64)
        heard = {j: [*pieces, received[j]] for j, pieces in heard.items() if j in received}
    vectors = {j: np.concatenate(pieces) for j, pieces in heard.items()}
    return {j: vector for j, vector in vectors.items() if np.isfinite(vector).all()}  # NaN would spread to all nodes


def exchange_acknowledged(links: Links, value: Array) -> Program[dict[int, Array]]:
    """The vectors of the neighbours that also heard this node, as far as it knows.

    After the values every node tells each neighbour whether it heard it, and uses a link when it has heard and been
    heard. A link that is lost in both directions is so left out at both ends. Only an acknowledgement that is lost
    alone, in spite of all requests to repeat it, makes one end use a link that the other leaves out.
    """
    heard = yield from exchange_vectors(links, value, len(value))
    flags = {j: np.array([j in heard], np.int64) for j in links.neighbors}
    confirmed = yield Exchange(flags, Direction.BOTH, shape=(1,), dtype=np.int64)
    return {j: vector for j, vector in heard.items() if j in confirmed and confirmed[j][0]}


def metropolis_weights(links: Links) -> Program[dict[int, float]]:
    r"""The weight of every neighbour, :math:`w_{ij} = 1 / (1 + \max(d_i, d_j))`, from the degrees at both ends alone.

    The weights are symmetric, and what they leave of 1 is a node's own. On a complete graph all are 1/N. A neighbour
    whose degree did not come is missing.
    """
    degree = len(links.neighbors)
    degrees = yield Exchange(np.array([degree], np.int64), Direction.BOTH)
    return {j: 1 / (1 + max(degree, int(other[0]))) for j, other in degrees.items()}
