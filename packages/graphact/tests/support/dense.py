"""The operators of the specification on a dense matrix, in torch float64, with gradients; independent of the package.

Values are chosen by loops over nodes and taken by indexing, so that torch differentiates all of it. Beside a value
stands its scale: the size of the numbers that were added up, relative to which another precision may be off.
"""

import math

import numpy as np
import torch


class Operator:
    """A dense shift operator and the pattern of its edges, ``edges[i, j]``: i hears j.

    Attributes:
        exact: all arithmetic is exact (small multiples of powers of two), so that ties are ties in every precision.
        unclear: set when a selection or a ReLU was so close that rounding decides where a gradient goes.
    """

    def __init__(self, matrix, edges, exact):
        self.matrix, self.edges, self.exact = matrix, edges & ~np.eye(len(edges), dtype=bool), exact
        self.unclear = False

    @property
    def num_nodes(self):
        return len(self.edges)

    def pattern(self, hops, closed):
        """Return the nodes that walks of exactly so many edges lead to; closed ones may rest."""
        step = self.edges | np.eye(self.num_nodes, dtype=bool) if closed else self.edges
        found = step
        for _ in range(hops - 1):
            found = (found.astype(np.float32) @ step.astype(np.float32)) > 0
        return found

    def shift(self, x):
        return self.matrix @ x

    def relu(self, x):
        size = x.detach().abs()
        if not self.exact and bool(((size > 0) & (size < 1e-10 * size.amax())).any() if size.numel() else False):
            self.unclear = True
        return torch.where(x < 0, torch.zeros_like(x), x) if x.isnan().any() else torch.relu(x)

    def pointwise(self, name, x, slope=None, offset=None):
        """A function of each value on its own, written out."""
        match name:
            case "identity":
                return x
            case "leaky-relu":
                return torch.where(x > 0, x, x / 100)
            case "prelu":
                return torch.where(x > 0, x, slope * x)
            case "elu":
                return torch.where(x > 0, x, torch.expm1(torch.where(x > 0, 0.0, x)))
            case "gelu":
                return x * (1 + torch.erf(x / math.sqrt(2))) / 2
            case "silu":
                return x * torch.sigmoid(x)
            case "tanh":
                far = x.abs() > 30  # where it is 1, and its slope 0; the exponential of more may overflow
                return torch.where(far, x.detach().sign(), 1 - 2 / (1 + torch.exp(2 * torch.where(far, 0.0, x))))
            case "abs":
                return torch.where(x < 0, -x, torch.where(x > 0, x, 0 * x))  # of slope 0 at 0
            case "maxout":
                return torch.stack([a * x + b for a, b in zip(slope, offset, strict=True)]).amax(0)

    def select(self, y, pattern, op):
        """The maximum, minimum or lower median over each row of a pattern; 0 over an empty one."""
        flat = y.reshape(math.prod(y.shape[:-2]), *y.shape[-2:])
        values = flat.detach().numpy()
        chosen, empty = np.zeros(values.shape, np.int64), ~pattern.any(1)
        tiny = 1e-9 * (np.abs(values[np.isfinite(values)]).max(initial=0.0) + 1e-300)
        for i in np.flatnonzero(~empty):
            members = np.flatnonzero(pattern[i])
            seen = values[:, members]
            ordered = np.sort(seen, axis=1)
            place = {"max": -1, "min": 0, "median": (len(members) - 1) // 2}[op]
            wanted = ordered[:, [place]]
            missing = np.isnan(seen)
            hit = np.where(missing.any(1, keepdims=True), missing, seen == wanted)
            first = hit.argmax(1)
            chosen[:, i] = members[first]
            with np.errstate(invalid="ignore"):
                near = (np.abs(seen - wanted) <= tiny).sum(1)
            if not self.exact and (near > 1).any():
                self.unclear = True
        taken = flat.gather(1, torch.from_numpy(chosen))
        gone = torch.from_numpy(empty)[:, None]
        return torch.where(gone, torch.zeros_like(taken), taken).reshape(y.shape)

    def spread(self, y, pattern):
        """The sum of squared differences to the members of each row."""
        target, source = (torch.from_numpy(index) for index in np.nonzero(pattern))
        differences = y.index_select(-2, target) - y.index_select(-2, source)
        return torch.zeros_like(y).index_add(-2, target, differences**2)

    def hop(self, y, pattern, op, gamma):
        if op == "kernel":
            return torch.exp(-self.spread(y, pattern) / (2 * gamma**2))
        return self.select(y, pattern, op)

    def activation(self, kind, x, beta, weights, op, gamma, closed):
        """A localized or graph-adaptive activation, weights of shape (K,) or (K, F)."""
        out, y = beta * self.relu(x), x
        for k in range(1, len(weights) + 1):
            y = self.shift(y) if kind == "graph_adaptive" else y
            pattern = self.pattern(1 if kind == "graph_adaptive" else k, closed)
            out = out + weights[k - 1] * self.hop(y, pattern, op, gamma)
        return out

    def filter(self, x, taps):
        """One filter, taps (K + 1,), or a bank, taps (K + 1, F_in, F_out)."""
        out = 0.0
        for tap in taps:
            out = out + (x @ tap if taps.dim() == 3 else tap * x)
            x = self.shift(x)
        return out

    # how large the numbers are, and how far rounding may carry

    def sizes(self, x, hops):
        """The largest of |S|^k |x| for k = 0 .. hops."""
        y, sizes = x.detach().abs(), []
        for _ in range(hops + 1):
            sizes.append(float(y.max()) if y.numel() else 0.0)
            y = self.matrix.detach().abs() @ y
        return sizes

    def is_exact_in_single(self, x, hops):
        """Return whether float32 holds all sums of so many shifts: multiples of a power of two, at most 2^24 of it."""
        if not self.exact:
            return False
        grids = []
        for values in (self.matrix, x):
            grid = 1.0
            while grid > 2.0**-40 and bool((values.detach() % grid != 0).any()):
                grid /= 2
            grids.append(grid)
        return all(size <= 2.0**24 * grids[1] * grids[0] ** k for k, size in enumerate(self.sizes(x, hops)))

    def roundoff(self, eps, hops):
        """The relative error of so many shifts in a precision."""
        degree = int(self.edges.sum(1).max(initial=0))
        return eps * (8 + degree**0.5) * (hops + 1)

    def activation_error(self, kind, x, beta, weights, op, gamma, closed, eps):
        """Return the elementwise error allowed to an activation in a precision."""
        shifts = len(weights) if kind == "graph_adaptive" else 0
        sizes, y = self.sizes(x, shifts), x.detach()
        beta, weights, gamma = abs(float(beta)), weights.detach().abs(), float(gamma)
        error = torch.zeros_like(y) + 4 * eps * beta * sizes[0]
        for k in range(1, len(weights) + 1):
            y = self.shift(y).detach() if shifts else y
            off = self.roundoff(eps, k) * sizes[k if shifts else 0]
            if op == "kernel":
                pattern = self.pattern(1 if shifts else k, closed)
                target, source = (torch.from_numpy(index) for index in np.nonzero(pattern))
                each = (y.index_select(-2, target) - y.index_select(-2, source)).abs()
                each = 4 * each * off + 4 * off**2 + 8 * eps * each**2
                wrong = torch.zeros_like(y).index_add(-2, target, each) / (2 * gamma**2)
                right = self.spread(y, pattern) / (2 * gamma**2)
                term = torch.exp(-(right - wrong).clamp(min=0)) * wrong.clamp(max=1) + 8 * eps
            else:
                term = torch.zeros_like(y) + off
            error = error + weights[k - 1] * (term + 4 * eps * (1 if op == "kernel" else sizes[k if shifts else 0]))
        return error * 2 + torch.finfo(torch.float32).tiny

    def kernel_gradient_error(self, weights, gamma, closed, eps, shifts):
        r"""Return the rounding error of the kernel's gradient by x in a precision, for directions up to 4.

        At y_k, each of the 2 d differences of a node adds a part of at most :math:`|w_k| e^{-1/2} / \gamma`, off by
        d + 8 roundings; :math:`|S^T|^k` multiplies them, however much of the exact parts cancels.
        """
        degree = int(self.pattern(1 if shifts else len(weights), closed).sum(1).max(initial=0))
        if weights.numel() == 0:
            return 0.0
        each = 4 * 2 * degree * (degree + 8) * eps * math.exp(-0.5) / float(gamma)
        total, column = 0.0, torch.ones(self.num_nodes, dtype=torch.float64)
        for weight in weights.detach():
            column = self.matrix.detach().abs().T @ column if shifts else column
            total += each * float(weight.abs().max()) * float(column.max())
        return total
