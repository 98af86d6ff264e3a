r"""Rules by which neighbours mix their parameters, once they have their gradients.

Every step adapts, then combines. With the node's gradient :math:`g_i`, weights :math:`w_{ij}` of Metropolis and a step
size :math:`\alpha`:

.. math:: y_i \leftarrow \text{track}(g_i), \qquad
    x_i \leftarrow \sum_{j \in \{i\} \cup \mathcal{N}_i} w_{ij} \, (x_j - \alpha \, d(y_j))

where d is the identity or Adam's direction. In the combination of x a neighbour that did not answer leaves its weight
to the node itself; that keeps the rows summing to one, which is all that agreement needs. The algorithms differ in how
the gradient is tracked, that is in what becomes of columns:

- **d-psgd** does not: :math:`y_i = g_i`. Nodes whose own gradients differ pull away from each other in every step, so
  that the fixed point is not the optimum but off by the order of the step size.
- **gradient-tracking**: :math:`y_i \leftarrow \sum_j w_{ij} z_j` with :math:`z_i = y_i + g_i - g_i^{\text{before}}`, so
  that the y add up to the sum of the gradients, and each tends to their mean. That needs a link to be used by both
  ends or by none, hence the acknowledged exchange; exact without loss and with links that are lost both ways.
- **push-pull**: each node gives away shares :math:`w_{ij} z_i` and tells each neighbour the running sum of all it has
  ever given to it. Who hears it takes the difference to what it took before. What is lost on the way is in the next
  sum, so nothing is ever lost for good: exact also when links are lost one way, and when nodes crash and come back.

Without faults push-pull and gradient tracking make the same steps.
"""

from collections.abc import Callable, Mapping
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
        algorithm: how neighbours mix: a key of ``ALGORITHMS``.
        optimizer: "sgd" steps along the (tracked) gradient, "adam" as :class:`torch.optim.Adam` does.
        rate: the step size.
        objective: "mse", "smooth_l1" or "cross_entropy".
        batch: samples a step; None takes all of them in every step.
        seed: decides the order of the samples, which all nodes share.
    """

    algorithm: str = "push-pull"
    optimizer: str = "adam"
    rate: float = 0.01
    objective: str = "mse"
    batch: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, tuple(ALGORITHMS))
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
    track, _, _ = ALGORITHMS[learning.algorithm]
    state = yield from track(state, gradient, links, weights)
    state, direction = adapt(replace(state, gradient=gradient, steps=state.steps + 1), learning.optimizer)
    adapted = state.parameters - learning.rate * direction
    heard = yield from exchange_vectors(links, adapted, len(adapted))
    return replace(state, parameters=combine(adapted, heard, weights))


def combine(own: Array, heard: Mapping[int, Array], weights: Weights) -> Array:
    """The weighted mean of a vector with those of neighbours; the weight of absent ones is the node's own."""
    differences = [weights[j] * (vector - own) for j, vector in heard.items() if j in weights]
    return sum(differences, own)


def keep_own(state: State, gradient: Array, *_: object) -> Program[State]:
    """No tracking."""
    yield from ()
    return replace(state, tracker=gradient)


def track_acknowledged(state: State, gradient: Array, links: Links, weights: Weights) -> Program[State]:
    """Mix the trackers over the links that both ends use."""
    renewed = state.tracker + gradient - state.gradient
    heard = yield from exchange_acknowledged(links, renewed)
    return replace(state, tracker=combine(renewed, heard, weights))


def track_by_running_sums(state: State, gradient: Array, links: Links, weights: Weights) -> Program[State]:
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


ALGORITHMS: dict[str, tuple[Callable[..., Program[State]], int, int]] = {
    "d-psgd": (keep_own, 1, 0),
    "gradient-tracking": (track_acknowledged, 2, 1),
    "push-pull": (track_by_running_sums, 2, 0),
}
"""Tracking of the gradient, and the number of vectors and of acknowledgements that a step exchanges."""


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
