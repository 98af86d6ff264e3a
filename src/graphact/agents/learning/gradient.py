"""The gradient of a whole model at one node, by exchange with its neighbours."""

from collections.abc import Mapping

import numpy as np

from graphact.agents.learning.objectives import evaluate
from graphact.agents.learning.tapes import Gradients, Place, Tape, run_taped
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.program import Program
from graphact.agents.stages import Filter, Readout


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
    of all stages but the first, whose input needs no gradient.

    Args:
        model: the model with the parameters that this node holds.
        place: where it stands.
        signal: its signals, ``(B, F)``.
        target: what it should answer; see :func:`~graphact.agents.learning.objectives.evaluate`.
        objective: name of the loss.
        powers: ``(K + 1, B, F)``, the shifted signals of a first stage that is a filter, where they are known
            (:func:`~graphact.agents.learning.tapes.shift_powers`); its exchanges are saved then.

    Returns:
        Its own loss, and the gradients by name of the parameter.
    """
    x = np.ascontiguousarray(signal, model.dtype)
    tapes: list[Tape] = []
    for number, stage in enumerate(model.stages):
        tape = yield from run_taped(stage, x, place, powers if number == 0 else None)
        tapes.append(tape)
        x = tape.output
    loss, grad = evaluate(objective, x, target)
    gradients: Gradients = {}
    for number, prefix in reversed(list(enumerate(stage_prefixes(model)))):
        grad, own = yield from tapes[number].backward(grad, number > 0)
        gradients |= {f"{prefix}{name}": value for name, value in own.items() if f"{prefix}{name}" in model.parameters}
    return loss, gradients


def stage_prefixes(model: Model) -> list[str]:
    """What the names of the parameters of each stage begin with."""
    if model.module not in ("GCNN", "FIR"):
        return [""] * len(model.stages)
    prefixes, layer = [], -1
    for stage in model.stages:
        layer += isinstance(stage, Filter)
        kind = "filters" if isinstance(stage, Filter) else "activations"
        prefixes.append("readout." if isinstance(stage, Readout) else f"{kind}.{layer}.")
    return prefixes


def first_filter(model: Model) -> Filter | None:
    """The first stage, if it is a filter."""
    stage = model.stages[0]
    return stage if isinstance(stage, Filter) else None


def gradient_rounds(model: Model, *, prepared: bool = True) -> int:
    """How many exchanges a gradient takes, when the signals were shifted before or not."""
    first = model.stages[0].rounds
    forward = model.rounds - (first if prepared and first_filter(model) else 0)
    return forward + model.rounds - first


def to_vector(parameters: Mapping[str, Array], model: Model) -> Array:
    """All parameters as one vector of float64, in the order of the model."""
    return np.concatenate([np.asarray(parameters[name], np.float64).ravel() for name in model.parameters])


def from_vector(vector: Array, model: Model) -> Model:
    """The model with the parameters of a vector."""
    sizes = [value.size for value in model.parameters.values()]
    pieces = np.split(vector, np.cumsum(sizes)[:-1])
    named = zip(model.parameters.items(), pieces, strict=True)
    parameters = {name: piece.reshape(old.shape).astype(model.dtype) for (name, old), piece in named}
    return Model(model.module, model.config, parameters)
