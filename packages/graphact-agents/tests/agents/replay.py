"""A centralised computation of what agents computed, from their logs: the check of the promise.

Written on dense matrices and plain loops in float64, apart from the code that agents run. A value that the logs do not
determine (its node had crashed) is NaN, so that using it anywhere would show.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graphact_agents.deployment import Deployment
from graphact_agents.log import Record, RoundClosed
from graphact_agents.messages import Array
from graphact_agents.model import Model, ModelLayer
from graphact_agents.operations import BUILT_IN, NeighborhoodFunction
from graphact_agents.simulation import SimulationOutcome

Answered = Iterator[tuple[Array, Array]]
"""For each round still to come who used whom, ``(N, N)``, and who closed it, ``(N,)``."""


def answered_links(logs: Sequence[Iterable[Record]], run: int, rounds: int) -> tuple[Array, Array]:
    """Return who used whom in a run, ``(rounds, N, N)``, and who closed which round, ``(rounds, N)``, from all logs."""
    size = len(logs)
    used, closed = np.zeros((rounds, size, size), bool), np.zeros((rounds, size), bool)
    for i, log in enumerate(logs):
        for record in log:
            if isinstance(record, RoundClosed) and record.run == run:
                closed[record.round, i] = True
                used[record.round, i, list(record.used)] = True
    return used, closed


def replay_inference(deployments: Sequence[Deployment], signals: Array, outcome: SimulationOutcome) -> Array:
    """The same inferences computed in one place, with the links that answered according to the logs."""
    model, matrix = deployments[0].model, dense_matrix(deployments)
    logs = [log.records for log in outcome.logs]
    answered = [answered_links(logs, run, model.rounds) for run in range(len(signals))]
    return np.stack([replay(model, matrix, x, *each) for x, each in zip(signals, answered, strict=True)])


def replay_complete(deployments: Sequence[Deployment], signals: Array) -> Array:
    """Return what the centralised model gives for signals ``(runs, ..., N, F)``: every link answers."""
    model, count = deployments[0].model, len(deployments)
    used = np.zeros((model.rounds, count, count), bool)
    for i, deployment in enumerate(deployments):
        used[:, i, list(deployment.row.hears)] = True
    return replay(model, dense_matrix(deployments), signals, used, np.ones((model.rounds, count), bool))


def dense_matrix(deployments: Sequence[Deployment]) -> Array:
    """The shift operator whose rows the nodes hold."""
    matrix = np.zeros((len(deployments), len(deployments)))
    for i, deployment in enumerate(deployments):
        matrix[i, list(deployment.row.hears)] = deployment.row.weights
        matrix[i, i] = deployment.row.diagonal
    return matrix


def replay(model: Model, matrix: Array, x: Array, used: Array, closed: Array) -> Array:
    """The outputs of all nodes for signals ``(..., N, F)``, NaN at nodes that had none, and S, dense ``(N, N)``.

    Computed in one place with the links that answered; see :func:`answered_links`.
    """
    samples = []
    for sample in np.asarray(x, np.float64).reshape(-1, *x.shape[-2:]):
        answered = zip(used, closed, strict=True)
        for layer in model.layers:
            sample = _replay_layer(layer, np.asarray(matrix, np.float64), sample, answered)
        samples.append(sample)
    return np.stack(samples).reshape(*x.shape[:-2], *samples[0].shape)


def _replay_layer(layer: ModelLayer, matrix: Array, x: Array, answered: Answered) -> Array:
    """Return a layer's output for one signal ``(N, F)``."""
    arrays, settings = layer.arrays, layer.settings
    if layer.kind == "sum":
        total: Array | float = 0.0
        for chain in layer.branches:
            out = x
            for inner in chain:
                out = _replay_layer(inner, matrix, out, answered)
            total = total + out
        return np.asarray(total)
    if layer.kind == "linear":
        return np.einsum("nf,of->no", x, arrays["weight"]) + arrays.get("bias", 0)
    if layer.kind == "pointwise":
        return _pointwise(layer, x)
    if layer.kind == "standardize":
        mean, std = (np.tile(arrays[name], settings["window"]) for name in ("mean", "std"))
        scaled, is_missing = (x - mean) / std, np.isnan(x)
        return np.hstack([np.where(is_missing, 0, scaled), 1 - is_missing]) if settings["mask"] else scaled
    if layer.kind == "rescale":
        return arrays["mean"] + arrays["std"] * x
    if layer.kind in ("filter", "adaptive-filter"):
        out = x @ arrays["taps"][0]
        for k, tap in enumerate(arrays["taps"][1:]):
            used, ended = next(answered)
            for number, (operation, parameters) in enumerate(layer.functions):
                value = _function(operation, parameters, settings["closed"], x, used, ended)
                out = out + value @ arrays["function_taps"][number, k]
            x = _shift(matrix, x, used, ended)
            out = out + x @ tap
        return out + arrays.get("bias", 0)
    if layer.kind == "activation" and settings["function"] == "max-k":
        return _max_k(x, settings["options"].get("k") or math.ceil(x.shape[1] / 4))
    out = arrays["beta"] * np.where(x < 0, 0, x)
    if layer.kind == "activation":
        closed, weights = settings["options"]["closed"], arrays["weights"]
    else:
        closed, weights = settings["closed"], arrays["weights"][None]
    if layer.exchanges > weights.shape[1]:
        x = _shift(matrix, x, *next(answered))
    for hop in range(weights.shape[1]):
        used, ended = next(answered)
        for (operation, parameters), mixing in zip(layer.functions, weights, strict=True):
            out = out + mixing[hop] * _function(operation, parameters, closed, x, used, ended)
        x = _shift(matrix, x, used, ended)
    return out


