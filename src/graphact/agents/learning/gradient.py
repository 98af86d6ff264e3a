"""The gradient of a whole model at one node, by exchange with its neighbours."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphact.agents.learning.objectives import evaluate
from graphact.agents.learning.vjp import Gradients, Place, Vjp, check_differentiable, run_layer
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.program import Program
from graphact.layers import Filter, Layer, UnsupportedModelError


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
        target: what it should answer; see :func:`~graphact.agents.learning.objectives.evaluate`.
        objective: name of the loss.
        powers: ``(K + 1, B, F)``, the shifted signals of a first layer that is a filter, where they are known
            (:func:`~graphact.agents.learning.vjp.shift_powers`); its exchanges are saved then.

    Returns:
        Its own loss, and the gradients by name of the parameter, of those that are not frozen.
    """
    x = np.ascontiguousarray(signal, model.dtype)
    vjps: list[Vjp] = []
    for number, layer in enumerate(model.layers):
        vjp = yield from run_layer(layer, x, place, powers if number == 0 else None)
        vjps.append(vjp)
        x = vjp.output
    loss, grad = evaluate(objective, x, target)
    gradients: Gradients = {}
    for number in reversed(range(len(vjps))):
        grad, own = yield from vjps[number].backward(grad, number > 0)
        names = model.entries[number]["arrays"]
        gradients |= {names[name]: value for name, value in own.items() if names[name] not in model.frozen}
    return loss, gradients


def check_learnable(model: Model) -> Model:
    """Return the model if agents can train it.

    Raises:
        UnsupportedModelError: a layer has no gradient here, or all parameters are frozen.
    """
    if not model.trained:
        raise UnsupportedModelError("", "the model has no parameter to learn that is not frozen")
    for part, layer in zip(model.parts, model.layers, strict=True):
        check_differentiable(layer, part)
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
