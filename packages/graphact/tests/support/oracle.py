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


def reduce(y, i, members, op, *parameter):
    """f over the members of one neighbourhood of a single-feature signal y; kernels and some means have a parameter."""
    if op == "kernel":
        (gamma,) = parameter
        return math.exp(-sum((y[i] - y[j]) ** 2 for j in members) / (2 * gamma**2))
    if not members:
        return 0.0
    values = [float(y[j]) for j in members]
    return MEANS[op](float(y[i]), values, *parameter) if op in MEANS else values[choose(values, op)]


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


def mean(_, values):
    return sum(values) / len(values)


MEANS = {  # with the parameters they start from
    "mean": mean,
    "std": lambda _, values: math.sqrt(mean(_, [(value - mean(_, values)) ** 2 for value in values])),
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
            out[b, :, f] = function(flat[b, :, f])
    return out.reshape(x.shape)


def neighborhoods(edges, x, op, *parameter, closed=False, hops=1):
    """f over the neighbourhoods of a signal (..., N, F), or over the nodes that so many hops lead to."""
    lists = [reachable(edges, i, hops, closed) for i in range(len(edges))]
    return column_by_column(lambda y: [reduce(y, i, lists[i], op, *parameter) for i in range(len(y))], x)


def activation(kind, matrix, edges, x, beta, weights, op, gamma=0.1, closed=False, unshifted=False):
    """Localized or graph-adaptive activation, weights of shape (K,) or (K, F), or with a row more for the signal."""
    parameter = (gamma,) if op == "kernel" else ()
    out, y = beta * np.maximum(x, 0.0), x
    for k, weight in enumerate(weights, start=0 if unshifted else 1):
        y = matrix @ y if k else y
        if kind == "graph_adaptive":
            term = neighborhoods(edges, y, op, *parameter, closed=closed)
        else:
            term = neighborhoods(edges, x, op, *parameter, closed=closed, hops=k)
        out = out + weight * term
    return out


def normalized(matrix, kind):
    """A rescaled operator, by its definition; None where sums or eigenvalues nearly cancel."""
    rows, columns = np.abs(matrix).sum(1), np.abs(matrix).sum(0)
    rows, columns = (np.where(sums == 0, 1, sums) for sums in (rows, columns))
    if kind == "symmetric":
        return matrix / np.sqrt(rows[:, None]) / np.sqrt(columns)
    if kind == "random_walk":
        return matrix / rows[:, None]
    if kind == "laplacian":
        return np.diag(matrix.sum(1)) - matrix
    if kind == "gcn":
        looped = matrix + np.diag(np.where(matrix.diagonal() == 0, 1.0, 0.0))
        sums = looped.sum(1)
        across = 1 / np.sqrt(np.where(sums > 0, sums, np.inf))
        return None if np.abs(sums).min() < 1e-3 else looped * across[:, None] * across
    if not matrix.any():
        return matrix
    radius, turned = (np.abs(np.linalg.eigvals(side.astype(np.float64))).max() for side in (matrix, matrix.T))
    return matrix / radius if radius > 1e-3 and np.isclose(radius, turned, rtol=1e-9) else None


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
