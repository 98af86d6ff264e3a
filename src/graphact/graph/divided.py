"""Graphs of which a process holds only some nodes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphact.graph.graph import Graph, check_graph, check_signal

Pass = Callable[..., tuple[Tensor, ...]]


class DividedGraph(ABC):
    """A graph of which this process holds some nodes; signals have the shape ``(..., n, F)`` with the nodes held here.

    The functions of :mod:`graphact.functional` are written for a :class:`Graph` that is all here. They run on a divided
    one by handing over their passes over the neighbours, which it applies to graphs of its own making: pieces that hold
    every value a pass needs.
    """

    num_nodes: int

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the graph is kept."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype:
        """The floating-point type of the weights."""

    @abstractmethod
    def check_signal(self, x: Any) -> Tensor:
        """Return ``x`` if it is a signal on the nodes held here."""

    @abstractmethod
    def hop(self, x: Tensor, function: Pass) -> tuple[Tensor, ...]:
        """Evaluate ``function(x, graph)``, which looks one hop far, with one exchange between the processes."""

    @abstractmethod
    def reach(self, x: Tensor, hops: int, closed: bool, function: Pass) -> tuple[Tensor, ...]:
        """Evaluate ``function(x, *graphs)`` with one exchange; in graph k the neighbours are those k hops away."""


AnyGraph = Graph | DividedGraph


def check_on_any_graph(x: Any, graph: Any) -> tuple[Tensor, AnyGraph]:
    """Return a signal and the graph, whole or divided, that it is a signal on."""
    if isinstance(graph, DividedGraph):
        return graph.check_signal(x), graph
    graph = check_graph("graph", graph)
    return check_signal(x, graph), graph
