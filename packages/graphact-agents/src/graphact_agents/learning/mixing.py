r"""Rules by which neighbours mix their parameters, once they have their gradients.

Every step adapts, then combines. With the node's gradient :math:`g_i`, weights :math:`w_{ij}` of Metropolis and a step
size :math:`\alpha`:

.. math:: y_i \leftarrow \text{track}(g_i), \qquad
    x_i \leftarrow \sum_{j \in \{i\} \cup \mathcal{N}_i} w_{ij} \, (x_j - \alpha \, d(y_j))

where d is the identity or Adam's direction. In the combination of x a neighbour that did not answer leaves its weight
to the node itself; that keeps the rows summing to one, which is all that agreement needs.

The gradient is tracked by push-pull, so that each :math:`y_i` tends to the mean of all gradients. With
:math:`z_i = y_i + g_i - g_i^{\text{before}}` each node gives away shares :math:`w_{ij} z_i` and tells neighbours the
running sum of all it has ever given to it. Who hears it takes the difference to what it took before. What is lost on
the way is in the next sum, so nothing is ever lost for good: exact also when links are lost one way, and when nodes
crash and come back. Without tracking, nodes whose own gradients differ would pull away from each other in every step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from graphact_agents.arguments import check_choice, check_integer, check_positive
from graphact_agents.learning.state import State
from graphact_agents.learning.vjp import OBJECTIVES
from graphact_agents.links import Links
from graphact_agents.messages import Array
from graphact_agents.program import Direction, Exchange, Program

Weights = Mapping[int, float]
OPTIMIZERS = ("sgd", "adam")
BETAS, EPSILON = (0.9, 0.999), 1e-8
MAX_PIECE = 8_000
"""Numbers of float64 in one message; a longer vector takes several rounds."""


@dataclass(frozen=True)
class Learning:
    """Settings of learning, on which all nodes must agree.

    Args:
        optimizer: "sgd" steps along the (tracked) gradient, "adam" as :class:`torch.optim.Adam` does.
        rate: the step size.
        objective: "mse", "smooth_l1" or "cross_entropy".
        batch: samples a step; None takes all of them in every step.
        seed: decides the order of the samples, which all nodes share.
    """

    optimizer: str = "adam"
    rate: float = 0.01
    objective: str = "mse"
    batch: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_positive("rate", self.rate)
        check_choice("objective", self.objective, tuple(OBJECTIVES))
        if self.batch is not None:
            check_integer("batch", self.batch, minimum=1)
        check_integer("seed", self.seed, minimum=0)


def mix(state: State, gradient: Array, links: Links, weights: Weights, learning: Learning) -> Program[State]:
    """One step from a gradient: track it, adapt the parameters, combine them with those of the neighbours.

    Args:
        state: the node's state.
        gradient: ``(P,)``, its gradient at the parameters of that state.
        links: whom it is connected with.
        weights: of its neighbours, see :func:`metropolis_weights`; one that is missing is not mixed with.
        learning: what all nodes agreed upon.
    """
    state = yield from track(state, gradient, links, weights)
    state, direction = adapt(replace(state, gradient=gradient, steps=state.steps + 1), learning.optimizer)
    adapted = state.parameters - learning.rate * direction
    heard = yield from exchange_vectors(links, adapted, len(adapted))
    return replace(state, parameters=combine(adapted, heard, weights))


def combine(own: Array, heard: Mapping[int, Array], weights: Weights) -> Array:
    """The weighted mean of a vector with those of neighbours; the weight of absent ones is the node's own."""
    differences = [weights[j] * (vector - own) for j, vector in heard.items() if j in weights]
    return sum(differences, own)


def track(state: State, gradient: Array, links: Links, weights: Weights) -> Program[State]:
    """Give shares of the tracker away, and take what neighbours gave since they were last heard."""
    renewed = state.tracker + gradient - state.gradient
    shares = np.array([weights.get(j, 0.0) for j in links.neighbors]).reshape(-1, 1)
    given = state.given + shares * renewed
    sums = dict(zip(links.neighbors, given, strict=True))
    heard = yield from exchange_vectors(links, sums, len(renewed))
    taken = np.array([heard.get(j, old) for j, old in zip(links.neighbors, state.taken, strict=True)])
    taken = taken.reshape(state.taken.shape)
    tracker = (1 - shares.sum()) * renewed + (taken - state.taken).sum(0)
    return replace(state, tracker=tracker, given=given, taken=taken)


def adapt(state: State, optimizer: str) -> tuple[State, Array]:
    """The direction to step against, from the tracked gradient."""
    if optimizer == "sgd":
        return state, state.tracker
    fast, slow = BETAS
    first = fast * state.first_moment + (1 - fast) * state.tracker
    second = slow * state.second_moment + (1 - slow) * state.tracker**2
    direction = first / (1 - fast**state.steps) / (np.sqrt(second / (1 - slow**state.steps)) + EPSILON)
    return replace(state, first_moment=first, second_moment=second), direction


def exchange_vectors(links: Links, values: Array | Mapping[int, Array], length: int) -> Program[dict[int, Array]]:
    """Send all neighbours a vector ``(length,)``, or each its own; the finite ones whose pieces all came."""
    heard: dict[int, list[Array]] = {j: [] for j in links.neighbors}
    for start in range(0, length, MAX_PIECE):
        piece = slice(start, min(length, start + MAX_PIECE))
        sent = {j: v[piece] for j, v in values.items()} if isinstance(values, Mapping) else values[piece]
        shape = (piece.stop - piece.start,)
        received = yield Exchange(sent, Direction.BOTH, shape=shape, dtype=np.float64)
        heard = {j: [*pieces, received[j]] for j, pieces in heard.items() if j in received}
    vectors = {j: np.concatenate(pieces) for j, pieces in heard.items()}
    return {j: vector for j, vector in vectors.items() if np.isfinite(vector).all()}  # NaN would spread to all nodes


def metropolis_weights(links: Links) -> Program[dict[int, float]]:
    r"""The weight of every neighbour, :math:`w_{ij} = 1 / (1 + \max(d_i, d_j))`, from the degrees at both ends alone.

    The weights are symmetric, and what they leave of 1 is a node's own. On a complete graph all are 1/N. A neighbour
    whose degree did not come is missing.
    """
    degree = len(links.neighbors)
    degrees = yield Exchange(np.array([degree], np.int64), Direction.BOTH)
    return {j: 1 / (1 + max(degree, int(other[0]))) for j, other in degrees.items()}
