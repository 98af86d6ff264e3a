"""Disjoint union of graphs: concatenation with offsets; no edge is sorted and nothing waits for a device."""

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.graph.eager import is_plain
from graphact.graph.neighborhoods import Neighborhoods, Parts

if TYPE_CHECKING:
    from graphact.graph.graph import Graph

Columns = dict[str, list[Tensor]]


def join(graphs: "Sequence[Graph]") -> Parts:
    """Build the parts of the disjoint union of graphs on one device."""
    same_lists = all(graph.outgoing is graph.incoming for graph in graphs)
    same_weights = same_lists and all(graph.outgoing_weight is graph.weight for graph in graphs)
    lists = {"": [graph.incoming for graph in graphs]}
    weights = {"weight": [graph.weight for graph in graphs]}
    if not same_lists:
        lists["_t"] = [graph.outgoing for graph in graphs]
    if not same_weights:
        weights["weight_t"] = [graph.outgoing_weight for graph in graphs]
    columns: Columns = {"slot": [graph.incoming_slot for graph in graphs]}
    for side, parts in lists.items():
        columns["rowptr" + side] = [part.rowptr for part in parts]
        columns["col" + side] = [part.col for part in parts]
    nodes = [part.num_nodes for part in lists[""]]
    edges = [weight.numel() for weight in weights["weight"]]
    joined, orders = join_columns(columns, nodes, edges)
    joined |= {name: torch.cat(parts) for name, parts in weights.items()}
    incoming, *other = (
        Neighborhoods.from_sizes(joined["rowptr" + side], joined["col" + side], order, join_sizes(parts))
        for (side, parts), order in zip(lists.items(), orders, strict=True)
    )
    return Parts(
        incoming,
        other[0] if other else incoming,
        joined["weight"],
        joined["weight" if same_weights else "weight_t"],
        join_diagonals(graphs),
        any(graph.is_directed for graph in graphs),
        joined["slot"],
        join_batches(graphs, incoming.order),
    )


def join_columns(columns: Columns, nodes: list[int], edges: list[int]) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Concatenate the integer tensors of all graphs, and order the nodes by degree in each direction.

    All integers that move by an offset are moved together.
    """
    first_node, first_edge = (list(accumulate(counts, initial=0)) for counts in (nodes, edges))
    sides = ["", *(["_t"] if "col_t" in columns else [])]
    parts, offsets, counts = [], [], []
    for side in sides:
        rowptrs = columns["rowptr" + side]
        parts += [rowptrs[0][:1], *(rowptr[1:] for rowptr in rowptrs), *columns["col" + side]]
        offsets += [0, *first_edge[:-1], *first_node[:-1]]
        counts += [1, *nodes, *edges]
    moved = torch.cat(parts)
    moved += spread(offsets, counts, moved)
    joined, orders = {"slot": torch.cat(columns["slot"])}, []
    for side, integers in zip(sides, moved.view(len(sides), -1), strict=True):
        joined["rowptr" + side], joined["col" + side] = integers.split([first_node[-1] + 1, first_edge[-1]])
        orders.append(torch.sort(joined["rowptr" + side].diff(), stable=True).indices)
    return joined, orders


def join_diagonals(graphs: "Sequence[Graph]") -> Tensor | None:
    """Concatenate the diagonals, zero where a graph has none; None if no graph has one."""
    if all(graph.diagonal is None for graph in graphs):
        return None
    return torch.cat(
        [
            graph.weight.new_zeros(graph.incoming.num_nodes) if graph.diagonal is None else graph.diagonal
            for graph in graphs
        ]
    )


def join_batches(graphs: "Sequence[Graph]", like: Tensor) -> Tensor | None:
    """Number the graph of each node; a graph with a batch takes as many numbers as it has nodes."""
    inside = [graph.batch for graph in graphs]
    if len(graphs) == 1:
        return inside[0]
    nodes = [graph.num_nodes for graph in graphs]
    rooms = [1 if batch is None else count for batch, count in zip(inside, nodes, strict=True)]
    first = spread(list(accumulate(rooms, initial=0))[:-1], nodes, like)
    if all(batch is None for batch in inside):
        return first
    within = [
        like.new_zeros(count) if batch is None else number_below(batch)
        for batch, count in zip(inside, nodes, strict=True)
    ]
    return first + torch.cat(within)


def number_below(batch: Tensor) -> Tensor:
    """Return the graph of each of N nodes by a number below N, in the same order of graphs.

    A batch may skip numbers, those of graphs without nodes. Sorting gives the ranks of the numbers that occur; it waits
    for no device and can be traced.
    """
    nodes = batch.numel()
    if batch.device.type == "cpu" and is_plain(batch) and bool((batch < nodes).all()):
        return batch
    values, order = batch.sort()
    rank = torch.cat([order.new_zeros(1), (values[1:] != values[:-1]).cumsum(0)])
    return torch.zeros_like(order).scatter(0, order, rank)


def spread(values: list[int], counts: list[int], like: Tensor) -> Tensor:
    """Repeat each value so many times, on the device of a tensor of the resulting length."""
    table = torch.tensor([values, counts], pin_memory=like.is_cuda)
    value, count = table.to(like.device, non_blocking=True)
    return value.repeat_interleave(count, output_size=like.numel())


def join_sizes(direction: Sequence[Neighborhoods]) -> Tensor:
    """Sum the number of nodes of each degree over the graphs, on the host."""
    counts: dict[int, int] = {}
    for part in direction:
        for degree, count in part.groups:
            counts[degree] = counts.get(degree, 0) + count
    return torch.tensor(sorted(counts.items()))
