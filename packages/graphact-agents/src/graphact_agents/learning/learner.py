"""One node that learns: programs of the gradient, of the preparation and of every step."""

from dataclasses import asdict
from pathlib import Path

import numpy as np

from graphact_agents.deployment import Deployment
from graphact_agents.learning.mixing import MAX_PIECE, Learning, metropolis_weights, mix
from graphact_agents.learning.state import State, from_vector, to_vector
from graphact_agents.learning.vjp import VJPS, Gradients, Vjp, check_learnable, evaluate, shift_powers
from graphact_agents.messages import MAX_DATAGRAM, OVERHEAD, Array
from graphact_agents.model import Model, agreement
from graphact_agents.program import Program

STEP, PREPARATION = 2, 3
"""Program numbers, so that values of learning never mix with those of inference (1)."""


class NotFiniteError(ValueError):
    """A gradient or a state with NaN or infinity."""


def gradient(
    model: Model, node: Deployment, signal: Array, target: Array, objective: str = "mse", *, powers: Array | None = None
) -> Program[tuple[float, Gradients]]:
    r"""This node's part of the gradient of the network's loss.

    With the loss :math:`L = \sum_i L_i(\theta_1, \ldots, \theta_N)`, where :math:`\theta_i` are the parameters that
    node i holds and :math:`L_i` is its own loss, the result is :math:`\partial L / \partial \theta_i`. The sum over the
    nodes is the gradient of the centralised model when all hold the same parameters. A link that did not answer
    forwards is left out of the function and of its gradient; one that does not answer backwards is missing in the
    gradient.

    The program takes one exchange along the edges for each round of the inference and one against them for each round
    of all layers but the first, whose input needs no gradient.

    Args:
        model: the model with the parameters that this node holds.
        node: its links and its row of S.
        signal: its signals, ``(B, F)``.
        target: what it should answer; see :func:`~graphact_agents.learning.vjp.evaluate`.
        objective: name of the loss.
        powers: ``(K + 1, B, F)``, the shifted signals of a first layer that is a filter, where they are known
            (:func:`~graphact_agents.learning.vjp.shift_powers`); its exchanges are saved then.

    Returns:
        Its own loss, and the gradients by name of the parameter, of those that are not frozen.
    """
    x = np.ascontiguousarray(signal, model.dtype)
    vjps: list[Vjp] = []
    for number, layer in enumerate(model.layers):
        vjps.append((yield from VJPS[layer.kind](layer, x, node, powers if number == 0 else None)))
        x = vjps[-1].output
    loss, grad = evaluate(objective, x, target)
    gradients: Gradients = {}
    for number in reversed(range(len(vjps))):
        grad, own = yield from vjps[number].backward(grad, number > 0)
        names = model.description[number]["arrays"]
        gradients |= {names[name]: value for name, value in own.items() if names[name] not in model.frozen}
    return loss, gradients


