"""Differentiable passes over the neighbours: implementation, shape and gradient of each.

A backward pass is made of the same operations, so gradients have gradients. See `reference.py` for what each computes;
the functions at the end are what the layers above call.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph import Graph, Neighborhoods
from graphact.graph.eager import may_have_derivative
from graphact.graph.neighborhoods import MAX_DEGREE_OF_ONE_LAUNCH
from graphact.kernels import reference
from graphact.kernels.dispatch import (
    implementation,
    is_differentiated,
    is_forward_mode,
    is_inlined,
    is_traced,
    materialized,
    takes_handles,
)
from graphact.kernels.graph_tensors import CSRLists, EdgeLists, GraphTensors, Lists
from graphact.kernels.ops import KernelOp
from graphact.kernels.reference import (
    FUNCTIONS,
    RESULTS,
    SELECTIONS,
    SLOTS,
    accumulation_dtype,
    first_given,
    gather_selected,
    nodes_at,
    num_members,
    safe_ratio,
    wanted_results,
)

Gradients = tuple[Tensor | None, ...]
MAX_NODES = 2**31 - 1
MAX_FUSED_TERMS = 2  # of a mixing step in one pass


class Shift(KernelOp, name="shift"):
    """The adjoint of a shift is the shift with the transposed operator."""

    schema = "(Tensor x, Tensor weight, Tensor weight_t, Tensor[] lists) -> Tensor"
    signals, bundle, linear = 1, (EdgeLists, 3), ((0,), (1, 2))

    @staticmethod
    def run(x: Tensor, weight: Tensor, weight_t: Tensor, lists: EdgeLists) -> Tensor:
        return implementation(x).shift(x, weight, lists.incoming)

    @classmethod
    def batched(cls, info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        """Signals with weights of their own, as derivatives by weights need them, come one by one."""
        if in_dims[1] is None and in_dims[2] is None:
            return super().batched(info, in_dims, *inputs)
        operators = zip(*cls.batch_first(info, in_dims, inputs, 3), strict=True)
        return torch.stack([cls.operator(*operator, inputs[3]) for operator in operators]), 0

    @staticmethod
    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, weight_t, lists = inputs
        Shift.save_tensors(ctx, lists, x if ctx.needs_input_grad[1] else None, weight, weight_t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        x, weight, weight_t, lists = Shift.load_saved(ctx)
        grad_x = Shift.apply(grad, weight_t, weight, lists.transposed) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return grad_x, None
        return grad_x, ShiftWeightGrad.apply(grad, x, lists.incoming).to(weight.dtype)


class ShiftWeightGrad(KernelOp, name="shift_weight_grad"):
    """The gradient of a shift with respect to the weights."""

    schema = "(Tensor grad, Tensor x, Tensor[] lists) -> Tensor"
    signals, bundle, linear = 2, (CSRLists, 2), ((0,), (1,))

    @staticmethod
    def run(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
        return implementation(x).shift_weight_grad(grad, x, lists)

    @staticmethod
    def fake(grad: Tensor, x: Tensor, lists: list[Tensor]) -> Tensor:
        return x.new_empty(CSRLists.from_flat(lists).col.shape, dtype=accumulation_dtype(x.dtype))

    @classmethod
    def batched(cls, info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        """A result has no batch dimension, so signals come one by one."""
        signals = zip(*cls.batch_first(info, in_dims, inputs), strict=True)
        return torch.stack([cls.operator(grad, x, inputs[2]) for grad, x in signals]), 0

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Gradients:
        """Rarely needed (second derivatives with respect to edge weights), so edge by edge in plain torch."""
        grad, x, lists = ShiftWeightGrad.load_saved(ctx)
        nodes = torch.arange(x.size(-2), device=x.device)
        rows = nodes.repeat_interleave(lists.rowptr.diff(), output_size=lists.col.numel())
        weight = direction.unsqueeze(-1)
        grad_grad = torch.zeros_like(x).index_add(-2, rows, weight * x.index_select(-2, lists.col))
        grad_x = torch.zeros_like(x).index_add(-2, lists.col, weight * grad.index_select(-2, rows))
        return grad_grad, grad_x


class Select(KernelOp, name="select"):
    """The gradient of a selected value goes to the node that it comes from."""

    schema = "(Tensor x, Tensor? source_index, Tensor[] lists, str op, bool closed) -> (Tensor, Tensor)"
    signals, bundle = 2, (CSRLists, 2)

    @staticmethod
    def run(x: Tensor, source_index: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
        return implementation(x).select(x, source_index, lists, op, closed)

    @staticmethod
    def fake(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int32)

    @staticmethod
    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.set_materialize_grads(False)  # else the indices would get a gradient of zeros as large as the signal
        ctx.mark_non_differentiable(output[1])
        Select.save_tensors(ctx, None, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: Any) -> Gradients:
        (selected,) = Select.load_saved(ctx)
        return (None if grad is None else ScatterSelected.apply(grad, selected),)

    @staticmethod
    def jvp(inputs: tuple[Any, ...], output: tuple[Tensor, Tensor], tangents: tuple[Any, ...]) -> Gradients:
        return gather_selected(tangents[0], output[1], 0.0), None


class ScatterSelected(KernelOp, name="scatter_selected"):
    """Its adjoint gathers."""

    schema = "(Tensor grad, Tensor selected) -> Tensor"
    signals, linear = 2, ((0,),)

    @staticmethod
    def run(grad: Tensor, selected: Tensor) -> Tensor:
        return implementation(grad).scatter_selected(grad, selected)

    @staticmethod
    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ScatterSelected.save_tensors(ctx, None, inputs[1])

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Gradients:
        (selected,) = ScatterSelected.load_saved(ctx)
        return (gather_selected(direction, selected, 0.0),)


class SumSqDiff(KernelOp, name="sum_sq_diff"):
    """The gradient of a squared difference flows to both ends of the edge."""

    schema = "(Tensor x, Tensor[] lists) -> Tensor"
    signals, bundle = 1, (EdgeLists, 1)

    @staticmethod
    def run(x: Tensor, lists: EdgeLists) -> Tensor:
        return implementation(x).sum_sq_diff(x, lists.incoming)

    @staticmethod
    def fake(x: Tensor, _: Any) -> Tensor:
        return x.new_empty(x.shape, dtype=accumulation_dtype(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        return (2 * SumSqDiffBackward.apply(grad, *SumSqDiff.load_saved(ctx)),)

    @staticmethod
    def jvp(inputs: tuple[Any, ...], output: Tensor, tangents: tuple[Any, ...]) -> Tensor:
        return 2 * SumProducts.apply(inputs[0], tangents[0], inputs[1])


class SumSqDiffBackward(KernelOp, name="sum_sq_diff_backward"):
    """Bilinear in both signals; its own gradients are inner products of differences, and itself again."""

    schema = "(Tensor grad, Tensor x, Tensor[] lists) -> Tensor"
    signals, bundle, linear = 2, (EdgeLists, 2), ((0,), (1,))

    @staticmethod
    def run(grad: Tensor, x: Tensor, lists: EdgeLists) -> Tensor:
        return implementation(x).sum_sq_diff_backward(grad, x, *lists)

    @staticmethod
    def fake(grad: Tensor, x: Tensor, _: Any) -> Tensor:
        return x.new_empty(x.shape)

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Gradients:
        grad, x, lists = SumSqDiffBackward.load_saved(ctx)
        return SumProducts.apply(x, direction, lists), SumSqDiffBackward.apply(grad, direction, lists)


class SumProducts(KernelOp, name="sum_products"):
    """Bilinear and symmetric; the gradient of each signal is that of squared differences, taken at the other one."""

    schema = "(Tensor x, Tensor other, Tensor[] lists) -> Tensor"
    signals, bundle, linear = 2, (EdgeLists, 2), ((0,), (1,))

    @staticmethod
    def run(x: Tensor, other: Tensor, lists: EdgeLists) -> Tensor:
        return implementation(x).sum_products(x, other, lists.incoming)

    @staticmethod
    def fake(x: Tensor, *_: Any) -> Tensor:
        return x.new_empty(x.shape, dtype=accumulation_dtype(x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        x, other, lists = SumProducts.load_saved(ctx)
        return SumSqDiffBackward.apply(grad, other, lists), SumSqDiffBackward.apply(grad, x, lists)


class NeighborhoodFunctions(KernelOp, name="neighborhood_functions"):
    """Several functions of the neighbours' values and the shift of one signal, so its gradient is a sum.

    The operator returns all `RESULTS`; those that are not requested are empty.
    """

    schema = (
        "(Tensor x, Tensor[] graph, str ops, bool closed, bool shifting, int max_degree) -> "
        "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    )
    signals, bundle = 1, (GraphTensors, 1)

    @staticmethod
    def run(x: Tensor, graph: GraphTensors, ops: str, *options: Any) -> tuple[Tensor, ...]:
        return _completed(x, implementation(x).neighborhood_functions(x, graph, names_of(ops), *options))

    @staticmethod
    def fake(x: Tensor, _: Any, ops: str, closed: bool, shifting: bool, max_degree: int) -> tuple[Tensor, ...]:
        types = wanted_results(x, names_of(ops), shifting, max_degree)
        return _completed(x, {name: x.new_empty(x.shape, dtype=dtype) for name, dtype in types.items()})

    @staticmethod
    def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, graph, ops, ctx.closed, shifting, _ = inputs
        ctx.wanted, ctx.dtype = wanted_results(x, names_of(ops), shifting, MAX_NODES), x.dtype
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[-len(SLOTS) :])
        saved = {**dict(zip(RESULTS, output, strict=True)), "x": x}
        needed = {name for name in SLOTS if name in ctx.wanted}
        needed |= {"mean", "std", "x"} if "std" in ctx.wanted else {"x"} if "kernel" in ctx.wanted else set()
        NeighborhoodFunctions.save_tensors(ctx, graph, *(saved[name] if name in needed else None for name in SAVED))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Gradients:
        *tensors, graph = NeighborhoodFunctions.load_saved(ctx)
        given = {name: grad for name, grad in zip(RESULTS, grads, strict=True) if name in ctx.wanted}
        slots = [slot if given.get(op) is not None else None for op, slot in zip(SELECTIONS, tensors, strict=False)]
        moments = (None, None, None) if given.get("std") is None else tensors[len(SLOTS) :]
        parts = []
        if any(given.get(name) is not None for name in GATHERED):
            grads = tuple(given.get(name) for name in GATHERED)
            parts.append(NeighborhoodFunctionsBackward.apply(*grads, *slots, *moments, graph, ctx.closed).to(ctx.dtype))
        if given.get("kernel") is not None:
            parts.append(2 * SumSqDiffBackward.apply(given["kernel"], tensors[-1], graph.lists))
        return (sum(parts[1:], parts[0]) if parts else None,)

    @staticmethod
    def jvp(inputs: tuple[Any, ...], output: tuple[Tensor, ...], tangents: tuple[Any, ...]) -> Gradients:
        (x, graph, ops, closed, shifting, _), tangent = inputs, tangents[0]
        held, wanted = dict(zip(RESULTS, output, strict=True)), wanted_results(x, names_of(ops), shifting, MAX_NODES)
        found = {name: held[name].new_empty(0) for name in RESULTS[: -len(SLOTS)]}  # torch refuses None for numbers
        if shifting:
            found["shift"] = Shift.apply(tangent, graph.weight, graph.weight_t, graph.lists)
        for op in SELECTIONS:
            if op in wanted:
                selected = nodes_at(held[f"{op} slot"], graph.incoming, closed)
                found[op] = gather_selected(tangent, selected, 0.0)
        if "mean" in wanted:
            total, products = _sums_of_products(tangent, x, graph, closed, "std" in wanted)
            count = num_members(graph.incoming, closed)
            found["mean"] = total / count
            if "std" in wanted:
                found["std"] = safe_ratio((products - held["mean"] * total) / count, held["std"])
        if "kernel" in wanted:
            found["kernel"] = 2 * SumProducts.apply(x, tangent, graph.lists)
        return *found.values(), *[None] * len(SLOTS)


GATHERED = RESULTS[:6]  # those whose gradients NeighborhoodFunctionsBackward takes; the one of "kernel" is apart
SAVED = (*SLOTS, "mean", "std", "x")


def names_of(ops: str) -> list[str]:
    """The names in a list of them."""
    return ops.split(",") if ops else []


def _completed(x: Tensor, found: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The results in order, with empty tensors for those that were not found."""
    wide = accumulation_dtype(x.dtype)
    kinds = dict.fromkeys(RESULTS, x.dtype) | dict.fromkeys(("mean", "std", "kernel"), wide)
    kinds |= dict.fromkeys(SLOTS, torch.uint8)
    return tuple(found[name] if name in found else x.new_empty(0, dtype=dtype) for name, dtype in kinds.items())


