r"""How neighbours bring their parameters together, once they have their gradients.

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

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphact.agents.learning.exchanges import exchange_acknowledged, exchange_vectors, vector_rounds
from graphact.agents.learning.settings import Learning
from graphact.agents.learning.state import State
from graphact.agents.links import Links
from graphact.agents.messages import Array
from graphact.agents.program import Program

Weights = Mapping[int, float]
BETAS, EPSILON = (0.9, 0.999), 1e-8


def mix(state: State, gradient: Array, links: Links, weights: Weights, learning: Learning) -> Program[State]:
    """One step from a gradient: track it, adapt the parameters, combine them with those of the neighbours.

    Args:
        state: the node's state.
        gradient: ``(P,)``, its gradient at the parameters of that state.
        links: whom it is connected with.
        weights: of its neighbours; see :func:`~graphact.agents.learning.exchanges.metropolis_weights`. One that is
            missing is not mixed with.
        learning: what all nodes agreed upon.
    """
    track = {"d-psgd": keep_own, "gradient-tracking": track_acknowledged, "push-pull": track_by_running_sums}
    state = yield from track[learning.algorithm](state, gradient, links, weights)
    state, direction = adapt(replace(state, gradient=gradient, steps=state.steps + 1), learning.optimizer)
    adapted = state.parameters - learning.rate * direction
    heard = yield from exchange_vectors(links, adapted, len(adapted))
    return replace(state, parameters=combine(adapted, heard, weights))


def mixing_rounds(algorithm: str, num_parameters: int) -> int:
    """How many exchanges :func:`mix` takes."""
    vector = vector_rounds(num_parameters)
    return {"d-psgd": vector, "gradient-tracking": 2 * vector + 1, "push-pull": 2 * vector}[algorithm]


def combine(own: Array, heard: Mapping[int, Array], weights: Weights) -> Array:
    """The weighted mean of a vector with those of neighbours; the weight of absent ones is the node's own."""
    differences = [weights[j] * (vector - own) for j, vector in heard.items() if j in weights]
    return sum(differences, own)


def keep_own(state: State, gradient: Array, links: Links, weights: Weights) -> Program[State]:
    """No tracking."""
    del links, weights
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
    told = dict(zip(links.neighbors, given, strict=True))
    heard = yield from exchange_vectors(links, told, len(renewed))
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