class Learner:
    """A node that learns: its deployment, its own signals and targets, its state.

    Drive it as any node: one run with ``prepare()`` (program number 3), in which every neighbour must answer, then
    one run a step with ``step(number)`` (program number 2), where all nodes number steps alike. The state is saved at
    the end of every step, before anything that depends on it is sent.

    Args:
        deployment: its links, its row and the model to begin with, the same at every node.
        learning: what all nodes agreed upon.
        signals: its own signals, ``(M, F)``.
        targets: its own targets, ``(M, O)``; see :func:`~graphact_agents.learning.vjp.evaluate`.
        path: the file of its state, which it goes on from if it is there; None keeps the state in memory.

    Raises:
        IncompatibleModelError: a layer of the model has no gradient here, or all parameters are frozen.
        ValueError: signals or targets are not as many, or not finite (NaN in a target asks for nothing).
    """

    def __init__(
        self, deployment: Deployment, learning: Learning, signals: Array, targets: Array, path: Path | None = None
    ) -> None:
        if len(signals) != len(targets) or len(signals) == 0:
            raise ValueError(f"signals and targets must be as many, at least one, got {len(signals)}, {len(targets)}")
        self.node, self.links, self.learning = deployment, deployment.links, learning
        self._path = path
        self._state: State | None = None  # read when it is first asked for
        self.model = check_learnable(deployment.model)
        self.signals = np.ascontiguousarray(signals, self.model.dtype)
        self.targets = np.asarray(targets, np.float64)
        if not np.isfinite(self.signals).all() or np.isinf(self.targets).any():
            raise ValueError(f"signals and targets of node {self.links.node} must be finite, got NaN or infinity")
        self.weights: dict[int, float] | None = None  # of neighbours in mixing, once the preparation is over
        self.powers: Array | None = None  # (K + 1, M, F), shifted signals, if the model begins with a filter

    def prepare(self) -> Program[None]:
        """Learn the weights of the neighbours, and shift the signals once and for all."""
        weights = yield from metropolis_weights(self.links)
        count, exchanges = prepared_exchanges(self.model, self.signals.shape)
        if exchanges:
            pieces = []
            for piece in np.array_split(self.signals, count):
                pieces.append((yield from shift_powers(piece, exchanges, self.node.row)))
            self.powers = np.concatenate(pieces, axis=1)
        self.weights = weights

    def step(self, number: int) -> Program[float]:
        """Step ``number``, from 0; returns the node's own loss before the step.

        Raises:
            RuntimeError: the preparation has not come before.
            NotFiniteError: the gradient is not finite, and nothing of it was sent, or the state would not be.
        """
        if self.weights is None:
            raise RuntimeError("the preparation must come before the first step")
        state = self.state
        batch = samples_of(number, len(self.signals), self.learning)
        known = None if self.powers is None else self.powers[:, batch]
        signal, target = self.signals[batch], self.targets[batch]
        model = from_vector(state.parameters, self.model)
        loss, gradients = yield from gradient(model, self.node, signal, target, self.learning.objective, powers=known)
        vector = to_vector(gradients, model)
        if not np.isfinite(vector).all():
            got = f"{np.count_nonzero(~np.isfinite(vector))} of {vector.size} numbers that are not"
            raise NotFiniteError(f"the gradient of node {self.links.node} in step {number} must be finite, got {got}")
        state = yield from mix(state, vector, self.links, self.weights, self.learning)
        if not all(np.isfinite(value).all() for value in state.to_arrays().values()):
            raise NotFiniteError(f"the state of node {self.links.node} after step {number} must be finite")
        if self._path is not None:
            state.save(self._path)
        self._state = state
        return loss

    @property
    def state(self) -> State:
        if self._state is None:
            first = State.first(to_vector(self.model.parameters, self.model), len(self.links.neighbors))
            state = first if self._path is None or not self._path.exists() else State.load(self._path)
            if (state.parameters.shape, state.given.shape) != (first.parameters.shape, first.given.shape):
                expected = f"{first.given.shape} numbers for its neighbours and parameters"
                raise ValueError(f"the state of node {self.links.node} must have {expected}, got {state.given.shape}")
            self._state = state
        return self._state

    @property
    def digest(self) -> bytes:
        """The digest of what all nodes must agree upon to learn together, for :class:`~graphact_agents.Node`."""
        return agreement(self.model, **asdict(self.learning))


def samples_of(step: int, count: int, learning: Learning) -> Array | slice:
    """The samples of a step: all, or the next batch in an order that is drawn again for each pass over the samples."""
    size = learning.batch
    if size is None or size >= count:
        return slice(None)
    steps_a_pass = -(-count // size)
    order = np.random.default_rng([learning.seed, step // steps_a_pass]).permutation(count)
    begin = step % steps_a_pass * size
    return order[begin : begin + size]


# How many exchanges it takes


def prepared_exchanges(model: Model, shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the number of messages of a node's signals in the preparation, and of shifts of each.

    That is the order of a first layer that is a filter; nothing is shifted before another one.
    """
    room = (MAX_DATAGRAM - OVERHEAD - 8) // (shape[1] * model.dtype.itemsize)
    first = model.layers[0]
    return -(-shape[0] // room), first.exchanges if first.kind == "filter" else 0


def preparation_rounds(model: Model, shape: tuple[int, ...]) -> int:
    """Return the number of exchanges of the preparation, for signals of a node of this shape: degrees, then shifts."""
    pieces, exchanges = prepared_exchanges(model, shape)
    return 1 + pieces * exchanges


def step_rounds(model: Model) -> int:
    """Return the number of exchanges of a step; docs/agents-learning.md counts its messages and bytes.

    The gradient takes the rounds of all layers but a first filter, whose exchanges the preparation saves, along the
    edges, and those of all layers but the first against them. Then tracker and parameters are mixed, in pieces.
    """
    first, size = model.layers[0], sum(model.parameters[name].size for name in model.trained)
    later = model.rounds - first.exchanges
    forward = later if first.kind == "filter" else model.rounds
    return forward + later + 2 * -(-size // MAX_PIECE)
