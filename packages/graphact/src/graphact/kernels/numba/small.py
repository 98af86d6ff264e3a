"""Whole activations of signals so small that one thread handles them: one call of compiled code forward, one backward.

Where a pass takes microseconds, so does every tensor that is made, viewed or checked on the way.
"""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.kernels.autograd import tensors_of
from graphact.kernels.numba.functions import functions_backward_kernel, functions_kernel
from graphact.kernels.numba.launch import Array, Size, flat, helper, indices, kernel, layout_of
from graphact.kernels.numba.median import median_kernel, median_options
from graphact.kernels.numba.products import sum_sq_diff_backward_kernel
from graphact.kernels.reference import slot_dtype

Rows = Any  # what kernels take first: the range of rows, the lists, how far to look ahead, lanes
Sizes = Any  # what they take last: columns, sections, the width of one
ZERO, ONE = np.uint64(0), np.uint64(1)
MAX_GAUSSIANS = 2**15


def choose_plan(x: Tensor, graph: Graph, op: str) -> "type[SmallPlan] | None":
    """Return the plan for signals like ``x`` if they are small: rows are not joined and one thread does all work.

    From some size on, the exponential of torch is faster than the one here, whatever else takes longer.
    """
    layout = layout_of(x)
    fits = not layout.joined and layout.samples == 1 and len(layout.sizes(graph.incoming)[0]) == 1
    return SmallPlan if fits and (op != "kernel" or x.numel() <= MAX_GAUSSIANS) else None


