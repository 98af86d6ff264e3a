"""The specification in plain torch: each function reads every neighbourhood once, group of equal degree by group.

Signals have the shape ``(..., N, F)``. Sums over neighbours run in ascending order of the neighbours, in at least
float32, so results are the same on every run and every device up to rounding.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph.neighborhoods import Neighborhoods, degree_groups


class Lists(NamedTuple):
    """The tensors of :class:`Neighborhoods` that a pass over the neighbours reads, in the order operators take them."""

    pointers: Tensor
    members: Tensor
    order: Tensor
    rank: Tensor
    edge_order: Tensor
    sizes: Tensor

    @classmethod
    def of(cls, neighborhoods: Neighborhoods) -> "Lists":
        """Take them from neighbour lists."""
        return cls(*(getattr(neighborhoods, name) for name in cls._fields))

    def groups(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the nodes ``(n,)`` and the edge positions ``(n, d)`` of each group of nodes with equal degree d."""
        return degree_groups(self.order, self.edge_order, [(degree, count) for degree, count in self.sizes.tolist()])

    def reduce(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Apply ``function(nodes, edges)`` to each group and put the results ``(..., n, F)`` into node order."""
        parts = [function(nodes, edges) for nodes, edges in self.groups()]
        return torch.cat(parts, dim=-2).index_select(-2, self.rank)


def gather_nodes(x: Tensor, index: Tensor) -> Tensor:
    """``x[..., index, :]`` for an index of any shape."""
    return x.index_select(-2, index.flatten()).unflatten(-2, index.shape)


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Sums of half-precision numbers are taken in float32."""
    return torch.float32 if dtype in HALF_PRECISION else dtype


def shift(x: Tensor, weight: Tensor, lists: Lists) -> Tensor:
    """``out[i] = sum_j weight[i, j] x[j]`` over the neighbours j of i."""
    wide = accumulation_dtype(x.dtype)

    def weighted_sum(_: Tensor, edges: Tensor) -> Tensor:
        values = gather_nodes(x, lists.members[edges]).to(wide)
        return (values * weight[edges].to(wide).unsqueeze(-1)).sum(-2).to(x.dtype)

    return lists.reduce(weighted_sum)


def shift_weight_grad(grad: Tensor, x: Tensor, lists: Lists) -> Tensor:
    """``out[i, j] = sum grad[i] x[j]`` over batch and features, for every edge."""
    wide = accumulation_dtype(x.dtype)
    batch = math.prod(x.shape[:-2])
    grad, x = (signal.reshape(batch, *x.shape[-2:]).to(wide) for signal in (grad, x))
    out = torch.zeros(lists.edge_order.shape, dtype=wide, device=x.device)
    for nodes, edges in lists.groups():
        at_targets, at_sources = gather_nodes(grad, nodes).unsqueeze(-2), gather_nodes(x, lists.members[edges])
        out[edges] = torch.linalg.vecdot(at_targets, at_sources).sum(0)
    return out


LOSES_EVERY_COMPARISON = {"max": -math.inf, "min": math.inf, "median": math.nan}


def select(x: Tensor, labels: Tensor | None, lists: Lists, op: str, closed: bool) -> tuple[Tensor, Tensor]:
    """The maximum, minimum or lower median of each neighbourhood, and where it comes from.

    Node j stands for the value ``x[j]`` or, with ``labels`` ``(..., N, F)``, for the value ``x[labels[j]]`` of another
    node; a label N says that j stands for nothing, which max and min leave out.

    Returns the values, 0 for an empty neighbourhood, and the chosen labels as int32: the lowest among ties, N where
    nothing was chosen. NaN wins over all numbers.
    """
    nobody = x.size(-2)
    offers = x if labels is None else take(x, labels, LOSES_EVERY_COMPARISON[op])

    def choose(nodes: Tensor, edges: Tensor) -> Tensor:
        table = lists.members[edges]
        if closed:
            table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
        if table.size(-1) == 0:
            shape = x.shape[:-2] + nodes.shape + x.shape[-1:]
            return torch.full(shape, nobody, dtype=torch.int32, device=x.device)
        values = gather_nodes(offers, table)
        if op == "max":
            winner = values.amax(-2, keepdim=True)
        elif op == "min":
            winner = values.amin(-2, keepdim=True)
        else:
            winner = values.median(dim=-2, keepdim=True).values
        names = table.int().unsqueeze(-1) if labels is None else gather_nodes(labels, table)
        return torch.where((values == winner) | values.isnan(), names, nobody).amin(-2)

    chosen = lists.reduce(choose)
    return take(x, chosen, 0.0), chosen


def take(x: Tensor, chosen: Tensor, empty: float) -> Tensor:
    """``x[chosen]`` for each feature, and ``empty`` where the index is N."""
    last = x.size(-2) - 1
    return torch.where(chosen <= last, x.gather(-2, chosen.clamp(max=last).long()), empty)


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]``, for constant tables: no gradient."""
    return table.index_select(0, index.flatten()).view(*index.shape, table.size(1))


def route(grad: Tensor, chosen: Tensor) -> Tensor:
    """The adjoint of :func:`take` with 0 for empty: send each value to the node it was taken from."""
    last = grad.size(-2) - 1
    wide = torch.where(chosen <= last, grad, 0.0).to(accumulation_dtype(grad.dtype))
    return torch.zeros_like(wide).scatter_add(-2, chosen.clamp(max=last).long(), wide).to(grad.dtype)


def spread(x: Tensor, lists: Lists) -> Tensor:
    """``out[i] = sum_j (x[i] - x[j])^2`` over the neighbours j of i, in at least float32."""
    wide = x.to(accumulation_dtype(x.dtype))

    def squared_distance(nodes: Tensor, edges: Tensor) -> Tensor:
        own, others = gather_nodes(wide, nodes).unsqueeze(-2), gather_nodes(wide, lists.members[edges])
        return (own - others).square().sum(-2)

    return lists.reduce(squared_distance)


def pull(grad: Tensor, x: Tensor, incoming: Lists, outgoing: Lists) -> Tensor:
    """Half the gradient of :func:`spread`: what i sees of its neighbours, and what those who see i see of it.

    ``out[i] = grad[i] sum_j (x[i] - x[j]) + sum_l grad[l] (x[i] - x[l])`` over the neighbours j of i, and over the
    nodes l whose neighbour i is.
    """
    wide = x.to(grad.dtype)

    def seen(nodes: Tensor, edges: Tensor) -> Tensor:
        own, others = gather_nodes(wide, nodes).unsqueeze(-2), gather_nodes(wide, incoming.members[edges])
        return gather_nodes(grad, nodes) * (own - others).sum(-2)

    def seen_by(nodes: Tensor, edges: Tensor) -> Tensor:
        table = outgoing.members[edges]
        own, others = gather_nodes(wide, nodes).unsqueeze(-2), gather_nodes(wide, table)
        return (gather_nodes(grad, table) * (own - others)).sum(-2)

    return (incoming.reduce(seen) + outgoing.reduce(seen_by)).to(x.dtype)


def hop(
    x: Tensor, weight: Tensor, lists: Lists, op: str, closed: bool, shifting: bool, longest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """All that one look at the neighbours gives: a function of their values, and the shift.

    Returns :func:`select` (or, for ``"kernel"``, :func:`spread`), the place of the chosen neighbour in the list of each
    node, and :func:`shift`. A place d, where d neighbours are listed, says that the node itself was chosen (in a closed
    neighbourhood) or nobody. Places are integers as small as ``longest``, the length of the longest list, allows. What
    is not asked for, or does not exist, is empty.
    """
    shifted = shift(x, weight, lists) if shifting else x.new_empty(0)
    if op == "kernel":
        return spread(x, lists), x.new_empty(0, dtype=torch.uint8), shifted
    values, chosen = select(x, None, lists, op, closed)
    return values, places_of(chosen, lists).to(place_dtype(longest)), shifted


def place_dtype(longest: int) -> torch.dtype:
    """The smallest integer type that holds 0..longest."""
    return next(dtype for dtype in (torch.uint8, torch.int16, torch.int32) if longest <= torch.iinfo(dtype).max)


def places_of(chosen: Tensor, lists: Lists) -> Tensor:
    """The places of nodes in the lists of those who chose them; past the end where they do not stand there."""
    nodes = chosen.size(-2)
    row = torch.arange(nodes, device=chosen.device).unsqueeze(-1)
    owner = row.squeeze(-1).repeat_interleave(lists.pointers.diff(), output_size=lists.members.numel())
    begin, end = lists.pointers[:-1].unsqueeze(-1), lists.pointers[1:].unsqueeze(-1)
    found = torch.searchsorted(owner * nodes + lists.members, (row * nodes + chosen).contiguous())
    own = (chosen == row) | (chosen == nodes)
    return torch.where(own, end, found) - begin


def chosen_at(places: Tensor, lists: Lists, closed: bool) -> Tensor:
    """The nodes at the places: what :func:`select` returned; N for nobody."""
    nodes = places.size(-2)
    row = torch.arange(nodes, device=places.device).unsqueeze(-1)
    position = lists.pointers[:-1].unsqueeze(-1) + places
    past = places >= lists.pointers.diff().unsqueeze(-1)
    if lists.members.numel() == 0:
        listed = torch.zeros_like(position)
    else:
        listed = lists.members[position.clamp(max=lists.members.numel() - 1)]
    return torch.where(past, row if closed else nodes, listed).int()


def turn(
    grad: Tensor,
    places: Tensor,
    grad_shifted: Tensor | None,
    turned_weight: Tensor,
    positions: Tensor,
    incoming: Lists,
    outgoing: Lists,
    closed: bool,
) -> Tensor:
    """The adjoint of :func:`hop` with a choice: what flows back to each node from those whose neighbour it is.

    Args:
        grad: gradient of the chosen values.
        places: of the chosen neighbours.
        grad_shifted: gradient of the shift, if it was made.
        turned_weight: the weights in the order of ``outgoing``.
        positions: for each edge, in that order, its place in the incoming list that holds it.
        incoming: the lists that were read.
        outgoing: the lists of the transposed graph.
        closed: whether nodes count among their neighbours.
    """
    del positions  # for backends that visit the edges in that order
    routed = route(grad, chosen_at(places, incoming, closed))
    return routed if grad_shifted is None else routed + shift(grad_shifted, turned_weight, outgoing)