def _max_k(x: Array, kept: int) -> Array:
    """Keep the largest features of each row, one row after another."""
    out = np.zeros_like(x)
    for i, row in enumerate(x):
        ranked = sorted((not np.isnan(value), -value, f) for f, value in enumerate(row))[:kept]
        out[i, [f for _, _, f in ranked]] = row[[f for _, _, f in ranked]]
    return out


def _pointwise(layer: ModelLayer, x: Array) -> Array:
    """Apply a function to each value, one value after another."""
    slope, function = layer.arrays.get("slope"), layer.settings["function"]
    if slope is None:
        with np.errstate(invalid="ignore"):  # nodes that did not get so far are NaN
            return np.vectorize(PLAIN_POINTWISE[function], otypes=[float])(x)
    if function == "prelu":
        return np.maximum(x, 0) + slope * np.minimum(x, 0)
    return np.max([a * x + b for a, b in zip(slope, layer.arrays["offset"], strict=True)], axis=0)


def _shift(matrix: Array, y: Array, used: Array, closed: Array) -> Array:
    """The shift without the links that did not answer."""
    out = np.full_like(y, np.nan)
    for i in np.flatnonzero(closed):
        out[i] = matrix[i, i] * y[i] + matrix[i, used[i]] @ y[used[i]]
    return out


def _function(
    operation: NeighborhoodFunction, parameters: Mapping[str, Any], with_own: bool, y: Array, used: Array, closed: Array
) -> Array:
    """The operation over the neighbourhoods without the links that did not answer."""
    out = np.full_like(y, np.nan)
    plain = PLAIN.get(operation.name) if operation in BUILT_IN else None
    for i in np.flatnonzero(closed):
        members = [i, *np.flatnonzero(used[i])] if with_own else list(np.flatnonzero(used[i]))
        for f in range(y.shape[1]):
            if plain is None:
                out[i, f] = operation(y[[i], f, np.newaxis], y[members, f, np.newaxis], parameters).item()
            else:
                out[i, f] = plain(y[i, f], sorted(y[members, f]), **parameters)
    return out


def plain_std(members: Sequence[float]) -> float:
    """Return the population standard deviation."""
    centre = math.fsum(members) / len(members)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in members) / len(members))


PLAIN_POINTWISE: dict[str, Callable[[float], float]] = {
    "relu": lambda v: 0.0 if v < 0 else v,
    "leaky-relu": lambda v: v / 100 if v < 0 else v,
    "elu": lambda v: math.exp(v) - 1 if v < 0 else v,
    "gelu": lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2,
    "silu": lambda v: v / (1 + math.exp(-v)) if v > 0 else v * math.exp(v) / (1 + math.exp(v)),
    "tanh": math.tanh,
    "abs": abs,
}
"""Functions of one value."""
PLAIN: dict[str, Callable[..., float]] = {
    "max": lambda _, members: members[-1] if members else 0.0,
    "min": lambda _, members: members[0] if members else 0.0,
    "median": lambda _, members: members[(len(members) - 1) // 2] if members else 0.0,
    "mean": lambda _, members: math.fsum(members) / len(members) if members else 0.0,
    "std": lambda _, members: plain_std(members) if members else 0.0,
    "kernel": lambda own, members, gamma: math.exp(-sum((own - v) ** 2 for v in members) / (2 * float(gamma) ** 2)),
}
"""graphact's own operations of one value and the sorted values of its neighbours."""
