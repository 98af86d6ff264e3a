"""Vector-Jacobian products of the layers, as programs, and of the loss of one node.

Forwards a layer exchanges along the edges exactly as in inference. Backwards it exchanges against them, as many times:
for a value that it received, a node returns the gradient of that value to the neighbour it came from. The sum of what
comes back is the gradient of what a node sent. So no node learns more than its neighbours' values and gradients: the
adjoint of a shift is the shift by the transpose of S, without any node knowing a column of S.
"""

import bisect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from graphact_agents import operations, scalar_functions
from graphact_agents.arguments import check_choice
from graphact_agents.deployment import Deployment
from graphact_agents.inference import FUNCTIONS, find_scaling
from graphact_agents.inference import evaluate as evaluate_operation
from graphact_agents.links import ShiftRow
from graphact_agents.messages import Array
from graphact_agents.model import IncompatibleModelError, Model, ModelLayer
from graphact_agents.program import Direction, Exchange, Program

Gradients = dict[str, Array]


class Vjp(NamedTuple):
    """A layer that has run: its output ``(..., F)``, and its adjoint.

    ``backward`` takes the gradient of the output and whether that of the input is wanted (it costs the exchanges), and
    is the program that returns the gradient of the input and those of the layer's arrays by name.
    """

    output: Array
    backward: Callable[[Array, bool], Program[tuple[Array, Gradients]]]


def shift_powers(x: Array, order: int, row: ShiftRow) -> Program[Array]:
    """``x, Sx, ..., S^K x`` at this node, ``(K + 1, ..., F)``: K exchanges."""
    powers = [x]
    for _ in range(order):
        heard, weights = row.gather((yield Exchange(x)), x)
        x = row.shift(x, heard, weights)
        powers.append(x)
    return np.stack(powers)


def send_back(node: Deployment, parts: Mapping[int, Array], like: Array) -> Program[Array]:
    """The adjoint of an exchange: return to each neighbour the gradient of what it sent; the sum of what comes back."""
    nothing = np.zeros_like(like)
    returned = {j: parts.get(j, nothing) for j in node.links.hears}  # one that did not answer had no influence
    received = yield Exchange(returned, Direction.BACKWARD, shape=like.shape, dtype=like.dtype)
    return sum(received.values(), nothing)


def flat(x: Array) -> Array:
    """All samples in one dimension, ``(B, F)``."""
    return x.reshape(-1, x.shape[-1])


Adjoint = Callable[[ModelLayer, Array, Array, ShiftRow], tuple[Array, Gradients]]
"""Maps a layer, its input, the gradient of its output and the row to the gradients of the input and of its arrays."""


def local_vjp(adjoint: Adjoint) -> Callable[[ModelLayer, Array, Deployment, Array | None], Program[Vjp]]:
    """Return the program of a layer that needs no neighbour, and its VJP."""

    def vjp(layer: ModelLayer, x: Array, node: Deployment, _powers: Array | None) -> Program[Vjp]:
        def backward(grad: Array, _: bool) -> Program[tuple[Array, Gradients]]:
            yield from ()
            return adjoint(layer, x, grad, node.row)

        yield from ()
        return Vjp(FUNCTIONS[layer.kind](layer, x, node.row), backward)

    return vjp


def linear_adjoint(layer: ModelLayer, x: Array, grad: Array, _: ShiftRow) -> tuple[Array, Gradients]:
    """Return the gradients of a linear map."""
    gradients = {"weight": flat(grad).T @ flat(x)}
    if "bias" in layer.arrays:
        gradients["bias"] = flat(grad).sum(0)
    return grad @ layer.arrays["weight"], gradients


def standardize_adjoint(layer: ModelLayer, x: Array, grad: Array, row: ShiftRow) -> tuple[Array, Gradients]:
    """Return the gradients of the scaling of readings, which has nothing to learn."""
    flowing = grad[..., : x.shape[-1]] / np.tile(find_scaling(layer, row)[1], layer.settings["window"])
    return np.where(np.isnan(x), x.dtype.type(0), flowing), {}