class NeighborhoodFunctionsBackward(KernelOp, name="neighborhood_functions_backward"):
    """Linear in all gradients; with that of the standard deviation it depends on the signal and its moments, too."""

    schema = (
        "(Tensor? grad_shifted, Tensor? grad_max, Tensor? grad_min, Tensor? grad_median, Tensor? grad_mean, "
        "Tensor? grad_std, Tensor? max_slot, Tensor? min_slot, Tensor? median_slot, Tensor? mean, Tensor? std, "
        "Tensor? x, Tensor[] graph, bool closed) -> Tensor"
    )
    signals, bundle = 12, (GraphTensors, 12)

    @staticmethod
    def run(*inputs: Any) -> Tensor:
        grads, saved = _named_inputs(inputs)
        return implementation(first_given(grads, saved)).neighborhood_functions_backward(grads, saved, *inputs[12:])

    @staticmethod
    def fake(*inputs: Any) -> Tensor:
        given = first_given(*_named_inputs(inputs))
        return given.new_empty(given.shape)

    @staticmethod
    def save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        *tensors, graph, ctx.closed = inputs
        ctx.given = [grad is not None for grad in tensors[:6]]
        ctx.dtypes = [None if tensor is None else tensor.dtype for tensor in tensors]
        NeighborhoodFunctionsBackward.save_tensors(ctx, graph, *tensors[5:])

    @staticmethod
    def backward(ctx: Any, direction: Tensor) -> Gradients:
        grad_std, *slots, mean, std, x, graph = NeighborhoodFunctionsBackward.load_saved(ctx)
        found: list[Tensor | None] = [None] * 12
        if ctx.given[0]:
            found[0] = Shift.apply(direction, graph.weight, graph.weight_t, graph.lists)
        for at, slot in enumerate(slots):
            if slot is not None:
                found[1 + at] = gather_selected(direction, nodes_at(slot, graph.incoming, ctx.closed), 0.0)
        if ctx.given[4] or ctx.given[5]:
            count = num_members(graph.incoming, ctx.closed)
            wide = direction.to(accumulation_dtype(direction.dtype))
            total, products = _sums_of_products(wide, x, graph, ctx.closed, ctx.given[5])
            found[4] = total / count if ctx.given[4] else None
        if ctx.given[5]:
            scale, sums = safe_ratio(grad_std / count, std), products - mean * total
            found[5], found[9] = safe_ratio(sums / count, std), -scale * total
            found[10] = -safe_ratio(scale * sums, std)
            found[11] = wide * _sum_members(scale, graph.lists.transposed, ctx.closed)
        return tuple(None if grad is None else grad.to(dtype) for grad, dtype in zip(found, ctx.dtypes, strict=True))

    @classmethod
    def jvp(cls, inputs: tuple[Any, ...], _: Any, tangents: tuple[Any, ...]) -> Any:
        grads, mean, std, x = list(tangents[:6]), *inputs[9:12]
        if tangents[10] is not None:
            change = -safe_ratio(inputs[5] * tangents[10], std)
            grads[5] = change if grads[5] is None else grads[5] + change
        terms = []
        if any(grad is not None for grad in grads):
            slots = [None if grad is None else slot for grad, slot in zip(grads[1:4], inputs[6:9], strict=True)]
            moments = (None, None, None) if grads[5] is None else (mean, std, x)
            terms.append(cls.apply(*grads, *slots, *moments, *inputs[12:]))
        if tangents[9] is not None or tangents[11] is not None:
            center, signal = (
                torch.zeros_like(one) if two is None else two for one, two in ((mean, tangents[9]), (x, tangents[11]))
            )
            terms.append(cls.apply(*[None] * 5, inputs[5], *[None] * 3, center, std, signal, *inputs[12:]))
        return sum(terms[1:], terms[0]) if terms else None


