"""The stages of a model once more, remembering what their adjoints need.

Forwards a stage exchanges along the edges exactly as in inference. Backwards it exchanges against them, as many times:
in the place of a value that it heard, a node returns the gradient of that value, to the neighbour it came from. The
sum of what comes back is the gradient of what a node said. So no node learns more than its neighbours' values and
gradients: the adjoint of a shift is the shift by the transpose of S, without anybody knowing a column of S.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from graphact.agents.learning.neighborhood import Neighborhood, kernel_width_gradient, reduce_back
from graphact.agents.links import Links
from graphact.agents.messages import Array
from graphact.agents.operations import reduce
from graphact.agents.program import Direction, Exchange, Program
from graphact.agents.row import Row
from graphact.agents.stages import Filter, Mixed, Readout, Relu, Stage

Gradients = dict[str, Array]


@dataclass(frozen=True)
class Place:
    """Where a node stands: its links and its row of S."""

    links: Links
    row: Row


@dataclass(frozen=True)
class Tape:
    """A stage that has run.

    Attributes:
        output: what came out, ``(..., F)``.
        backward: takes the gradient of the output and whether that of the input is wanted (it costs the exchanges), and
            is the program that returns the gradient of the input and those of the parameters.
    """

    output: Array
    backward: Callable[[Array, bool], Program[tuple[Array, Gradients]]]


def run_taped(stage: Stage, x: Array, place: Place, powers: Array | None = None) -> Program[Tape]:
    """Run a stage and remember what its adjoint needs.

    Args:
        stage: the stage.
        x: the node's value, ``(..., F)``.
        place: where the node stands.
        powers: for a filter, ``x, Sx, ..., S^K x`` at this node where they are known already: no exchange then.
    """
    if isinstance(stage, Filter):
        return (yield from _run_filter(stage, x, place, powers))
    if isinstance(stage, Mixed):
        return (yield from _run_mixed(stage, x, place))
    if isinstance(stage, Relu):
        return Tape(np.maximum(x, 0), lambda grad, _: _without_exchange(grad * (x > 0), {}))
    if isinstance(stage, Readout):
        return _run_readout(stage, x)
    raise TypeError(f"stage must be a Filter, Mixed, Relu or Readout, got {type(stage).__name__}")


def shift_powers(x: Array, order: int, row: Row) -> Program[Array]:
    """``x, Sx, ..., S^K x`` at this node, ``(K + 1, ..., F)``: K exchanges."""
    powers = [x]
    for _ in range(order):
        heard, weights = row.gather((yield Exchange(x)), x)
        x = row.shift(x, heard, weights)
        powers.append(x)
    return np.stack(powers)


def send_back(place: Place, parts: Mapping[int, Array], like: Array) -> Program[Array]:
    """The adjoint of an exchange: return to each neighbour the gradient of what it said.

    Returns:
        The gradient of what this node said, the sum of what comes back.
    """
    nothing = np.zeros_like(like)
    returned = {j: parts.get(j, nothing) for j in place.links.hears}  # one that did not answer had no influence
    received = yield Exchange(returned, Direction.BACKWARD, shape=like.shape, dtype=like.dtype)
    return sum(received.values(), nothing)


def flat(x: Array) -> Array:
    """All samples in one dimension, ``(B, F)``."""
    return x.reshape(-1, x.shape[-1])


def _without_exchange(grad: Array, gradients: Gradients) -> Program[tuple[Array, Gradients]]:
    yield from ()
    return grad, gradients


def _run_readout(stage: Readout, x: Array) -> Tape:
    out = x @ stage.weight.T

    def backward(grad: Array, _: bool) -> Program[tuple[Array, Gradients]]:
        gradients = {"weight": flat(grad).T @ flat(x)}
        if stage.bias is not None:
            gradients["bias"] = flat(grad).sum(0)
        return _without_exchange(grad @ stage.weight, gradients)

    return Tape(out if stage.bias is None else out + stage.bias, backward)


def _run_filter(stage: Filter, x: Array, place: Place, powers: Array | None) -> Program[Tape]:
    shifted, answered = [x], []
    for k in range(1, len(stage.taps)):
        if powers is not None:
            shifted.append(powers[k])
            continue
        received = yield Exchange(x)
        heard, weights = place.row.gather(received, x)
        x = place.row.shift(x, heard, weights)
        shifted.append(x)
        answered.append(dict(zip(received, weights, strict=True)))
    out = sum(y @ tap for y, tap in zip(shifted, stage.taps, strict=True))

    def backward(grad: Array, wanted: bool) -> Program[tuple[Array, Gradients]]:
        gradients = {"taps": np.stack([flat(y).T @ flat(grad) for y in shifted])}
        if stage.bias is not None:
            gradients["bias"] = flat(grad).sum(0)
        flowing = grad @ stage.taps[-1].T
        if not wanted:
            return flowing, gradients
        for tap, weight_of in zip(stage.taps[-2::-1], reversed(answered), strict=True):
            parts = {j: weight * flowing for j, weight in weight_of.items()}
            back = yield from send_back(place, parts, flowing)
            flowing = back + flowing.dtype.type(place.row.diagonal) * flowing + grad @ tap.T
        return flowing, gradients

    return Tape(out if stage.bias is None else out + stage.bias, backward)


def _run_mixed(stage: Mixed, x: Array, place: Place) -> Program[Tape]:
    """Remembers what was heard in every round, and the weights of those who spoke."""
    rounds: list[tuple[Neighborhood, Array]] = []
    y = x
    for _ in range(stage.rounds):
        received = yield Exchange(y)
        heard, weights = place.row.gather(received, y)
        rounds.append((Neighborhood(place.links.node, y, tuple(received), heard), weights))
        y = place.row.shift(y, heard, weights)
    looks = rounds[1:] if stage.adaptive else rounds
    beta, rectified = x.dtype.type(stage.beta), np.maximum(x, 0)
    values = [reduce(stage.op, around.own, around.heard, stage.closed, stage.gamma) for around, _ in looks]
    out = beta * rectified + sum(mixing * value for mixing, value in zip(stage.weights, values, strict=True))

    def backward(grad: Array, wanted: bool) -> Program[tuple[Array, Gradients]]:
        gradients = _mixed_gradients(stage, grad, rectified, values, looks)
        direct = grad * beta * (x > 0)
        if not wanted:
            return direct, gradients
        flowing = np.zeros_like(x)  # the gradient of the shift that followed a round
        for number in reversed(range(stage.rounds)):
            around, weights = rounds[number]
            back_own = flowing * flowing.dtype.type(place.row.diagonal)
            back_heard = weights.reshape(-1, *[1] * x.ndim) * flowing
            hop = number - 1 if stage.adaptive else number
            if hop >= 0:
                turned = grad * stage.weights[hop]
                _, own_part, heard_part = reduce_back(around, stage.op, stage.closed, stage.gamma, turned)
                back_own, back_heard = back_own + own_part, back_heard + heard_part
            parts = dict(zip(around.members, back_heard, strict=True))
            flowing = back_own + (yield from send_back(place, parts, x))
        return direct + flowing, gradients

    return Tape(out, backward)


def _mixed_gradients(
    stage: Mixed, grad: Array, rectified: Array, values: list[Array], looks: list[tuple[Neighborhood, Array]]
) -> Gradients:
    """The gradients of beta, of the weights (of each feature, or shared) and of the logarithm of gamma."""
    by_feature = np.stack([flat(grad * value).sum(0) for value in values])
    gradients = {
        "beta": np.asarray((grad * rectified).sum()),
        "weights": by_feature if stage.weights.ndim == 2 else by_feature.sum(1),
    }
    if stage.op == "kernel":
        hops = zip(looks, values, stage.weights, strict=True)
        width = sum(kernel_width_gradient(around, v, stage.gamma, grad * h) for (around, _), v, h in hops)
        gradients["log_gamma"] = np.asarray(width, grad.dtype)
    return gradients
