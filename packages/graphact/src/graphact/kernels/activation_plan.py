"""A whole activation, all hops and the mixing, as one function of autograd.

On small graphs autograd, operators and checks take longer for each step than the arithmetic.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph import Graph
from graphact.kernels import reference
from graphact.kernels.autograd import MAX_FUSED_TERMS, aliases, tensors_of
from graphact.kernels.dispatch import implementation, is_differentiated, is_forward_mode, is_traced, requested

Gamma = Any  # a number, a scalar tensor that is trained, or None: the operation has no width
Composed = Callable[[Tensor, Tensor, Tensor, Gamma], Tensor]
MAX_CACHED_PLANS = 64  # for each graph


class ActivationPlan:
    """Evaluation of an activation on signals of one shape, pass by pass, with the functions of a backend.

    A backend may have its own plan for some signals, such as
    :class:`graphact.kernels.numba.small.SmallPlan`. With ``shifted``, the signal of the first term is S x, else x: that
    of an activation with the unshifted term, and of a localized one over one hop.
    """

    keeps_tensors = True  # saved values are tensors tracked by autograd
    stacks = False  # values that pack() returns are one tensor for all hops, else one for each

    def __init__(self, graph: Graph, x: Tensor, op: str, closed: bool, shifted: bool) -> None:
        self.op, self.closed, self.shifted = op, closed, shifted
        self.tensors, self.diagonal, self.backend = tensors_of(graph), graph.diagonal, implementation(x)
        self.max_degree = graph.incoming.max_degree
        self.column = None if graph.diagonal is None else graph.diagonal.detach().unsqueeze(-1)

    def forward(self, x: Tensor, beta: Tensor, weights: Tensor, gamma: Gamma) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the result and the values that the backward pass needs.

        For each hop these are its term, the slots of the selected neighbours (or the signal, for the Gaussian kernel)
        and, if its width is trained, the sums of squared differences.
        """
        hops, terms, kept, sums = weights.size(0), [], [], []
        signal = self._shift(x) if self.shifted else x
        for hop in range(1, hops + 1):
            found = self.backend.neighborhood_functions(
                signal, self.tensors, (self.op,), self.closed, hop < hops, self.max_degree
            )
            if self.op == "kernel":
                sums += [found["kernel"]] if isinstance(gamma, Tensor) else []
                terms.append(self._gaussian(found["kernel"], gamma))
                kept.append(signal)
            else:
                terms.append(found[self.op])
                kept.append(found[f"{self.op} slot"])
            if hop < hops:
                signal = self._add_diagonal(found["shift"], signal)
        mix = (self.backend if hops <= MAX_FUSED_TERMS else reference).mix
        return mix(x, terms, beta, weights), (*terms, *kept, *sums)

    def backward(
        self, grad: Tensor, x: Tensor, beta: Tensor, weights: Tensor, gamma: Gamma, saved: Any, needs_x: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the gradients of x, beta, weights and, if it is trained, gamma."""
        hops = weights.size(0)
        terms, kept, sums = saved[:hops], saved[hops : 2 * hops], saved[2 * hops :]
        mix_backward = (self.backend if hops <= MAX_FUSED_TERMS else reference).mix_backward
        grad_x, grad_terms, grad_beta, grad_weights = mix_backward(grad, x, terms, beta, weights)
        grad_gamma: Tensor | None = None
        grad_signal: Tensor | None = None
        for hop in reversed(range(hops if needs_x or sums else 0)):
            grad_term, grad_following = grad_terms.pop(), grad_signal
            if self.op != "kernel":
                grads = (
                    {self.op: grad_term} if grad_following is None else {self.op: grad_term, "shift": grad_following}
                )
                slots = {f"{self.op} slot": kept[hop]}
                grad_signal = self.backend.neighborhood_functions_backward(grads, slots, self.tensors, self.closed)
                grad_signal = grad_signal if grad_following is None else self._add_diagonal(grad_signal, grad_following)
                continue
            if sums:
                share = (grad_term * terms[hop] * sums[hop]).sum() / gamma**3
                grad_gamma = share if grad_gamma is None else grad_gamma + share
            self._in_place(gaussian_backward, grad_term, terms[hop], gamma)
            lists = (self.tensors.incoming, self.tensors.outgoing)
            grad_signal = self.backend.sum_sq_diff_backward(grad_term, kept[hop], *lists)
            if grad_following is not None:
                self._in_place(Tensor.add_, grad_signal, self._shift_back(grad_following))
        if needs_x and grad_signal is not None:
            self._in_place(Tensor.add_, grad_x, self._shift_back(grad_signal) if self.shifted else grad_signal)
        return grad_x, grad_beta, grad_weights, grad_gamma

    def pack(self, saved: Any) -> list[Tensor]:
        """Return saved values as tensors."""
        return list(saved)

    def unpack(self, packed: Sequence[Tensor]) -> Any:
        """The inverse of :meth:`pack`."""
        return packed

    def _shift(self, signal: Tensor) -> Tensor:
        shifted = self.backend.shift(signal, self.tensors.weight, self.tensors.incoming)
        return self._add_diagonal(shifted, signal)

    def _shift_back(self, grad: Tensor) -> Tensor:
        return self._add_diagonal(self.backend.shift(grad, self.tensors.weight_t, self.tensors.outgoing), grad)

    def _add_diagonal(self, shifted: Tensor, signal: Tensor) -> Tensor:
        if self.column is not None:
            self._in_place(add_own, shifted, self.column, signal)
        return shifted

    def _gaussian(self, sums: Tensor, gamma: Gamma) -> Tensor:
        return torch.exp(sums * (-0.5 / gamma**2))

    def _in_place(self, function: Callable[..., Any], *tensors: Tensor) -> None:
        """Call a function of torch that changes its first argument; recorded plans override this."""
        function(*tensors)


def add_own(total: Tensor, diagonal: Tensor, signal: Tensor) -> None:
    """Add what the diagonal of an operator, a constant column, adds to a shift."""
    total += reference.own_term(diagonal, signal)


def gaussian_backward(grad: Tensor, values: Tensor, gamma: Gamma) -> None:
    """From the gradient of Gaussians to twice that of the sums of squared differences, in place."""
    grad.mul_(values).mul_(-1.0 / gamma**2)


def select_plan(x: Tensor, graph: Graph, op: str, hops: int, closed: bool, shifted: bool) -> ActivationPlan | None:
    """Return the plan that evaluates an activation of ``x`` as one function of autograd, or None.

    There is none where torch traces or transforms, with trained edge weights, in half precision on the CPU, or on the
    reference backend, which torch differentiates by itself.
    """
    if is_traced(x) or is_forward_mode() or graph.weight.requires_grad:
        return None
    plans = _plans.get(graph)
    if plans is None:
        plans = _plans.setdefault(graph, {})
    key = (x.shape, x.dtype, op, hops, closed, shifted, requested(), torch.get_num_threads())
    try:
        return plans[key]
    except KeyError:
        if len(plans) >= MAX_CACHED_PLANS:
            plans.clear()
        found = plans[key] = _make_plan(x, graph, op, hops, closed, shifted)
        return found


_plans: WeakKeyDictionary[Graph, dict[Any, ActivationPlan | None]] = WeakKeyDictionary()


def _make_plan(x: Tensor, graph: Graph, op: str, hops: int, closed: bool, shifted: bool) -> ActivationPlan | None:
    trained = graph.diagonal is not None and graph.diagonal.requires_grad
    backend = implementation(x)
    if x.dtype != graph.dtype or x.dtype not in backend.MIXED_DTYPES or trained or x.numel() == 0:
        return None
    if op == "kernel" and x.dtype in HALF_PRECISION:  # its sums are held in float32
        return None
    kind = None
    if hops <= MAX_FUSED_TERMS and hasattr(backend, "choose_plan"):
        kind = backend.choose_plan(x, graph, op)
    return (kind or ActivationPlan)(graph, x, op, closed, shifted)


def hop_mixture(
    x: Tensor, plan: ActivationPlan, beta: Tensor, weights: Tensor, gamma: Gamma, composed: Composed
) -> Tensor:
    """``beta * ReLU(x) + sum_k weights[k] * f(S^k x)`` or, without ``shifted``, the same with ``f(x)`` for one hop.

    ``composed(x, beta, weights, gamma)`` evaluates it step by step; second derivatives go through it.
    """
    if x._is_zerotensor():
        x = x.clone()
    if is_differentiated(x, beta, weights, gamma):
        return _HopMixture.apply(x, beta, weights, gamma, plan, composed)
    return plan.forward(x, beta, weights, gamma)[0]


class _HopMixture(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, beta: Tensor, weights: Tensor, gamma: Gamma, plan: ActivationPlan, composed: Composed
    ) -> Tensor:
        out, saved = plan.forward(x, beta, weights, gamma)
        ctx.plan, ctx.composed = plan, composed
        ctx.gamma = None if isinstance(gamma, Tensor) else gamma
        # the operator is among them so that torch notices weights that change before the backward pass
        tensors = (x, beta, weights, gamma if ctx.gamma is None else None, plan.tensors.weight, plan.tensors.weight_t)
        if not plan.keeps_tensors:
            ctx.saved, saved = saved, ()
        ctx.save_for_backward(*tensors, plan.diagonal, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, beta, weights, gamma, _, _, _, *saved = ctx.saved_tensors
        gamma = ctx.gamma if gamma is None else gamma
        if torch.is_grad_enabled():  # second derivatives are wanted
            inputs = aliases((x, beta, weights, gamma))
            wanted = [value for value, needed in zip(inputs, ctx.needs_input_grad, strict=False) if needed]
            found = iter(torch.autograd.grad(ctx.composed(*inputs), wanted, grad, create_graph=True))
            return *(next(found) if needed else None for needed in ctx.needs_input_grad[:4]), None, None
        saved = saved if ctx.plan.keeps_tensors else ctx.saved
        if grad._is_zerotensor():
            grad = grad.clone()
        found = ctx.plan.backward(grad, x, beta, weights, gamma, saved, ctx.needs_input_grad[0])
        return *found, None, None