def _named_inputs(inputs: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The gradients and the saved tensors among the inputs of NeighborhoodFunctionsBackward."""
    named = list(zip((*GATHERED, *SAVED), inputs, strict=False))
    grads, saved = named[: len(GATHERED)], named[len(GATHERED) :]
    return (
        {name: grad for name, grad in grads if grad is not None},
        {name: tensor for name, tensor in saved if tensor is not None},
    )


def _sum_members(x: Tensor, lists: EdgeLists, closed: bool) -> Tensor:
    """The sum over each neighbourhood, weights ignored."""
    unit = x.new_ones(lists.incoming.col.shape)
    total = Shift.apply(x, unit, unit, lists)
    return total + x if closed else total


def _sums_of_products(
    x: Tensor, other: Tensor | None, graph: GraphTensors, closed: bool, is_wanted: bool
) -> tuple[Tensor, Tensor]:
    """The sums of x and, if they are wanted, of ``x * other`` over each neighbourhood, in at least float32."""
    wide = x.to(accumulation_dtype(x.dtype))
    total = _sum_members(wide, graph.lists, closed)
    return total, _sum_members(wide * other, graph.lists, closed) if is_wanted and other is not None else total


def shift(x: Tensor, graph: Graph) -> Tensor:
    """The off-diagonal part of ``S x``; edge weights get their gradient."""
    if takes_handles(graph) and not graph.weight.requires_grad:
        if is_inlined(x, graph):
            return _inlined_functions(x, graph, "", False, True)["shift"]
        return NeighborhoodFunctions.apply(x, tensors_of(graph), "", False, True, MAX_NODES)[0]
    return Shift.apply(x, graph.weight, graph.outgoing_weight, EdgeLists(graph.incoming, graph.outgoing))


def select(
    x: Tensor, source_index: Tensor | None, lists: Neighborhoods, op: str, closed: bool
) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    return Select.apply(x, source_index, lists.key.size(0) if takes_handles(lists) else lists, op, closed)


def sum_sq_diff(x: Tensor, incoming: Neighborhoods, outgoing: Neighborhoods) -> Tensor:
    """See :func:`graphact.kernels.reference.sum_sq_diff`."""
    lists: Any = (incoming, outgoing)
    if takes_handles(incoming) and takes_handles(outgoing):
        lists = (incoming.key.size(0), outgoing.key.size(0))
    return SumSqDiff.apply(x, EdgeLists(*lists))


def neighborhood_functions(
    x: Tensor, graph: Graph, ops: Sequence[str], shift: bool, closed: bool = False
) -> tuple[Tensor, ...]:
    """Several functions of each neighbourhood in one pass over the neighbours, preceded by ``S x`` if it is wanted.

    A pass of its own gives the shift where edge weights are trained, and where a diagonal joins it in half precision.

    Args:
        x: signal ``(..., N, F)``.
        graph: the graph, whose weights and diagonal concern the shift alone.
        ops: names among ``"max"``, ``"min"``, ``"median"`` (the lower one), ``"mean"``, ``"std"`` (the population
            standard deviation) and ``"kernel"`` (the sum of squared differences to the node, in at least float32). All
            are 0 over an empty neighbourhood.
        shift: whether the shift is wanted.
        closed: count a node among its neighbours.

    Returns:
        ``S x`` if it is wanted, then the functions in the order of ``ops``, each of the shape of x.

    Raises:
        ValueError: ops holds another name.
    """
    unknown = [op for op in ops if op not in FUNCTIONS]
    if unknown:
        raise ValueError(f"ops must be names among {', '.join(FUNCTIONS)}, got {unknown[0]!r}")
    is_fused = shift and len(ops) > 0 and not needs_own_shift(x, graph)
    results: dict[str, Tensor] = {}
    if len(ops) > 0 and "median" not in ops and is_inlined(x, graph):
        results = _inlined_functions(x, graph, ",".join(ops), closed, is_fused)
    elif len(ops) > 0:
        # compiled code must not depend on a number that differs from graph to graph
        max_degree = MAX_NODES if torch.compiler.is_compiling() else graph.incoming.groups[-1][0]
        tensors = tensors_of(graph)
        if (
            tensors.handle == 0 and not is_fused and may_have_derivative(graph.weight)
        ):  # unread, and vmap may batch them
            tensors = tensors._replace(weight=graph.incoming_slot, weight_t=graph.incoming_slot)
        found = NeighborhoodFunctions.apply(x, tensors, ",".join(ops), closed, is_fused, max_degree)
        results = dict(zip(RESULTS, found, strict=True))
    values = tuple(results[op] if op == "kernel" else results[op].to(x.dtype) for op in ops)
    if not shift:
        return values
    if not is_fused:
        return apply_operator(x, graph), *values
    return add_own_term(results["shift"], x, graph), *values


def _inlined_functions(x: Tensor, graph: Graph, ops: str, closed: bool, shifting: bool) -> dict[str, Tensor]:
    """The results of a pass whose kernels the compiler sees, by name."""
    import graphact.kernels.triton.inlined  # noqa: F401 (it registers the operator)

    incoming, outgoing, weights = graph.incoming, graph.outgoing, (graph.weight, graph.outgoing_weight)
    weight, weight_t = (one.detach() if one.requires_grad else one for one in weights)
    tensors = [weight_t, graph.incoming_slot, incoming.rowptr, incoming.col, outgoing.rowptr, outgoing.col]
    found = torch.ops.graphact.inlined_functions(x, weight, tensors, ops, closed, shifting, incoming is outgoing)
    names = wanted_results(x, names_of(ops), shifting, MAX_DEGREE_OF_ONE_LAUNCH)
    return dict(zip(names, found, strict=True))


def needs_own_shift(x: Tensor, graph: Graph) -> bool:
    """Return whether a shift is better apart: with trained edge weights or, in half precision, with a diagonal."""
    return may_have_derivative(graph.weight) or (graph.diagonal is not None and x.dtype in HALF_PRECISION)


def apply_operator(x: Tensor, graph: Graph) -> Tensor:
    """``S x`` with the diagonal, which joins in float32 in half precision; edge weights get their gradient."""
    wide = x.float() if graph.diagonal is not None and x.dtype in HALF_PRECISION else x
    return add_own_term(shift(wide, graph), wide, graph).to(x.dtype)


def add_own_term(shifted: Tensor, x: Tensor, graph: Graph) -> Tensor:
    """Add what the diagonal of the operator, if it has one, adds to a shift."""
    if graph.diagonal is None:
        return shifted
    return shifted + reference.own_term(graph.diagonal.to(x.dtype).unsqueeze(-1), x)


def tensors_of(graph: Graph) -> GraphTensors:
    """Return the tensors of a graph that a fused pass reads, or its handles; weights are constants there."""
    if takes_handles(graph):
        return GraphTensors.handles_of(graph)
    weight, weight_t = graph.weight, graph.outgoing_weight
    if weight.requires_grad:
        weight, weight_t = weight.detach(), weight_t.detach()
    return GraphTensors(graph.incoming, graph.outgoing, weight, weight_t, graph.incoming_slot)


def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """The last step of an activation, ``beta * ReLU(own) + sum_k weights[k] * values[k]``, for each replica.

    Args:
        own: ``(R, ..., F)``, or ``(..., F)`` for a single one, whose coefficients have no dimension R, either.
        values: K tensors of the same shape.
        beta: ``(R,)`` or a scalar.
        weights: ``(R, K)`` or ``(R, K, F)``; ``(K,)`` or ``(K, F)``.
    """
    fits = len(values) <= MAX_FUSED_TERMS and own.numel() > 0 and all(value.dtype == own.dtype for value in values)
    if fits and not is_traced(own) and not is_forward_mode():
        backend = implementation(own)
        if own.dtype in backend.MIXED_DTYPES:
            own, values = materialized(own), [*map(materialized, values)]
            if is_differentiated(own, beta, weights, *values):
                return _Mix.apply(backend, own, beta, weights, *values)
            return backend.mix(own, values, beta, weights)
    if fits and is_inlined(own):
        import graphact.kernels.triton.inlined  # noqa: F401 (it registers the operator)

        seen: Tensor = torch.ops.graphact.inlined_mix(own, list(values), beta, weights)
        return seen
    return reference.mix(own, values, beta, weights)


def aliases(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return views of tensors, so that gradients stop here where one was computed from another.

    Autograd itself continues from there.
    """
    return tuple(x.view_as(x) if isinstance(x, Tensor) else x for x in inputs)


class _Mix(torch.autograd.Function):
    """One pass forward, one pass backward, where a backend has them."""

    @staticmethod
    def forward(ctx: Any, backend: Any, own: Tensor, beta: Tensor, weights: Tensor, *values: Tensor) -> Tensor:
        ctx.backend = backend
        ctx.save_for_backward(own, beta, weights, *values)
        return backend.mix(own, values, beta, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        own, beta, weights, *values = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives are wanted
            own, beta, weights, *values = inputs = aliases((own, beta, weights, *values))
            mixed = reference.mix(own, values, beta, weights)
            wanted = [tensor for tensor in inputs if tensor.requires_grad]
            found = iter(torch.autograd.grad(mixed, wanted, grad, create_graph=True))
            return None, *(next(found) if tensor.requires_grad else None for tensor in inputs)
        grad = materialized(grad)
        grad_own, grad_values, grad_beta, grad_weights = ctx.backend.mix_backward(grad, own, values, beta, weights)
        return None, grad_own, grad_beta, grad_weights, *grad_values