def filter_vjp(layer: ModelLayer, x: Array, node: Deployment, powers: Array | None) -> Program[Vjp]:
    """A filter bank and its VJP: the shifts by the transpose of S, tap by tap from the last."""
    shifted, answered = [x] if powers is None else [x, *powers[1:]], []
    for _ in range(layer.exchanges if powers is None else 0):
        received = yield Exchange(x)
        heard, weights = node.row.gather(received, x)
        x = node.row.shift(x, heard, weights)
        shifted.append(x)
        answered.append(dict(zip(received, weights, strict=True)))
    out = sum(y @ tap for y, tap in zip(shifted, layer.arrays["taps"], strict=True))

    def backward(grad: Array, wanted: bool) -> Program[tuple[Array, Gradients]]:
        gradients = {"taps": np.stack([flat(y).T @ flat(grad) for y in shifted])}
        if "bias" in layer.arrays:
            gradients["bias"] = flat(grad).sum(0)
        flowing = grad @ layer.arrays["taps"][-1].T
        if not wanted:
            return flowing, gradients
        for tap, weight_of in zip(layer.arrays["taps"][-2::-1], reversed(answered), strict=True):
            parts = {j: weight * flowing for j, weight in weight_of.items()}
            back = yield from send_back(node, parts, flowing)
            flowing = back + flowing.dtype.type(node.row.diagonal) * flowing + grad @ tap.T
        return flowing, gradients

    return Vjp(out + layer.arrays["bias"] if "bias" in layer.arrays else out, backward)


class ReceivedRound(NamedTuple):
    """The values of one round: the node's own ``(..., F)``, and of the neighbours that answered ``(d, ..., F)``."""

    own: Array
    members: tuple[int, ...]
    heard: Array
    weights: Array


def hop_mixture_vjp(layer: ModelLayer, x: Array, node: Deployment, _powers: Array | None) -> Program[Vjp]:
    """A localized or graph-adaptive activation and its VJP; keeps what was received in every round."""
    rounds: list[ReceivedRound] = []
    y = x
    for _ in range(layer.exchanges):
        received = yield Exchange(y)
        heard, weights = node.row.gather(received, y)
        rounds.append(ReceivedRound(y, tuple(received), heard, weights))
        y = node.row.shift(y, heard, weights)
    beta, mixing_weights = layer.arrays["beta"], layer.arrays["weights"]
    skipped = layer.exchanges - len(mixing_weights)  # the round that only shifts
    rectified = np.maximum(x, 0)
    values = [evaluate_operation(layer, 0, around.own, around.heard) for around in rounds[skipped:]]
    out = beta * rectified + sum(mixing * value for mixing, value in zip(mixing_weights, values, strict=True))

    def backward(grad: Array, wanted: bool) -> Program[tuple[Array, Gradients]]:
        hops = zip(rounds[skipped:], values, mixing_weights, strict=True)
        parts = [operation_vjp(layer, node.node, around, value, grad * mixing) for around, value, mixing in hops]
        by_feature = np.stack([flat(grad * value).sum(0) for value in values])
        gradients = {
            "beta": np.asarray((grad * rectified).sum()),
            "weights": by_feature if mixing_weights.ndim == 2 else by_feature.sum(1),
        }
        for name in (name for name in layer.functions[0][0].parameters if f"log_{name}" in layer.arrays):
            gradients[f"log_{name}"] = np.asarray(sum(logs[name] for _, _, logs in parts), grad.dtype)
        direct = grad * beta * (x > 0)
        if not wanted:
            return direct, gradients
        flowing = np.zeros_like(x)  # the gradient of the shift that followed a round
        for number in reversed(range(layer.exchanges)):
            around = rounds[number]
            back_own = flowing * flowing.dtype.type(node.row.diagonal)
            back_heard = around.weights.reshape(-1, *[1] * x.ndim) * flowing
            if number >= skipped:
                own_part, heard_part, _ = parts[number - skipped]
                back_own, back_heard = back_own + own_part, back_heard + heard_part
            returned = dict(zip(around.members, back_heard, strict=True))
            flowing = back_own + (yield from send_back(node, returned, x))
        return direct + flowing, gradients

    return Vjp(out, backward)


