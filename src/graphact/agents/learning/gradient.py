"""The loss of one node, and the gradient of the whole network's loss by exchange with the neighbours."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from graphact._checks import check_choice
from graphact.agents.learning.vjp import POINTWISE_DERIVATIVES, VJPS, Gradients, Place, Vjp, gradient_of
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.program import Program
from graphact.layers import Filter, HopMixture, Layer, Pointwise, UnsupportedModelError


def evaluate(objective: str, outputs: Array, targets: Array) -> tuple[float, Array]:
    """The mean loss over the samples of one node, and its gradient.

    The loss of the network is the mean over all nodes. A target that is NaN asks for nothing: it adds 0 to the mean.

    Args:
        objective: "mse", "smooth_l1" (threshold 1) or "cross_entropy".
        outputs: ``(B, O)``.
        targets: ``(B, O)``; for the cross entropy classes, ``(B, 1)``.

    Example:
        >>> import numpy as np
        >>> evaluate("mse", np.array([[1.0], [5.0]]), np.array([[3.0], [np.nan]]))
        (2.0, array([[-2.],
               [ 0.]]))
    """
    check_choice("objective", objective, tuple(OBJECTIVES))
    expected = (*outputs.shape[:-1], 1) if objective == "cross_entropy" else outputs.shape
    if targets.shape != expected:
        raise ValueError(f"targets of a node must have the shape {expected}, got {targets.shape}")
    losses, gradient = OBJECTIVES[objective](outputs, targets)
    asked = ~np.isnan(targets)
    count = targets.size
    return float(np.where(asked, losses, 0).sum() / count), np.where(asked, gradient, 0).astype(outputs.dtype) / count


def squared_error(outputs: Array, targets: Array) -> tuple[Array, Array]:
    """The square of each error."""
    error = outputs - targets
    return error**2, 2 * error


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
    "mse": squared_error,
    "smooth_l1": smooth_l1,
    "cross_entropy": cross_entropy,
}


def gradient(
    model: Model, place: Place, signal: Array, target: Array, objective: str = "mse", *, powers: Array | None = None
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
        place: where it stands.
        signal: its signals, ``(B, F)``.
        target: what it should answer; see :func:`~graphact.agents.learning.gradient.evaluate`.
        objective: name of the loss.
        powers: ``(K + 1, B, F)``, the shifted signals of a first layer that is a filter, where they are known
            (:func:`~graphact.agents.learning.vjp.shift_powers`); its exchanges are saved then.

    Returns:
        Its own loss, and the gradients by name of the parameter, of those that are not frozen.
    """
    x = np.ascontiguousarray(signal, model.dtype)
    vjps: list[Vjp] = []
    for number, layer in enumerate(model.layers):
        vjps.append((yield from VJPS[layer.kind](layer, x, place, powers if number == 0 else None)))
        x = vjps[-1].output
    loss, grad = evaluate(objective, x, target)
    gradients: Gradients = {}
    for number in reversed(range(len(vjps))):
        grad, own = yield from vjps[number].backward(grad, number > 0)
        names = model.description[number]["arrays"]
        gradients |= {names[name]: value for name, value in own.items() if names[name] not in model.frozen}
    return loss, gradients


def check_learnable(model: Model) -> Model:
    """Return the model; UnsupportedModelError if a layer has no gradient here, or all parameters are frozen."""
    if not model.trained:
        raise UnsupportedModelError("", "the model has no parameter to learn that is not frozen")
    for part, layer in zip(model.parts, model.layers, strict=True):
        function, is_known = layer.kind, layer.kind in VJPS
        if isinstance(layer, Pointwise):
            function, is_known = layer.function, layer.function in POINTWISE_DERIVATIVES
        elif isinstance(layer, HopMixture):
            function, is_known = layer.operation.name, gradient_of(layer.operation) is not None
        if not is_known:
            raise UnsupportedModelError(part, f"agents know no gradient of {function!r} to learn with")
    return model


def first_filter(model: Model) -> Layer | None:
    """The first layer, if it is a filter."""
    return model.layers[0] if model.layers[0].kind == Filter.kind else None


def gradient_rounds(model: Model, *, prepared: bool = True) -> int:
    """How many exchanges a gradient takes, when the signals were shifted before or not."""
    first = model.layers[0].exchanges
    forward = model.rounds - (first if prepared and first_filter(model) else 0)
    return forward + model.rounds - first


def num_trained(model: Model) -> int:
    """How many numbers learning changes."""
    return sum(model.parameters[name].size for name in model.trained)


def to_vector(parameters: Mapping[str, Array], model: Model) -> Array:
    """All parameters that learning changes as one vector of float64, layer by layer."""
    return np.concatenate([np.asarray(parameters[name], np.float64).ravel() for name in model.trained])


def from_vector(vector: Array, model: Model) -> Model:
    """The model with the parameters of a vector; frozen ones as they are."""
    sizes = [model.parameters[name].size for name in model.trained]
    pieces = zip(model.trained, np.split(vector, np.cumsum(sizes)[:-1]), strict=True)
    changed = {name: piece.reshape(model.parameters[name].shape).astype(model.dtype) for name, piece in pieces}
    return replace(model, parameters={name: changed.get(name, value) for name, value in model.parameters.items()})
