"""Disjoint union of graphs: concatenation with offsets; no edge is sorted and nothing waits for a device."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from graphact.graph.eager import is_plain
from graphact.graph.neighborhoods import Neighborhoods, Parts

if TYPE_CHECKING:
    from graphact.graph.graph import Graph


def join(graphs: "Sequence[Graph]") -> Parts:
    """Build the parts of the disjoint union of graphs on one device."""
    same_lists = all(graph.outgoing is graph.incoming for graph in graphs)
    same_weights = same_lists and all(graph.outgoing_weight is graph.weight for graph in graphs)
    directions = [[graph.incoming for graph in graphs], [graph.outgoing for graph in graphs]]
    lists = join_lists(directions[:1] if same_lists else directions)
    weight = torch.cat([graph.weight for graph in graphs])
    diagonal = None
    if any(graph.diagonal is not None for graph in graphs):
        diagonal = torch.cat(
            [weight.new_zeros(graph.num_nodes) if graph.diagonal is None else graph.diagonal for graph in graphs]
        )
    return Parts(
        lists[0],
        lists[-1],
        weight,
        weight if same_weights else torch.cat([graph.outgoing_weight for graph in graphs]),
        diagonal,
        any(graph.is_directed for graph in graphs),
        torch.cat([graph.incoming_slot for graph in graphs]),
        join_batches(graphs, lists[0].order),
    )


def join_lists(directions: list[list[Neighborhoods]]) -> list[Neighborhoods]:
    """Concatenate the lists of graphs in each direction. All integers that move by an offset are moved together."""
    nodes = [part.num_nodes for part in directions[0]]
    edges = [part.col.numel() for part in directions[0]]
    first_node, first_edge = (list(accumulate(counts, initial=0)) for counts in (nodes, edges))
    parts, offsets, counts = [], [], []
    for direction in directions:
        parts += [direction[0].rowptr[:1], *(part.rowptr[1:] for part in direction), *(part.col for part in direction)]
        offsets += [0, *first_edge[:-1], *first_node[:-1]]
        counts += [1, *nodes, *edges]
    moved = torch.cat(parts)
    moved += spread(offsets, counts, moved)
    joined = []
    for direction, integers in zip(directions, moved.view(len(directions), -1), strict=True):
        rowptr, col = integers.split([first_node[-1] + 1, first_edge[-1]])
        order = torch.sort(rowptr.diff(), stable=True).indices
        sizes: Counter[int] = Counter()
        for part in direction:
            sizes.update(dict(part.groups))
        joined.append(Neighborhoods.from_sizes(rowptr, col, order, torch.tensor(sorted(sizes.items()))))
    return joined


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
