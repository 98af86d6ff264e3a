"""Neighbourhoods as rectangular tables, a bounded number of nodes at a time."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from graphact.analysis.parts import Nonlinearity
from graphact.functional import shift
from graphact.graph import Graph, Neighborhoods

MOST_ENTRIES = 20_000_000  # of a table of values in memory at once, 160 MB


def terms(x: Tensor, graph: Graph, nonlinearity: Nonlinearity) -> Iterator[tuple[int, Tensor, Neighborhoods, bool]]:
    """For every hop its position, the signals that are read, where they are read, and whether nodes read their own.

    Graph-adaptive activations read :math:`S^k x` at the neighbours, localized ones x at the k-hop neighbours.
    """
    for position in range(nonlinearity.weights.size(0)):
        if nonlinearity.reads == "shifted":
            x = shift(x, graph)
            yield position, x, graph.incoming, nonlinearity.closed
        elif position == 0:
            yield position, x, graph.incoming, nonlinearity.closed
        else:
            yield position, x, graph.hop_pattern(position + 1, closed=nonlinearity.closed), False


def reduce_tables(
    function: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    neighborhoods: Neighborhoods,
    closed: bool,
    entries: int,
) -> tuple[Tensor, ...]:
    """Apply a function to the nodes ``(n,)`` and their neighbours ``(n, d)``, degree by degree.

    Every result has the nodes in its second last dimension, ``(..., n, F)``; they come back in the order of all nodes.

    Args:
        function: returns one tensor or more; it is called with d = 0 for nodes without neighbours.
        neighborhoods: the lists.
        closed: put the node itself first in its list.
        entries: numbers held for each neighbour, to choose how many nodes fit into memory at once.
    """
    parts: list[tuple[Tensor, ...]] = []
    for nodes, table in neighborhoods.tables():
        if closed:
            table = torch.cat([nodes.unsqueeze(-1), table], dim=-1)
        step = max(1, MOST_ENTRIES // max(1, entries * table.size(-1)))
        parts += [function(*chunk) for chunk in zip(nodes.split(step), table.split(step), strict=True)]
    return tuple(torch.cat(column, dim=-2)[..., neighborhoods.rank, :] for column in zip(*parts, strict=True))


def gather(x: Tensor, table: Tensor) -> Tensor:
    """The values of a table of nodes: ``(..., N, F)`` to ``(..., n, d, F)``."""
    return x[..., table, :]
