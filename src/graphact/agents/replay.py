"""A centralised computation of what agents computed, from their logs: the check of the promise.

Written on dense matrices and plain loops in float64, apart from the code that agents run. A value that the logs do not
determine (its node had crashed) is NaN, so that using it anywhere would show.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from graphact.agents.log import Record, RoundClosed
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.stages import Filter, Mixed, Readout


def answered_links(logs: Sequence[Iterable[Record]], run: int, rounds: int) -> tuple[Array, Array]:
    """Who used whom in a run, from the logs of all nodes.

    Returns:
        ``used`` of shape ``(rounds, N, N)``: i used the value of j; ``closed`` of shape ``(rounds, N)``: i closed the
        round.
    """
    size = len(logs)
    used, closed = np.zeros((rounds, size, size), bool), np.zeros((rounds, size), bool)
    for i, log in enumerate(logs):
        for record in log:
            if isinstance(record, RoundClosed) and record.run == run:
                closed[record.round, i] = True
                used[record.round, i, list(record.used)] = True
    return used, closed


def replay(model: Model, matrix: Array, x: Array, used: Array, closed: Array) -> Array:
    """The outputs of all nodes, computed in one place with the links that answered.

    Args:
        model: the model.
        matrix: S, dense, ``(N, N)``.
        x: the signals, ``(..., N, F)``; NaN at nodes that had none.
        used: who used whom, ``(rounds, N, N)``; see :func:`answered_links`.
        closed: who closed which round, ``(rounds, N)``.
    """
    flat = np.asarray(x, np.float64).reshape(-1, *x.shape[-2:])
    samples = [_sample(model, np.asarray(matrix, np.float64), sample, used, closed) for sample in flat]
    return np.stack(samples).reshape(*x.shape[:-2], *samples[0].shape)


def _sample(model: Model, matrix: Array, x: Array, used: Array, closed: Array) -> Array:
    """One signal ``(N, F)``."""
    at = 0
    for stage in model.stages:
        if isinstance(stage, Filter):
            y, out = x, x @ stage.taps[0]
            for tap in stage.taps[1:]:
                y = _shift(matrix, y, used[at], closed[at])
                out, at = out + y @ tap, at + 1
            x = out if stage.bias is None else out + stage.bias
        elif isinstance(stage, Readout):
            x = np.einsum("nf,of->no", x, stage.weight) + (0 if stage.bias is None else stage.bias)
        elif isinstance(stage, Mixed):
            y, out = x, stage.beta * np.where(x < 0, 0, x)
            for k in range(stage.rounds):
                if k > 0 or not stage.adaptive:
                    term = stage.weights[k - 1 if stage.adaptive else 0]
                    out = out + term * _function(stage, y, used[at], closed[at])
                y, at = _shift(matrix, y, used[at], closed[at]), at + 1
            x = out
        else:
            x = np.where(x < 0, 0, x)
    return x


def _shift(matrix: Array, y: Array, used: Array, closed: Array) -> Array:
    """The shift without the links that did not answer."""
    out = np.full_like(y, np.nan)
    for i in np.flatnonzero(closed):
        out[i] = matrix[i, i] * y[i] + matrix[i, used[i]] @ y[used[i]]
    return out


def _function(stage: Mixed, y: Array, used: Array, closed: Array) -> Array:
    """The function of the neighbourhoods without the links that did not answer."""
    out = np.full_like(y, np.nan)
    for i in np.flatnonzero(closed):
        for f in range(y.shape[1]):
            own, members = y[i, f], [y[j, f] for j in np.flatnonzero(used[i])]
            if stage.op == "kernel":
                out[i, f] = math.exp(-sum((own - value) ** 2 for value in members) / (2 * stage.gamma**2))
                continue
            members = sorted([*members, own] if stage.closed else members)
            chosen = {"max": -1, "min": 0, "median": (len(members) - 1) // 2}[stage.op]
            out[i, f] = members[chosen] if members else 0.0
    return out
