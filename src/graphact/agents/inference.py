"""What a node does for each kind of layer: programs in NumPy that exchange with the neighbours as often as they need.

``PROGRAMS`` holds one program for each kind of layer spec. A program takes the node's value ``(..., F)`` and its row of
S; see :mod:`graphact.agents.program`.
"""

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact.agents import pointwise
from graphact.agents.links import Row
from graphact.agents.messages import Array
from graphact.agents.program import Exchange, Program
from graphact.layers import Activation, Filter, HopMixture, Layer, Linear, Pointwise, UnsupportedModelError
from graphact.operations import OPERATIONS, Operation, find_operation

if TYPE_CHECKING:
    from graphact.agents.model import Model


def infer(model: "Model", row: Row, signal: Array) -> Program[Array]:
    """The program of one inference at one node.

    Args:
        model: the model, the same at every node.
        row: the node's row of S.
        signal: the node's signal, ``(F,)`` or, for a batch, ``(..., F)``; all nodes must use the same shape.

    Raises:
        ValueError: the signal has the wrong number of features.
    """
    x = np.ascontiguousarray(signal, model.dtype)
    if x.ndim < 1 or (model.in_features is not None and x.shape[-1] != model.in_features):
        raise ValueError(f"signal must have the shape (..., {model.in_features or 'F'}), got {np.shape(signal)}")
    for layer in model.layers:
        x = yield from PROGRAMS[layer.kind](layer, x, row)
    return x


def run_filter(layer: Filter, x: Array, row: Row) -> Program[Array]:
    """Shift and mix, tap by tap."""
    out: Array = x @ layer.taps[0]
    for tap in layer.taps[1:]:
        heard, weights = row.gather((yield Exchange(x)), x)
        x = row.shift(x, heard, weights)
        out = out + x @ tap
    return out if layer.bias is None else out + layer.bias


def run_linear(layer: Linear, x: Array, _: Row) -> Program[Array]:
    """The map of a node's own value: no exchange, and yet a program like the others."""
    yield from ()
    out: Array = x @ layer.weight.T
    return out if layer.bias is None else out + layer.bias


def run_pointwise(layer: Pointwise, x: Array, _: Row) -> Program[Array]:
    """A function of a node's own value, likewise."""
    yield from ()
    return pointwise.evaluate(layer, x)


def run_hop_mixture(layer: HopMixture, x: Array, row: Row) -> Program[Array]:
    r"""Exchange, take the function of the neighbourhood, shift.

    A graph-adaptive activation exchanges :math:`y_0 = x, y_1 = Sx, \ldots, y_K`: the neighbours' values of :math:`y_k`
    give both the function of the neighbourhood and :math:`y_{k+1}`, so K hops take K + 1 exchanges. A localized one of
    one hop exchanges x.
    """
    out: Array = layer.beta * np.maximum(x, 0)
    if layer.reads == "shifted":
        heard, weights = row.gather((yield Exchange(x)), x)
        x = row.shift(x, heard, weights)
    for hop, mixing in enumerate(layer.weights, start=1):
        heard, weights = row.gather((yield Exchange(x)), x)
        out = out + mixing * evaluate_operation(layer, x, heard)
        if hop < layer.hops:
            x = row.shift(x, heard, weights)
    return out


def run_activation(layer: Activation, x: Array, row: Row) -> Program[Array]:
    """An activation by its name."""
    return (yield from ACTIVATIONS[layer.function](layer, x, row))


