"""The specification in plain torch: each function reads every neighbourhood once, group of equal degree by group.

Signals have the shape ``(..., N, F)``. Sums over neighbours run in ascending order of the neighbours, in at least
float32, so results are the same on every run and every device up to rounding.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph.eager import may_have_derivative
from graphact.graph.neighborhoods import degree_groups, inverse_permutation
from graphact.kernels.graph_tensors import GraphTensors, Lists

ACCUMULATION = dict.fromkeys(HALF_PRECISION, torch.float32)
MIXED_DTYPES: tuple[torch.dtype, ...] = ()  # of a mixing step in one pass, which torch does not have
SLOT_DTYPES = tuple((torch.iinfo(dtype).max, dtype) for dtype in (torch.uint8, torch.int16, torch.int32))


def groups(lists: Lists) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the nodes ``(n,)`` and the edge positions ``(n, d)`` of each group of nodes with equal degree d."""
    return degree_groups(lists.rowptr, lists.order, lists.sizes.tolist())


def reduce(lists: Lists, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply ``function(nodes, edges)`` to each group and put the results ``(..., n, F)`` into node order."""
    parts = [function(nodes, edges) for nodes, edges in groups(lists)]
    return torch.cat(parts, dim=-2).index_select(-2, inverse_permutation(lists.order))


def gather_nodes(x: Tensor, index: Tensor) -> Tensor:
    """``x[..., index, :]`` for an index of any shape."""
    return x.index_select(-2, index.flatten()).unflatten(-2, index.shape)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type of sums: float32 for half precision."""
    return ACCUMULATION.get(dtype, dtype)


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """``out[i] = sum_j weight[i, j] x[j]`` over the neighbours j of i."""
    wide = accumulation_dtype(x.dtype)

    def weighted_sum(_: Tensor, edges: Tensor) -> Tensor:
        values = gather_nodes(x, lists.col[edges]).to(wide)
        return (values * weight[edges].to(wide).unsqueeze(-1)).sum(-2).to(x.dtype)

    return reduce(lists, weighted_sum)


def own_term(diagonal: Tensor, x: Tensor) -> Tensor:
    """``diagonal * x``, what the diagonal of an operator adds to a shift; it broadcasts over x.

    Where the diagonal is 0 a node's own value takes no part, even if it is infinite or NaN. A self-loop of weight 0
    that may have a derivative gets it.
    """
    if may_have_derivative(diagonal):
        return diagonal * x.masked_fill((diagonal == 0) & ~x.isfinite(), 0.0)
    return torch.where(diagonal == 0, 0.0, diagonal * x)


def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """``out[i, j] = sum grad[i] x[j]`` over batch and features, for every edge."""
    wide = accumulation_dtype(x.dtype)
    batch = math.prod(x.shape[:-2])
    grad, x = (signal.reshape(batch, *x.shape[-2:]).to(wide) for signal in (grad, x))
    found, places = [], []
    for nodes, edges in groups(lists):
        at_targets, at_sources = gather_nodes(grad, nodes).unsqueeze(-2), gather_nodes(x, lists.col[edges])
        found.append(torch.linalg.vecdot(at_targets, at_sources).sum(0).flatten())
        places.append(edges.flatten())
    return torch.cat(found)[inverse_permutation(torch.cat(places))]


LOSES_EVERY_COMPARISON = {"max": -math.inf, "min": math.inf}


def select(x: Tensor, source_index: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """The maximum, minimum or lower median of each neighbourhood, and the node it comes from.

    The candidate at node j is ``x[j]`` or, with ``source_index`` ``(..., N, F)`` and max or min, the value
    ``x[source_index[j]]`` of another node; an index N says that there is none at j.

    Returns the values, 0 for an empty neighbourhood, and the nodes they come from as int32: the lowest among ties, N
    where there was no candidate. NaN wins over all numbers.
    """
    no_node = x.size(-2)
    candidates = x if source_index is None else gather_selected(x, source_index, LOSES_EVERY_COMPARISON[op])

    def choose(nodes: Tensor, edges: Tensor) -> Tensor:
        table = lists.col[edges]
        if closed:
            table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
        if table.size(-1) == 0:
            shape = x.shape[:-2] + nodes.shape + x.shape[-1:]
            return torch.full(shape, no_node, dtype=torch.int32, device=x.device)
        values = gather_nodes(candidates, table)
        if op == "max":
            winner = values.amax(-2, keepdim=True)
        elif op == "min":
            winner = values.amin(-2, keepdim=True)
        else:
            winner = values.median(dim=-2, keepdim=True).values
        index = table.int().unsqueeze(-1) if source_index is None else gather_nodes(source_index, table)
        return torch.where((values == winner) | values.isnan(), index, no_node).amin(-2)

    selected = reduce(lists, choose)
    return gather_selected(x, selected, 0.0), selected


def gather_selected(x: Tensor, selected: Tensor, empty: float) -> Tensor:
    """``x[selected]`` for each feature, and ``empty`` where the index is N."""
    last = x.size(-2) - 1
    return torch.where(selected <= last, x.gather(-2, selected.clamp(max=last).long()), empty)


def scatter_selected(grad: Tensor, selected: Tensor) -> Tensor:
    """The adjoint of :func:`gather_selected` with 0 for empty: add each value to the node it was taken from."""
    last = grad.size(-2) - 1
    wide = torch.where(selected <= last, grad, 0.0).to(accumulation_dtype(grad.dtype))
    return torch.zeros_like(wide).scatter_add(-2, selected.clamp(max=last).long(), wide).to(grad.dtype)


def gather_rows(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``, for constant tables: no gradient."""
    return table.index_select(0, index.flatten()).view(*index.shape, table.size(1))


def sum_sq_diff(x: Tensor, lists: Lists) -> Tensor:
    """``out[i] = sum_j (x[i] - x[j])^2`` over the neighbours j of i, in at least float32."""
    wide = x.to(accumulation_dtype(x.dtype))

    def squared_distance(nodes: Tensor, edges: Tensor) -> Tensor:
        own, others = gather_nodes(wide, nodes).unsqueeze(-2), gather_nodes(wide, lists.col[edges])
        return (own - others).square().sum(-2)

    return reduce(lists, squared_distance)


def sum_products(x: Tensor, other: Tensor, lists: Lists) -> Tensor:
    """``out[i] = sum_j (x[i] - x[j]) (other[i] - other[j])`` over the neighbours j of i, in at least float32."""
    signals = [signal.to(accumulation_dtype(x.dtype)) for signal in (x, other)]

    def inner_product(nodes: Tensor, edges: Tensor) -> Tensor:
        own, others = ([gather_nodes(signal, index) for signal in signals] for index in (nodes, lists.col[edges]))
        return ((own[0].unsqueeze(-2) - others[0]) * (own[1].unsqueeze(-2) - others[1])).sum(-2)

    return reduce(lists, inner_product)


def sum_sq_diff_backward(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """Half the gradient of :func:`sum_sq_diff`, which flows to both ends of each edge.

    ``out[i] = grad[i] sum_j (x[i] - x[j]) + sum_l grad[l] (x[i] - x[l])`` over the neighbours j of i, and over the
    nodes l whose neighbour i is.
    """
    wide = x.to(grad.dtype)

    def own_terms(nodes: Tensor, edges: Tensor) -> Tensor:
        own, others = gather_nodes(wide, nodes).unsqueeze(-2), gather_nodes(wide, incoming.col[edges])
        return gather_nodes(grad, nodes) * (own - others).sum(-2)

    def terms_of_others(nodes: Tensor, edges: Tensor) -> Tensor:
        table = outgoing.col[edges]
        own, others = gather_nodes(wide, nodes).unsqueeze(-2), gather_nodes(wide, table)
        return (gather_nodes(grad, table) * (own - others)).sum(-2)

    return (reduce(incoming, own_terms) + reduce(outgoing, terms_of_others)).to(x.dtype)


FUNCTIONS = ("max", "min", "median", "mean", "std", "kernel")
SELECTIONS = FUNCTIONS[:3]
SLOTS = tuple(f"{op} slot" for op in SELECTIONS)
RESULTS = ("shift", *FUNCTIONS, *SLOTS)  # of neighborhood_functions
Results = Mapping[str, Tensor]


def neighborhood_functions(
    x: Tensor, graph: GraphTensors, ops: Collection[str], closed: bool, shifting: bool, max_degree: int
) -> dict[str, Tensor]:
    """Evaluate several functions of the neighbours' values and the shift in one pass; return them by name.

    With the largest, the smallest and the median value comes the slot of the selected neighbour in the list of each
    node, such as ``"max slot"``. A slot d, where d neighbours are listed, says that the node itself was selected (in a
    closed neighbourhood) or no node. Slots are integers as small as ``max_degree``, the length of the longest list,
    allows. The mean and the standard deviation, :func:`moments`, and ``"kernel"``, :func:`sum_sq_diff`, are held in at
    least float32; the mean comes with the standard deviation, whose gradient needs it.
    """
    found = {"shift": shift(x, graph.weight, graph.incoming)} if shifting else {}
    for op in wanted_results(x, ops, False, max_degree):
        if op in SELECTIONS:
            found[op], selected = select(x, None, graph.incoming, op, closed)
            found[f"{op} slot"] = slots_of(selected, graph.incoming).to(slot_dtype(max_degree))
        elif op == "kernel":
            found[op] = sum_sq_diff(x, graph.incoming)
        elif op in FUNCTIONS:
            found[op] = moments(x, graph.incoming, closed, op)
    return found


def wanted_results(x: Tensor, ops: Collection[str], shifting: bool, max_degree: int) -> dict[str, torch.dtype]:
    """The types of the results of :func:`neighborhood_functions` by name."""
    wide = accumulation_dtype(x.dtype)
    types = {op: x.dtype if op in SELECTIONS else wide for op in ops}
    types |= {"shift": x.dtype} if shifting else {}
    types |= {"mean": wide} if "std" in ops else {}
    return types | {f"{op} slot": slot_dtype(max_degree) for op in SELECTIONS if op in ops}


def moments(x: Tensor, lists: Lists, closed: bool, op: str) -> Tensor:
    """The mean or the population standard deviation of each neighbourhood; 0 for an empty one.

    Differences are taken to one of the neighbours, so the deviation of equal values is exactly 0; its gradient is 0
    there.
    """
    wide = x.to(accumulation_dtype(x.dtype))

    def moment(nodes: Tensor, edges: Tensor) -> Tensor:
        table = lists.col[edges]
        if closed:
            table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
        values = gather_nodes(wide, table)
        if table.size(-1) == 0:
            return values.sum(-2)
        if op == "mean":
            return values.mean(-2)
        apart = values - values[..., :1, :]
        return safe_sqrt((apart - apart.mean(-2, keepdim=True)).square().mean(-2))

    return reduce(lists, moment)


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root, with the gradient 0 at 0."""
    return torch.where(x == 0, 0.0, torch.where(x == 0, 1.0, x).sqrt())


def safe_ratio(x: Tensor, divisor: Tensor) -> Tensor:
    """``x / divisor``, and 0 where the divisor is 0; so are its gradients."""
    return torch.where(divisor == 0, 0.0, x / torch.where(divisor == 0, 1.0, divisor))


def neighborhood_functions_backward(grads: Results, saved: Results, graph: GraphTensors, closed: bool) -> Tensor:
    """The gradient of :func:`neighborhood_functions` by x, from those of its results but ``"kernel"``.

    ``out[j] = sum_i grad_std[i] / (d[i] std[i]) (x[j] - mean[i])`` for the standard deviation, over the nodes i whose
    neighbour j is; d is the number of neighbours. ``saved`` holds the slots of the selections among ``grads``; with a
    standard deviation also the mean, the standard deviation and x.
    """
    dtype, parts = first_given(grads, saved).dtype, []
    wide = accumulation_dtype(dtype)
    count = num_members(graph.incoming, closed).to(wide)
    if "shift" in grads:
        parts.append(shift(grads["shift"].to(wide), graph.weight_t, graph.outgoing))
    for op in SELECTIONS:
        if op in grads:
            parts.append(scatter_selected(grads[op].to(wide), nodes_at(saved[f"{op} slot"], graph.incoming, closed)))

    def spread(grad: Tensor) -> Tensor:
        total = shift(grad, grad.new_ones(graph.outgoing.col.shape), graph.outgoing)
        return total + grad if closed else total

    if "mean" in grads:
        parts.append(spread(grads["mean"] / count))
    if "std" in grads:
        scale, x = safe_ratio(grads["std"] / count, saved["std"]), saved["x"]
        own = torch.where(x.isfinite(), x.to(wide), 0.0)  # where it is not, all deviations around are NaN
        parts.append(own * spread(scale) - spread(scale * saved["mean"]))
    return (parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)).to(dtype)


def first_given(grads: Results, saved: Results) -> Tensor:
    """The first of the tensors that have the shape and type of a gradient by x, or else of a sum."""
    given = [*(grads.get(name) for name in RESULTS[:4]), saved.get("x"), *grads.values()]
    return next(tensor for tensor in given if tensor is not None)


def num_members(lists: Lists, closed: bool) -> Tensor:
    """The number of members of each neighbourhood as a column, 1 for an empty one, to divide by."""
    return (lists.rowptr.diff() + closed).clamp(min=1).unsqueeze(-1)


def slot_dtype(max_degree: int) -> torch.dtype:
    """The smallest integer type that holds 0..max_degree."""
    return next(dtype for most, dtype in SLOT_DTYPES if max_degree <= most)


def slots_of(selected: Tensor, lists: Lists) -> Tensor:
    """The slots of selected nodes in the lists of those who selected them; past the end where they are not listed."""
    nodes = selected.size(-2)
    row = torch.arange(nodes, device=selected.device).unsqueeze(-1)
    owner = row.squeeze(-1).repeat_interleave(lists.rowptr.diff(), output_size=lists.col.numel())
    begin, end = lists.rowptr[:-1].unsqueeze(-1), lists.rowptr[1:].unsqueeze(-1)
    keys, wanted = owner * nodes + lists.col, (row * nodes + selected).contiguous()
    found = torch.searchsorted(keys, wanted)
    is_listed = torch.cat([keys, keys.new_full((1,), -1)])[found] == wanted
    return torch.where(is_listed & (selected < nodes), found, end) - begin


def nodes_at(selected_slot: Tensor, lists: Lists, closed: bool) -> Tensor:
    """The inverse of :func:`slots_of`: what :func:`select` returned; N for no node."""
    nodes = selected_slot.size(-2)
    row = torch.arange(nodes, device=selected_slot.device).unsqueeze(-1)
    position = lists.rowptr[:-1].unsqueeze(-1) + selected_slot
    past = selected_slot >= lists.rowptr.diff().unsqueeze(-1)
    if lists.col.numel() == 0:
        listed = torch.zeros_like(position)
    else:
        listed = lists.col[position.clamp(max=lists.col.numel() - 1)]
    return torch.where(past, row if closed else nodes, listed).int()


def mix(own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor) -> Tensor:
    """See :func:`graphact.kernels.autograd.mix`; term by term."""
    if beta.dim() == 0:
        return mix(own.unsqueeze(0), [value.unsqueeze(0) for value in values], beta[None], weights[None]).squeeze(0)
    shape = (len(beta), *[1] * (own.dim() - 2), -1)
    out = beta.view(shape) * torch.relu(own)
    for hop, value in enumerate(values):
        out = out + weights[:, hop].reshape(shape) * value
    return out


def mix_backward(
    grad: Tensor, own: Tensor, values: Sequence[Tensor], beta: Tensor, weights: Tensor
) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    """The gradients of :func:`mix` with respect to own, values, beta and weights, by torch."""
    inputs = [tensor.detach().requires_grad_() for tensor in (own, beta, weights, *values)]
    with torch.enable_grad():
        mixed = mix(inputs[0], inputs[3:], *inputs[1:3])
    grad_own, grad_beta, grad_weights, *grad_values = torch.autograd.grad(mixed, inputs, grad)
    return grad_own, grad_values, grad_beta, grad_weights
