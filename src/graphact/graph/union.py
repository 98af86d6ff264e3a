"""Graphs side by side: concatenation with offsets. Nothing is sorted by edge, and nothing waits for a device."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from graphact.graph.build import Parts
from graphact.graph.neighborhoods import Neighborhoods


def join(graphs: Sequence[Parts]) -> Parts:
    """The parts of the graph that holds all nodes and edges of some graphs on one device, in their order."""
    same_lists = all(graph.outgoing is graph.incoming for graph in graphs)
    same_weights = same_lists and all(graph.outgoing_weight is graph.weight for graph in graphs)
    lists = [[graph.incoming for graph in graphs]]
    if not same_lists:
        lists.append([graph.outgoing for graph in graphs])
    incoming, *other = join_lists(lists)
    weight = torch.cat([graph.weight for graph in graphs])
    return Parts(
        incoming,
        other[0] if other else incoming,
        weight,
        weight if same_weights else torch.cat([graph.outgoing_weight for graph in graphs]),
        join_diagonals(graphs),
        any(graph.is_directed for graph in graphs),
        torch.cat([graph.incoming_slot for graph in graphs]),
    )


def join_diagonals(graphs: Sequence[Parts]) -> Tensor | None:
    """The diagonals, zero where a graph has none; None if none of them has one."""
    if all(graph.diagonal is None for graph in graphs):
        return None
    return torch.cat(
        [
            graph.weight.new_zeros(graph.incoming.num_nodes) if graph.diagonal is None else graph.diagonal
            for graph in graphs
        ]
    )


def join_lists(lists: Sequence[Sequence[Neighborhoods]]) -> Iterator[Neighborhoods]:
    """The lists of each direction; all integers that move by an offset are moved at once."""
    nodes = [part.num_nodes for part in lists[0]]
    edges = [part.col.numel() for part in lists[0]]
    first_node, first_edge = (list(accumulate(counts, initial=0)) for counts in (nodes, edges))
    parts, offsets, counts = [], [], []
    for direction in lists:
        parts.append(direction[0].rowptr[:1])
        offsets.append(0)
        counts.append(1)
        for part, offset, count in zip(direction, first_edge, nodes, strict=False):
            parts.append(part.rowptr[1:])
            offsets.append(offset)
            counts.append(count)
        for part, offset, count in zip(direction, first_node, edges, strict=False):
            parts.append(part.col)
            offsets.append(offset)
            counts.append(count)
    joined = torch.cat(parts)
    joined += spread(offsets, counts, joined)
    num_nodes, num_edges = first_node[-1], first_edge[-1]
    for direction, integers in zip(lists, joined.view(len(lists), -1), strict=True):
        rowptr, col = integers.split([num_nodes + 1, num_edges])
        order = torch.sort(rowptr.diff(), stable=True).indices
        yield Neighborhoods.from_sizes(rowptr, col, order, join_sizes(direction))


def spread(values: list[int], counts: list[int], like: Tensor) -> Tensor:
    """Repeat each value so many times, on the device of a tensor of the resulting length."""
    table = torch.tensor([values, counts], pin_memory=like.is_cuda)
    value, count = table.to(like.device, non_blocking=True)
    return value.repeat_interleave(count, output_size=like.numel())


def join_sizes(direction: Sequence[Neighborhoods]) -> Tensor:
    """Degree and number of nodes of each group, from those of each graph, which the host knows."""
    counts: dict[int, int] = {}
    for part in direction:
        for degree, count in part.groups:
            counts[degree] = counts.get(degree, 0) + count
    return torch.tensor(sorted(counts.items()))