VJPS: dict[str, Callable[[Any, Array, Deployment, Array | None], Program[Vjp]]] = {
    "filter": filter_vjp,
    "linear": local_vjp(linear_adjoint),
    "pointwise": local_vjp(lambda layer, x, grad, _: scalar_functions.backward(layer, x, grad)),
    "hop-mixture": hop_mixture_vjp,
    "standardize": local_vjp(standardize_adjoint),
    "rescale": local_vjp(lambda layer, _, grad, row: (grad * find_scaling(layer, row)[1], {})),
}
"""Programs that run a layer on the node's value ``(..., F)`` and keep what its adjoint needs, by kind of the layer. The
last argument is, for a filter, ``x, Sx, ..., S^K x`` at this node where they are known: no exchange then."""


# Operations


def operation_vjp(
    layer: ModelLayer, node: int, around: ReceivedRound, value: Array, grad: Array
) -> operations.Gradients:
    """The gradients of the node's value, its neighbours' ``(d, ..., F)``, and the logarithm of each parameter."""
    own, place = around.own, bisect.bisect(around.members, node)  # ties go to the first in closed neighbourhoods
    ((operation, parameters),), closed = layer.functions, layer.closed
    members = np.insert(around.heard, place, own, axis=0) if closed else around.heard
    if len(members) == 0:
        return np.zeros_like(own), np.zeros_like(around.heard), dict.fromkeys(operation.parameters, 0.0)
    assert operation.gradient is not None  # see check_learnable
    neighbors = np.moveaxis(members, 0, -2)
    back_own, back, logs = operation.gradient(own[..., np.newaxis, :], neighbors, value, grad, parameters)
    back = np.moveaxis(back, -2, 0)
    return (back_own + back[place], np.delete(back, place, axis=0), logs) if closed else (back_own, back, logs)


def check_learnable(model: Model) -> Model:
    """Return the model; IncompatibleModelError if a layer has no gradient here, or all parameters are frozen."""
    if not model.trained:
        raise IncompatibleModelError("", "the model has no parameter to learn that is not frozen")
    for part, layer in zip(model.parts, model.layers, strict=True):
        function, is_known = layer.kind, layer.kind in VJPS
        if layer.kind == "hop-mixture":
            operation, _ = layer.functions[0]
            function, is_known = operation.name, operation.gradient is not None
        elif layer.kind == "activation":
            function = layer.settings["function"]
        elif layer.kind in ("standardize", "rescale") and {*model.trained} & {f"{part}.mean", f"{part}.std"}:
            raise IncompatibleModelError(part, "agents do not learn a scaling: mean and std must be frozen")
        if not is_known:
            raise IncompatibleModelError(part, f"agents know no gradient of {function!r} to learn with")
    return model


# The loss of one node


def evaluate(objective: str, outputs: Array, targets: Array) -> tuple[float, Array]:
    """The mean loss over the samples of one node, ``(B, O)`` or classes ``(B, 1)``, and its gradient.

    The loss of the network is the mean over all nodes. A target that is NaN asks for nothing: it adds 0 to the mean.
    """
    check_choice("objective", objective, tuple(OBJECTIVES))
    expected = (*outputs.shape[:-1], 1) if objective == "cross_entropy" else outputs.shape
    if targets.shape != expected:
        raise ValueError(f"targets of a node must have the shape {expected}, got {targets.shape}")
    losses, gradient = OBJECTIVES[objective](outputs, targets)
    asked, count = ~np.isnan(targets), targets.size
    return float(np.where(asked, losses, 0).sum() / count), np.where(asked, gradient, 0).astype(outputs.dtype) / count


def smooth_l1(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Half the square of each error up to 1, beyond it the error minus one half."""
    error = outputs - targets
    size = np.abs(error)
    return np.where(size < 1, 0.5 * error**2, size - 0.5), np.clip(error, -1, 1)


def cross_entropy(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """Minus the logarithm of the probability of each class."""
    shifted = outputs - outputs.max(-1, keepdims=True)
    total = np.exp(shifted).sum(-1, keepdims=True)
    classes = np.where(np.isnan(targets), 0, targets).astype(int)
    hit = np.arange(outputs.shape[-1]) == classes
    return np.log(total) - (shifted * hit).sum(-1, keepdims=True), np.exp(shifted) / total - hit


OBJECTIVES: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "mse": lambda outputs, targets: ((outputs - targets) ** 2, 2 * (outputs - targets)),
    "smooth_l1": smooth_l1,
    "cross_entropy": cross_entropy,
}