class SmallPlan:
    """Evaluation of an activation on small signals; see :class:`graphact.kernels.activation_plan.ActivationPlan`."""

    keeps_tensors = False
    stacks = True

    def __init__(self, graph: Graph, x: Tensor, op: str, closed: bool, shifted: bool) -> None:
        self.op, self.closed, self.shifted = op, closed, shifted
        self.tensors, self.diagonal = tensors_of(graph), graph.diagonal
        self.layout, self.shape, self.features = layout_of(x), x.shape, x.size(-1)
        self.max_degree = graph.incoming.max_degree
        kept = x.dtype if op == "kernel" else slot_dtype(self.max_degree)
        self.kept = torch.empty(0, dtype=kept, device="cpu").numpy().dtype
        lists = (part for side in self.tensors[:2] for part in (side.rowptr, side.col))
        parts = (*lists, *self.tensors[2:5], *([] if self.diagonal is None else [self.diagonal]))
        self.read = tuple({id(part): part for part in parts}.values())
        self._lay_out()

    def _lay_out(self) -> None:
        """Take the arrays of all tensors, which do not follow one that moves to shared memory."""
        addresses = [*map(Tensor.data_ptr, self.read)]
        incoming, outgoing, *weights, incoming_slot, _ = self.tensors
        (work, forth, self.sizes), (_, back, _) = self.layout.sizes(incoming), self.layout.sizes(outgoing)
        self.forth, self.back = (*work[0], *forth), (*work[0], *back)
        weight, weight_t = map(flat, weights)
        diagonal = weight[:0] if self.diagonal is None else flat(self.diagonal)
        self.operator, self.transposed = (self.shifted, weight, diagonal), (self.shifted, weight_t, diagonal)
        self.dtype = weight.dtype
        median = median_options(self.dtype, self.max_degree) if self.op == "median" else None
        self.chosen = self.closed, median, self.op == "max" or None, self.op == "min" or None
        self.around = indices(incoming.rowptr), flat(incoming_slot)
        self.lists_t = indices(outgoing.rowptr), indices(outgoing.col)
        self.addresses = addresses

    def _follow(self) -> None:
        """Take the arrays again if a tensor has moved."""
        if [*map(Tensor.data_ptr, self.read)] != self.addresses:
            self._lay_out()

    def forward(self, x: Tensor, beta: Tensor, weights: Tensor, gamma: Any) -> tuple[Tensor, Any]:
        """Return the result and the values that the backward pass needs."""
        self._follow()
        own, h = array_of(x), array_of(weights).reshape(weights.size(0), -1)
        out, shape = np.empty(self.shape, self.dtype), (len(h), own.size)
        terms, kept = np.empty(shape, self.dtype), np.empty(shape, self.kept)
        signals = scratch(shape, self.dtype) if gamma is None else np.empty(shape, self.dtype)
        width, mixed = number_of(gamma), (own, array_of(beta), h, signals, terms, out.reshape(-1))
        forward(self.forth, *self.operator, self.chosen, width, *mixed, kept, self.sizes)
        saved = (terms, terms, kept, None) if gamma is None else (signals, terms, None, kept)
        return torch.from_numpy(out), (own, x.data_ptr(), *saved)

    def backward(
        self, grad: Tensor, x: Tensor, beta: Tensor, weights: Tensor, gamma: Any, saved: Any, needs_x: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the gradients of x, beta, weights and, if it is trained, gamma."""
        self._follow()
        own, address, *kept = saved
        if x.data_ptr() != address:  # as in _follow
            own = array_of(x)
        b, h = array_of(beta), array_of(weights).reshape(weights.size(0), -1)
        grad_x, grad_gamma = np.empty(self.shape, self.dtype), np.zeros(1)
        grad_beta, grad_h, sums = np.empty_like(b), np.empty_like(h), np.zeros((len(h) + 1, self.features))
        options = self.closed, number_of(gamma), needs_x
        mixed = array_of(grad), own, b, h, *kept, self.around, self.lists_t
        results = grad_x.reshape(-1), grad_beta, grad_h, grad_gamma, scratch((3, own.size), self.dtype), sums
        backward(self.forth, self.back, *self.transposed, *options, *mixed, *results, self.sizes)
        grad_width = torch.from_numpy(grad_gamma).to(x.dtype).view(()) if isinstance(gamma, Tensor) else None
        grad_weights = torch.from_numpy(grad_h).view(weights.shape)
        return torch.from_numpy(grad_x), torch.from_numpy(grad_beta).view(()), grad_weights, grad_width

    def pack(self, saved: Any) -> list[Tensor]:
        """Return saved values as tensors."""
        _, _, signals, terms, slots, distances = saved
        kept = [terms, slots] if distances is None else [terms, signals, distances]
        return [torch.from_numpy(part).view(len(part), *self.shape) for part in kept]

    def unpack(self, packed: Sequence[Tensor]) -> Any:
        """The inverse of :meth:`pack`."""
        terms, kept, *distances = (array_of(part).reshape(len(part), -1) for part in packed)
        if self.op == "kernel":
            return None, 0, kept, terms, None, distances[0] if distances else terms
        return None, 0, terms, terms, kept, None


def array_of(tensor: Tensor) -> Array:
    """The numbers of a tensor."""
    return tensor.detach().contiguous().numpy().reshape(-1)


def number_of(gamma: Any) -> float | None:
    """The width of a Gaussian as a number."""
    return None if gamma is None else float(gamma)


def scratch(shape: tuple[int, int], dtype: Any) -> Array:
    """Memory of this thread for what does not outlive a call: new memory costs more than the arithmetic on it."""
    size = shape[0] * shape[1]
    if size * dtype.itemsize > _memory.bytes.size:
        _memory.bytes = np.empty(size * dtype.itemsize, np.uint8)
    return _memory.bytes[: size * dtype.itemsize].view(dtype).reshape(shape)


class _Memory(threading.local):
    def __init__(self) -> None:
        self.bytes = np.empty(0, np.uint8)


_memory = _Memory()


@kernel
def shift_signal(rows: Rows, weight: Array, diagonal: Array, signal: Array, out: Array, sizes: Sizes) -> None:
    """``S x`` or, with the lists and weights of the other direction, its adjoint."""
    results = out, None, None, None, None, None, None, None
    functions_kernel(*rows, True, weight, False, False, signal, *results, *sizes)
    add_diagonal(diagonal, signal, out)


@kernel
def add_diagonal(diagonal: Array, signal: Array, shifted: Array) -> None:
    """Let the diagonal of the operator, if it has one, join a shift, as ``own_term`` of the reference does."""
    nodes = np.uint64(diagonal.size)
    columns = np.uint64(signal.size) // max(nodes, ONE)
    for i in range(ZERO, nodes):
        if diagonal[i] != 0:
            for at in range(i * columns, (i + ONE) * columns):
                shifted[at] += diagonal[i] * signal[at]


@kernel
def mix_rows(x: Array, beta: Array, weights: Array, terms: Array, out: Array, columns: Size) -> None:
    """``out = beta ReLU(x) + sum_k weights[k] terms[k]``; weights ``(K, F)``, or ``(K, 1)`` if features share them."""
    zero, numbers = x.dtype.type(0), np.uint64(x.size)
    for at in range(ZERO, numbers):
        out[at] = beta[0] * (zero if x[at] <= 0 else x[at])
    for hop in range(len(terms)):
        term = terms[hop]
        if weights.shape[1] == 1:
            for at in range(ZERO, numbers):
                out[at] += weights[hop, 0] * term[at]
            continue
        for row in range(ZERO, numbers, columns):
            for c in range(ZERO, columns):
                out[row + c] += weights[hop, c] * term[row + c]


@kernel
def mix_rows_backward(
    grad: Array, x: Array, beta: Array, terms: Array, grad_x: Array, grad_beta: Array, grad_weights: Array, sums: Array
) -> None:
    """The gradients of x, beta and weights; those of coefficients are summed in float64."""
    zero, numbers, columns = x.dtype.type(0), np.uint64(x.size), np.uint64(sums.shape[1])
    for row in range(ZERO, numbers, columns):
        for c in range(ZERO, columns):
            g, own = grad[row + c], x[row + c]
            grad_x[row + c] = zero if own <= 0 else beta[0] * g
            sums[0, c] += g * (zero if own <= 0 else own)
    for hop in range(len(terms)):
        term, total = terms[hop], sums[hop + 1]
        for row in range(ZERO, numbers, columns):
            for c in range(ZERO, columns):
                total[c] += grad[row + c] * term[row + c]
    for k in range(len(sums)):
        total_of_all = 0.0
        for c in range(ZERO, columns):
            total_of_all += sums[k, c]
            if k > 0 and grad_weights.shape[1] > 1:
                grad_weights[k - 1, c] = sums[k, c]
        if k == 0:
            grad_beta[0] = total_of_all
        elif grad_weights.shape[1] == 1:
            grad_weights[k - 1, 0] = total_of_all


@kernel
def scale_rows(grad: Array, weights: Array, out: Array, columns: Size) -> None:
    """``out = weights * grad``, the weights of one hop."""
    if weights.size == 1:
        for at in range(ZERO, np.uint64(grad.size)):
            out[at] = weights[0] * grad[at]
        return
    for row in range(ZERO, np.uint64(grad.size), columns):
        for c in range(ZERO, columns):
            out[row + c] = weights[c] * grad[row + c]


@kernel
def add_to(out: Array, more: Array) -> None:
    """``out += more``."""
    for at in range(ZERO, np.uint64(out.size)):
        out[at] += more[at]


@kernel
def forward(
    rows: Rows, shifted: bool, weight: Array, diagonal: Array, chosen: Any, gamma: float | None, x: Array, beta: Array,
    h: Array, signals: Array, terms: Array, out: Array, kept: Array, sizes: Sizes
) -> None:  # fmt: skip
    """Hop by hop a function of the neighbours' values of ``S^k x``, and what its gradient needs; then the mixture."""
    if shifted:
        shift_signal(rows, weight, diagonal, x, signals[0], sizes)
    for hop in range(len(h)):
        again, following = hop + 1 < len(h), signals[(hop + 1) % len(h)]
        signal = signals[hop] if shifted or hop > 0 else x
        _evaluate(rows, again, weight, *chosen, gamma, signal, terms[hop], kept[hop], following, sizes)
        if again:
            add_diagonal(diagonal, signal, following)
    mix_rows(x, beta, h, terms, out, sizes[0])


@helper
def _evaluate(
    rows: Rows, again: bool, weight: Array, closed: bool, median: Any, largest: bool | None, smallest: bool | None,
    gamma: float | None, signal: Array, term: Array, kept: Array, following: Array, sizes: Sizes
) -> None:  # fmt: skip
    """One hop, with its slots or, for the Gaussian kernel, its sums of squared differences in ``kept``.

    All but one of median, largest, smallest and gamma are None, and only what belongs to that one is compiled.
    """
    if median is not None:
        median_kernel(*rows, again, weight, *median, closed, False, signal, term, kept, following, *sizes)
    around = again, weight, closed, False, signal, following
    if largest is not None:
        functions_kernel(*rows, *around, term, None, None, None, None, kept, None, *sizes)
    if smallest is not None:
        functions_kernel(*rows, *around, None, term, None, None, None, None, kept, *sizes)
    if gamma is not None:
        functions_kernel(*rows, *around, None, None, None, None, kept, None, None, *sizes)
        slope = signal.dtype.type(-0.5 / gamma**2)
        for at in range(ZERO, np.uint64(signal.size)):
            term[at] = np.exp(slope * kept[at])


@kernel
def backward(
    rows: Rows, rows_t: Rows, shifted: bool, weight_t: Array, diagonal: Array, closed: bool, gamma: float | None,
    needs_x: bool, grad: Array, x: Array, beta: Array, h: Array, signals: Array, terms: Array,
    slots: Array | None, distances: Array | None, around: Any, lists_t: Any, grad_x: Array, grad_beta: Array,
    grad_h: Array, grad_gamma: Array, scratch: Array, sums: Array, sizes: Sizes
) -> None:  # fmt: skip
    """Gradients of an activation, from the last hop to the first; either slots or distances are None."""
    mix_rows_backward(grad, x, beta, terms, grad_x, grad_beta, grad_h, sums)
    grad_term, grad_signal, grad_following = scratch[0], scratch[1], scratch[2]
    hops = len(h) if needs_x or distances is not None else 0
    for hop in range(hops - 1, -1, -1):
        again, operator = hop + 1 < len(h), (weight_t, diagonal)
        scale_rows(grad, h[hop], grad_term, sizes[0])
        gradients = grad_term, grad_following, grad_signal
        _selection_backward(rows_t, again, *operator, closed, slots, hop, *around, *gradients, sizes)
        signal = signals[hop] if shifted or hop > 0 else x
        _gaussian_backward(
            rows, rows_t, again, *operator, gamma, signal, terms[hop], distances, hop, *lists_t, *gradients, grad_gamma,
            sizes
        )  # fmt: skip
        grad_signal, grad_following = grad_following, grad_signal
    if needs_x:
        if shifted:
            shift_signal(rows_t, weight_t, diagonal, grad_following, grad_signal, sizes)
            grad_following = grad_signal
        add_to(grad_x, grad_following)


@helper
def _selection_backward(
    rows_t: Rows, again: bool, weight_t: Array, diagonal: Array, closed: bool, slots: Array | None, hop: int,
    ends: Array, incoming_slot: Array, grad_term: Array, grad_following: Array, grad_signal: Array, sizes: Sizes
) -> None:  # fmt: skip
    """The gradient of one hop of a selection, with that of the signal that follows."""
    if slots is not None:
        read = grad_following, slots[hop], grad_term, None, None, None, None, None, None, None, None
        around = ends, again, weight_t, incoming_slot, closed
        functions_backward_kernel(*rows_t, *around, *read, grad_signal, *sizes)
        if again:
            add_diagonal(diagonal, grad_following, grad_signal)


@helper
def _gaussian_backward(
    rows: Rows, rows_t: Rows, again: bool, weight_t: Array, diagonal: Array, gamma: float | None, signal: Array,
    term: Array, distances: Any, hop: int, rowptr_t: Array, col_t: Array, grad_term: Array,
    grad_following: Array, grad_signal: Array, grad_gamma: Array, sizes: Sizes
) -> None:  # fmt: skip
    """The same for the Gaussian kernel, and the gradient of its width."""
    if gamma is not None:
        slope, total, distance = signal.dtype.type(-1.0 / gamma**2), 0.0, distances[hop]
        for at in range(ZERO, np.uint64(signal.size)):
            grad_term[at] *= term[at]
            total += grad_term[at] * distance[at]
            grad_term[at] *= slope
        grad_gamma[0] += total / gamma**3
        sum_sq_diff_backward_kernel(*rows, rowptr_t, col_t, grad_term, signal, grad_signal, *sizes)
        if again:
            shift_signal(rows_t, weight_t, diagonal, grad_following, grad_term, sizes)
            add_to(grad_signal, grad_term)
