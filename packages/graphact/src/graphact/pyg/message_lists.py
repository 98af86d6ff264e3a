"""Messages of PyG as neighbour lists, sorted by target once for an edge_index and all views of it.

Here a neighbour is what sends a message: repeated edges count as often as they are listed, a self-loop makes a node its
own neighbour, and no message has a weight. The set of senders may be another than that of the targets.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.graph import Graph, Neighborhoods
from graphact.graph.build import is_on_host, parts_on_host, same_pattern, sort_by_row, transpose
from graphact.graph.eager import is_plain
from graphact.graph.neighborhoods import inverse_permutation
from graphact.kernels.autograd import neighborhood_functions
from graphact.nn.call import BUILT

SMALL_STD = math.sqrt(1e-5)  # deviations up to it are 0 in PyG


class Messages(NamedTuple):
    """Neighbour lists of the targets of messages.

    Attributes:
        graph: an edge for each message. Senders and targets are numbered apart, so that it has as many nodes as the
            larger set of both; those beyond are without neighbours.
        num_targets: the number of targets.
        order: the targets in the order of the lists, if these are sorted by their number of messages; else None.
        position: the inverse of this permutation.
    """

    graph: Graph
    num_targets: int
    order: Tensor | None = None
    position: Tensor | None = None

    @property
    def degree(self) -> Tensor:
        """The number of messages to each target, in the order of the lists."""
        return self.graph.degree[: self.num_targets]

    def aggregate(self, x: Tensor, functions: Sequence[str]) -> list[Tensor]:
        """Evaluate functions of the messages to each target, as PyG does.

        Args:
            x: the messages, or the values that the senders send, ``(..., S, F)``.
            functions: names among max, min, median, mean, std, sum and var.

        Returns:
            For each function the values at the targets, ``(..., T, F)``, 0 at those without messages.
        """
        beyond = self.graph.num_nodes - x.size(-2)
        x = torch.nn.functional.pad(x, (0, 0, 0, beyond)) if beyond else x
        passes = tuple(dict.fromkeys("std" if name == "var" else name for name in functions if name != "sum"))
        found = neighborhood_functions(x, self.graph, passes, "sum" in functions)
        names = (*(["sum"] if "sum" in functions else []), *passes)
        values = {name: each[..., : self.num_targets, :] for name, each in zip(names, found, strict=True)}
        if "std" in values:
            deviation = values["std"]
            values["std"] = deviation.masked_fill(deviation <= SMALL_STD, 0.0)
            values["var"] = deviation.square()
        return [values[name] for name in functions]


def can_aggregate(x: Tensor, index: Any) -> bool:
    """Return whether the kernels take floating-point values with such an index, and torch only computes with both."""
    return (
        isinstance(index, Tensor)
        and index.dtype in (torch.int64, torch.int32)
        and is_plain(x, index)
        and x.is_floating_point()
        and x.device == index.device
        and not torch._C._is_tracing()
    )


def messages_of_edges(
    edge_index: Tensor, num_senders: int, num_targets: int, dtype: torch.dtype, by_degree: bool = False
) -> Messages:
    """Return the messages along the edges, built before if they were.

    Args:
        edge_index: senders and targets, ``(2, E)``.
        num_senders: number of nodes that may send.
        num_targets: number of nodes that may receive.
        dtype: precision of the values.
        by_degree: sort the lists by their lengths.
    """

    def build() -> Messages:
        source, target = edge_index.long()
        check_indices("edge_index[0]", source, num_senders)
        check_indices("edge_index[1]", target, num_targets)
        order = position = None
        if by_degree:
            order = torch.bincount(target, minlength=num_targets).sort(stable=True).indices
            position = inverse_permutation(order)
            target = position[target]
        nodes = max(num_senders, num_targets)
        return Messages(build_graph(source, target, nodes, dtype), num_targets, order, position)

    return cached(edge_index, ("edges", num_senders, num_targets, dtype, by_degree), build)


def messages_of_index(
    index: Tensor | None, ptr: Tensor | None, num_messages: int, num_targets: int, dtype: torch.dtype
) -> Messages:
    """Return the messages with these targets, ``(E,)``, or with those between these pointers, ``(T + 1,)``.

    Messages before the first and after the last pointer have no target.
    """
    given = ptr if index is None else index
    assert given is not None  # PyG's aggregations see to it

    def build() -> Messages:
        target, first = given.long(), 0
        if index is None:
            check_indices("ptr", target, num_messages + 1)
            every, first = torch.arange(num_targets, device=given.device), int(target[0])
            target = every.repeat_interleave(target.diff())
        check_indices("index", target, num_targets)
        senders = torch.arange(first, first + target.numel(), device=target.device)
        return Messages(build_graph(senders, target, max(num_messages, num_targets), dtype), num_targets)

    return cached(given, ("index" if index is not None else "ptr", num_messages, num_targets, dtype), build)


def cached(index: Tensor, settings: tuple[Any, ...], build: Any) -> Messages:
    """Return what ``build`` returns, cached for all views of one tensor: PyG makes new views in each call."""
    base = index if index._base is None else index._base
    view = (index.storage_offset(), index.shape, index.stride(), index.dtype)
    found: Messages = BUILT.get((base,), ("messages", view, *settings), build)
    return found


def check_indices(name: str, index: Tensor, count: int) -> None:
    """Raise if an index is out of bounds."""
    if index.numel():
        lowest, highest = torch.stack(index.aminmax()).tolist()
        if lowest < 0 or highest >= count:
            raise IndexError(f"{name} must hold indices from 0 to {count - 1}, got {lowest if lowest < 0 else highest}")


def build_graph(source: Tensor, target: Tensor, num_nodes: int, dtype: torch.dtype) -> Graph:
    """Return a graph whose lists hold all edges, repeated ones and self-loops included, each of weight 1."""
    dtype = torch.float32 if dtype in HALF_PRECISION else dtype
    weight = torch.ones(target.numel(), dtype=dtype, device=target.device)
    if is_on_host(target):
        narrow = np.int32 if max(num_nodes, target.numel()) < 2**31 else np.int64
        row, col = (part.contiguous().numpy().astype(narrow) for part in (target, source))
        rows, _ = sort_by_row(row, col, num_nodes)  # senders ascend in each list
        rows_t, edge_t = transpose(rows)
        return Graph(*parts_on_host(rows, rows_t, same_pattern(rows, rows_t), edge_t, weight, None))
    order = (target * num_nodes + source).argsort(stable=True)
    target, source = target[order], source[order]
    order = source.argsort(stable=True)
    incoming = lists_of(target, source, num_nodes)
    outgoing = lists_of(source[order], target[order], num_nodes)
    slot = torch.arange(target.numel(), device=target.device) - incoming.rowptr[target]
    return Graph(incoming, outgoing, weight, weight, None, True, slot[order].int())


def lists_of(row: Tensor, col: Tensor, num_nodes: int) -> Neighborhoods:
    """Return neighbour lists from edges sorted by row."""
    rowptr = torch.zeros(num_nodes + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=num_nodes), 0, out=rowptr[1:])
    return Neighborhoods.from_rowptr(rowptr, col)
