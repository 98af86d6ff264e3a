"""The interface between :mod:`graphact.functional` and graphs, local or distributed."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from graphact.graph.graph import Graph
    from graphact.graph.neighborhoods import Neighborhoods

Pass = Callable[..., tuple[Tensor, ...]]


class NeighborLists(Protocol):
    """Neighbour lists in both directions; a :class:`~graphact.Graph` has them, and so do its k-hop patterns."""

    @property
    def incoming(self) -> "Neighborhoods": ...

    @property
    def outgoing(self) -> "Neighborhoods": ...


class Walk(Protocol):
    """All terms 1..hops of a function over several hops, from the one-hop lists of a whole graph alone."""

    def __call__(self, x: Tensor, graph: "Graph", hops: int, closed: bool) -> Sequence[Tensor]: ...


class GraphLike(Protocol):
    """A graph with the signals ``(..., N, F)`` of the N nodes that this process holds.

    The functions of :mod:`graphact.functional` are passes over the neighbour lists of a local
    :class:`~graphact.Graph`. They hand them to the graph that they were called with: a local graph applies a pass to
    itself; a distributed one applies it to local graphs that hold every value the pass needs.
    """

    @property
    def num_nodes(self) -> int:
        """The number N of nodes held here."""

    @property
    def whole(self) -> "Graph | None":
        """The graph itself, if this process holds all of it: a whole activation may then be evaluated at once."""

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def check_signal(self, x: Any) -> Tensor:
        """Return ``x`` if it is a signal on the nodes held here; passes rely on it."""

    def one_hop(self, x: Tensor, pass_: Pass, *arguments: Any) -> tuple[Tensor, ...]:
        """Evaluate ``pass_(x, graph, *arguments)``, which reads values of one-hop neighbours."""

    def k_hop(
        self, x: Tensor, hops: int, closed: bool, term: Callable[[Tensor, Any], Tensor], walk: Walk | None = None
    ) -> Sequence[Tensor]:
        """Evaluate a function over the neighbours that walks of 1..hops edges lead to; closed walks may rest.

        ``term(x, lists)`` evaluates it over :class:`NeighborLists`. ``walk``, for functions that allow it, gives the
        same terms one hop after another; used where all nodes of a walk are held here, so that no lists of several
        hops are needed.
        """