def run_max_k(layer: Activation, x: Array, _: Row) -> Program[Array]:
    """Keep the largest features, the first among equal ones; NaN counts as the largest."""
    yield from ()
    kept = layer.options["k"] or -(-x.shape[-1] // 4)
    order = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")
    place = np.argsort(order, axis=-1, kind="stable")
    return np.where(place < kept, x, x.dtype.type(0))


def run_mixture(layer: Activation, x: Array, row: Row) -> Program[Array]:
    """As a graph-adaptive activation, with several functions of the values that an exchange brings."""
    mixing, closed = layer.tensors["weights"], layer.options["closed"]
    operations = [find_operation(name) for name in layer.options["ops"]]
    out: Array = layer.tensors["beta"] * np.maximum(x, 0)
    for hop in range(layer.rounds):
        heard, weights = row.gather((yield Exchange(x)), x)
        for number, operation in enumerate(operations if hop else ()):
            term = evaluate_members(operation, operation.parameters, closed, x, heard)
            out = out + mixing[number, hop - 1] * term
        x = row.shift(x, heard, weights)
    return out


ACTIVATIONS: dict[str, Callable[[Activation, Array, Row], Program[Array]]] = {
    "max-k": run_max_k,
    "mixture-ga": run_mixture,
}
"""Programs of activations by their name."""

PROGRAMS: dict[str, Callable[[Any, Array, Row], Program[Array]]] = {
    Filter.kind: run_filter,
    Linear.kind: run_linear,
    Pointwise.kind: run_pointwise,
    HopMixture.kind: run_hop_mixture,
    Activation.kind: run_activation,
}


def evaluate_operation(layer: HopMixture, own: Array, heard: Array) -> Array:
    """The operation over the node's value ``(..., F)`` and those of neighbours that answered, ``(d, ..., F)``."""
    return evaluate_members(layer.operation, layer.parameters, layer.closed, own, heard)


def evaluate_members(
    operation: Operation, parameters: Mapping[str, Any], closed: bool, own: Array, heard: Array
) -> Array:
    """The same for any operation."""
    members = np.concatenate([own[np.newaxis], heard]) if closed else heard
    values = {name: own.dtype.type(value) for name, value in parameters.items()}
    return np.asarray(operation(own[..., np.newaxis, :], np.moveaxis(members, 0, -2), values), own.dtype)


def operation_values(layer: HopMixture, dtype: np.dtype[Any]) -> dict[str, Any]:
    """The parameters of an activation's operation, in the precision of the computation."""
    return {name: dtype.type(value) for name, value in layer.parameters.items()}


# What must hold for a layer to run on agents

DIMENSIONS = {"taps": (3,), "weight": (2,), "bias": (1,), "weights": (1, 2), "slope": (0, 1, 2), "offset": (1, 2)}
"""How many dimensions an array of a layer may have; others are scalars."""


def check_layer(layer: Layer, part: str) -> None:
    """Raise UnsupportedModelError, which calls the layer by the name ``part``, if agents cannot compute it."""
    if layer.kind not in PROGRAMS:
        raise UnsupportedModelError(part, f"agents know the layers {', '.join(PROGRAMS)}, got {layer.kind!r}")
    if isinstance(layer, Activation):
        if (reason := why_not_activation(layer)) is not None:
            raise UnsupportedModelError(part, reason)
        return
    for name, array in layer.arrays().items():
        if array.ndim not in DIMENSIONS.get(name, (0,)) or 0 in array.shape:
            dimensions = " or ".join(map(str, DIMENSIONS.get(name, (0,))))
            raise UnsupportedModelError(part, f"{name} must have {dimensions} dimensions, got the shape {array.shape}")
        if name == "bias" and len(array) != layer.out_features:
            raise UnsupportedModelError(part, f"bias must have {layer.out_features} entries, got {array.shape}")
    if isinstance(layer, Pointwise) and (unfit := pointwise.why_not(layer)):
        raise UnsupportedModelError(part, unfit)
    if isinstance(layer, HopMixture) and (reason := why_not_hop_mixture(layer)) is not None:
        raise UnsupportedModelError(part, reason)


def why_not_activation(layer: Activation) -> str | None:
    """Why agents cannot compute an activation that is known by its name; None if they can."""
    if layer.function not in ACTIVATIONS:
        hint = "; it reads means over all nodes, which no neighbour sends" if layer.pools else ""
        return f"agents know the activations {', '.join(ACTIVATIONS)}, got {layer.function!r}{hint}"
    shapes = {name: tuple(array.shape) for name, array in layer.tensors.items()}
    if layer.function == "max-k":
        kept = layer.options.get("k")
        is_whole = kept is None or (type(kept) is int and kept > 0)
        return None if is_whole and not shapes and layer.rounds == 0 else f"k must be a positive number, got {kept!r}"
    ops, hops, closed = (layer.options.get(name) for name in ("ops", "hops", "closed"))
    if not (isinstance(ops, list) and ops and type(hops) is int and hops > 0 and type(closed) is bool):
        return f"ops, hops and closed must be names, a number and a truth value, got {ops!r}, {hops!r}, {closed!r}"
    wide = () if layer.features is None else (layer.features,)
    if shapes != {"beta": (), "weights": (len(ops), hops, *wide)} or layer.rounds != hops + 1:
        return f"weights must have the shape {(len(ops), hops, *wide)} for {hops + 1} exchanges, got {shapes}"
    unknown = [name for name in ops if name not in OPERATIONS]
    return f"ops must be among {', '.join(OPERATIONS)}, got {unknown[0]!r}" if unknown else None


def why_not_hop_mixture(layer: HopMixture) -> str | None:
    """Why agents cannot compute an activation; None if they can."""
    if layer.reads not in ("shifted", "hops"):
        return f"reads must be 'shifted' or 'hops', got {layer.reads!r}"
    if layer.reads == "hops" and layer.hops > 1:
        return (
            "a localized activation must have one hop to run on agents (more need messages from nodes that are not "
            f"neighbours), got {layer.hops}"
        )
    if {*layer.constants, *layer.log_parameters} != {*layer.operation.parameters}:
        return f"the parameters of {layer.operation.name!r} must be {list(layer.operation.parameters)}"
    return None if layer.operation.is_built_in else why_not_operation(layer)


def why_not_operation(layer: HopMixture) -> str | None:
    """Why an operation that is not graphact's own does not run on NumPy arrays; None if it does."""
    dtype, name = layer.beta.dtype, layer.operation.name
    values = np.linspace(-1, 1, 24, dtype=dtype).reshape(4, 2, 3)
    try:
        with warnings.catch_warnings(action="ignore"):
            for count in (1, 3):
                neighbors = np.moveaxis(values[:count], 0, -2)
                result = layer.operation(values[3, :, np.newaxis], neighbors, operation_values(layer, dtype))
                if not isinstance(result, np.ndarray) or result.shape != (2, 3):
                    came = getattr(result, "shape", type(result).__name__)
                    return f"its operation {name!r} must map NumPy arrays (2, {count}, 3) to (2, 3), got {came}"
    except Exception as error:
        return f"its operation {name!r} does not run on NumPy arrays: {type(error).__name__}: {error}"
    return None
