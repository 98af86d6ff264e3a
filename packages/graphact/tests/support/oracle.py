"""The operators of the specification as plain loops over nodes, in NumPy float64. Shares no code with the package."""

import math

import numpy as np


def neighbors(edges, i, closed):
    """Ascending neighbours of node i; edges[i, j] says that i hears j."""
    return [j for j in range(len(edges)) if (edges[i, j] and j != i) or (closed and j == i)]


def reachable(edges, i, hops, closed):
    """The nodes that walks of exactly `hops` edges from i lead to."""
    front = {i}
    for _ in range(hops):
        front = {j for node in front for j in neighbors(edges, node, closed)}
    return sorted(front)


def choose(values, op):
    """Position of the maximum, minimum or lower median; the first among ties."""
    ordered = sorted(values)
    wanted = {"max": ordered[-1], "min": ordered[0], "median": ordered[(len(ordered) - 1) // 2]}[op]
    return values.index(wanted)


def reduce(y, i, members, op, gamma):
    """f over the members of one neighbourhood of a single-feature signal y."""
    if op == "kernel":
        return math.exp(-sum((y[i] - y[j]) ** 2 for j in members) / (2 * gamma**2))
    if not members:
        return 0.0
    values = [float(y[j]) for j in members]
    return MEANS[op](float(y[i]), values) if op in MEANS else values[choose(values, op)]


def trimmed_mean(values, trim):
    """Without a share of the values at each end, of which one is left at least."""
    cut = min(math.floor(round(trim * len(values), 9)), (len(values) - 1) // 2)
    left = sorted(values)[cut : len(values) - cut]
    return sum(left) / len(left)


def weighted_mean(own, values, width):
    """Weights by the difference to the own value."""
    nearest = min((own - value) ** 2 for value in values)  # which cancels
    weights = [math.exp((nearest - (own - value) ** 2) / (2 * width**2)) for value in values]
    return sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)


MEANS = {  # with the parameters they start from
    "mean": lambda _, values: sum(values) / len(values),
    "log-mean-exp": lambda _, values, t=1.0: t * math.log(sum(math.exp(v / t) for v in values) / len(values)),
    "trimmed-mean": lambda _, values, trim=0.25: trimmed_mean(values, trim),
    "weighted-mean": lambda own, values, width=1.0: weighted_mean(own, values, width),
}


def column_by_column(function, x):
    """Apply a function of a single-feature signal (N,) to every sample and feature of (..., N, F)."""
    flat = x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])
    out = np.empty_like(flat)
    for b in range(flat.shape[0]):
        for f in range(flat.shape[2]):
            out[b, :, f] = function(flat[b, :, f], f)
    return out.reshape(x.shape)


def activation(kind, matrix, edges, x, beta, weights, op, gamma=0.1, closed=False):
    """Localized or graph-adaptive activation, weights of shape (K,) or (K, F)."""

    def one_column(z, f):
        out = beta * np.maximum(z, 0.0)
        y = z
        for k in range(1, len(weights) + 1):
            weight = weights[k - 1] if weights.ndim == 1 else weights[k - 1, f]
            y = matrix @ y
            for i in range(len(z)):
                if kind == "graph_adaptive":
                    term = reduce(y, i, neighbors(edges, i, closed), op, gamma)
                else:
                    term = reduce(z, i, reachable(edges, i, k, closed), op, gamma)
                out[i] = out[i] + weight * term
        return out

    return column_by_column(one_column, x)


def graph_filter(matrix, x, taps):
    """Filter bank with taps (K + 1, F_in, F_out)."""
    power, out = np.eye(len(matrix)), 0.0
    for tap in taps:
        out = out + power @ x @ tap
        power = power @ matrix
    return out


def pointwise(name, x, *arrays):
    """A function of each value on its own, from its definition."""
    functions = {
        "relu": lambda v: max(v, 0.0),
        "identity": lambda v: v,
        "leaky-relu": lambda v: v if v > 0 else v / 100,
        "elu": lambda v: v if v > 0 else math.exp(v) - 1,
        "gelu": lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2,
        "silu": lambda v: v / (1 + math.exp(-v)),
        "tanh": math.tanh,
        "abs": abs,
    }
    if name == "prelu":
        return np.where(x > 0, x, arrays[0] * x)
    if name == "maxout":
        slope, offset = arrays
        return np.max([a * x + b for a, b in zip(slope, offset, strict=True)], axis=0)
    return np.vectorize(functions[name], otypes=[float])(x)
