"""Inference in NumPy: functions of layers that need no neighbour, and programs of those that exchange with them.

Both take the node's value ``(..., F)`` and its row of S; see :mod:`graphact_agents.program`.
"""

from collections.abc import Callable, Sequence

import numpy as np

from graphact_agents import scalar_functions
from graphact_agents.links import ShiftRow
from graphact_agents.messages import Array
from graphact_agents.model import Model, ModelLayer
from graphact_agents.program import Exchange, Program


def infer(model: Model, row: ShiftRow, signal: Array) -> Program[Array]:
    """Return the program of one inference at one node.

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
    return (yield from run_chain(model.layers, x, row))


def run_chain(layers: Sequence[ModelLayer], x: Array, row: ShiftRow) -> Program[Array]:
    """Run layers one after the other."""
    for layer in layers:
        if layer.kind in FUNCTIONS:
            x = FUNCTIONS[layer.kind](layer, x, row)
        else:
            x = yield from PROGRAMS[layer.kind](layer, x, row)
    return x


def run_filter(layer: ModelLayer, x: Array, row: ShiftRow) -> Program[Array]:
    """Form the shift, and the functions of the neighbourhood if the filter has any, from each exchange; mix."""
    taps = layer.arrays["taps"]
    out: Array = x @ taps[0]
    for k, tap in enumerate(taps[1:]):
        heard, weights = row.gather((yield Exchange(x)), x)
        for number in range(len(layer.functions)):
            value = evaluate(layer, number, x, heard)
            out = out + value @ layer.arrays["function_taps"][number, k]
        x = row.shift(x, heard, weights)
        out = out + x @ tap
    return out + layer.arrays["bias"] if "bias" in layer.arrays else out


def run_sum(layer: ModelLayer, x: Array, row: ShiftRow) -> Program[Array]:
    """Run each chain on the same value, one after the other, and add the outputs."""
    total: Array | None = None
    for chain in layer.branches:
        out = yield from run_chain(chain, x, row)
        total = out if total is None else total + out
    return x if total is None else total


def apply_linear(layer: ModelLayer, x: Array, _: ShiftRow) -> Array:
    """Map the node's own value."""
    out: Array = x @ layer.arrays["weight"].T
    return out + layer.arrays["bias"] if "bias" in layer.arrays else out


def run_hop_mixture(layer: ModelLayer, x: Array, row: ShiftRow) -> Program[Array]:
    r"""Exchange, take the functions of the neighbourhood, shift.

    A graph-adaptive activation exchanges :math:`y_0 = x, y_1 = Sx, \ldots, y_K`: the neighbours' values of :math:`y_k`
    give both the functions of the neighbourhood and :math:`y_{k+1}`, so K hops take K + 1 exchanges, with the functions
    of :math:`y_0` or without. A localized one of one hop exchanges x.
    """
    out: Array = layer.arrays["beta"] * np.maximum(x, 0)
    mixing = layer.mixing
    hops = mixing.shape[1]
    if layer.exchanges > hops:
        heard, weights = row.gather((yield Exchange(x)), x)
        x = row.shift(x, heard, weights)
    for hop in range(hops):
        heard, weights = row.gather((yield Exchange(x)), x)
        for number, by_hop in enumerate(mixing):
            out = out + by_hop[hop] * evaluate(layer, number, x, heard)
        if hop + 1 < hops:
            x = row.shift(x, heard, weights)
    return out


def standardize(layer: ModelLayer, x: Array, row: ShiftRow) -> Array:
    """Scale readings; with the mask, a missing one is 0, and features follow that tell which are present."""
    mean, std = find_scaling(layer, row)
    windows = x.reshape(*x.shape[:-1], layer.settings["window"], len(mean))
    scaled: Array = ((windows - mean) / std).reshape(x.shape)
    if not layer.settings["mask"]:
        return scaled
    is_missing = np.isnan(x)
    return np.concatenate([np.where(is_missing, x.dtype.type(0), scaled), (~is_missing).astype(x.dtype)], axis=-1)


def rescale(layer: ModelLayer, x: Array, row: ShiftRow) -> Array:
    """Give outputs in the units of the targets."""
    mean, std = find_scaling(layer, row)
    return x * std + mean


def find_scaling(layer: ModelLayer, row: ShiftRow) -> tuple[Array, Array]:
    """Return mean and standard deviation ``(F,)`` at a node."""
    nodes, mean, std = layer.settings["nodes"], layer.arrays["mean"], layer.arrays["std"]
    if nodes is None:
        return mean, std
    if row.name not in nodes:
        raise ValueError(f"the model has no scaling for the node {row.name!r}: train it with that node's readings")
    place = nodes.index(row.name)
    return mean[place], std[place]


def run_activation(layer: ModelLayer, x: Array, row: ShiftRow) -> Program[Array]:
    """Apply a named activation: ``max-k``, or ``mixture-ga``, a hop mixture of several functions."""
    if layer.settings["function"] == "max-k":
        return keep_largest(layer, x)
    return (yield from run_hop_mixture(layer, x, row))


def keep_largest(layer: ModelLayer, x: Array) -> Array:
    """Keep the largest features, the first among equal ones; NaN counts as the largest."""
    kept = layer.settings["options"].get("k") or -(-x.shape[-1] // 4)
    order = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")
    place = np.argsort(order, axis=-1, kind="stable")
    return np.where(place < kept, x, x.dtype.type(0))


FUNCTIONS: dict[str, Callable[[ModelLayer, Array, ShiftRow], Array]] = {
    "linear": apply_linear,
    "pointwise": lambda layer, x, _: scalar_functions.evaluate(layer, x),
    "standardize": standardize,
    "rescale": rescale,
}
PROGRAMS: dict[str, Callable[[ModelLayer, Array, ShiftRow], Program[Array]]] = {
    "filter": run_filter,
    "adaptive-filter": run_filter,
    "sum": run_sum,
    "hop-mixture": run_hop_mixture,
    "activation": run_activation,
}
"""Functions and programs by the kind of a layer."""


def evaluate(layer: ModelLayer, number: int, own: Array, heard: Array) -> Array:
    """Return a function of a layer over values ``(d, ..., F)`` that were received, and the node's own if it counts."""
    operation, parameters = layer.functions[number]
    members = np.concatenate([own[np.newaxis], heard]) if layer.closed else heard
    return np.asarray(operation(own[..., np.newaxis, :], np.moveaxis(members, 0, -2), parameters), own.dtype)
