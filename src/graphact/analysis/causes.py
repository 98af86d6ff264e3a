"""Errors by their cause: noise as a whole, or each link that may be lost on its own.

An error is a tensor ``(C, B, N, F)``. What C causes do together is at most the sum of what each does, so errors are
carried through a network cause by cause, and only then added up: over the links that together do the most.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from graphact.graph import Graph


class Causes(Protocol):
    """What can happen to a graph, taken apart."""

    @property
    def count(self) -> int:
        """The number C of causes."""
        ...

    def total(self, errors: Tensor) -> Tensor:
        """What causes can do together, ``(C, B, N, F)`` to ``(B, N, F)``."""
        ...

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """What a perturbed shift adds: S' times the rest so far ``(C, B, N, F)``, and S' - S times the values."""
        ...

    def struck(self) -> Tensor | None:
        """Which cause takes a neighbour from which node, ``(C, N)``; None if none does."""
        ...

    def most_lost(self, degree: int) -> int:
        """How many of its neighbours a node can lose."""
        ...


@dataclass(frozen=True)
class WholeNoise:
    """E with rows of at most ``norm``, where S has ``entries``."""

    magnitudes: Tensor
    entries: Tensor
    norm: float

    @property
    def count(self) -> int:
        """One cause."""
        return 1

    def total(self, errors: Tensor) -> Tensor:
        """There is one."""
        return errors[0]

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """A row of E can put all of its norm on the entry that matters most."""
        reached = torch.where(self.entries.unsqueeze(-1), (rest[0] + values).unsqueeze(-3), 0.0).amax(-2)
        return self.magnitudes @ rest + self.norm * reached

    def struck(self) -> Tensor | None:
        """All neighbours stay."""
        return None

    def most_lost(self, degree: int) -> int:
        """None."""
        return 0 * degree


@dataclass(frozen=True)
class EachLink:
    """Links ``(2, C)`` of which at most ``most`` are lost."""

    magnitudes: Tensor
    links: Tensor
    most: int

    @property
    def count(self) -> int:
        """One cause a link."""
        return self.links.size(1)

    def total(self, errors: Tensor) -> Tensor:
        """The links that do most."""
        return errors.topk(min(self.most, self.count), dim=0).values.sum(0)

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """Each end of a link misses what the other sent; all other entries can only shrink to 0."""
        result = self.magnitudes @ rest
        cause = torch.arange(self.count)
        for here, there in (self.links, self.links.flip(0)):
            missed = self.magnitudes[here, there, None] * values[:, there]
            result[cause, :, here] += missed.transpose(0, 1)
        return result

    def struck(self) -> Tensor | None:
        """The two ends of a link."""
        ends = torch.zeros(self.count, self.magnitudes.size(0), dtype=torch.bool)
        cause = torch.arange(self.count)
        ends[cause, self.links[0]] = ends[cause, self.links[1]] = True
        return ends

    def most_lost(self, degree: int) -> int:
        """Not more than there are."""
        return min(self.most, degree)


def entries_of(graph: Graph) -> Tensor:
    """Where S has entries, ``(N, N)``."""
    (source, target), _ = graph.to_edge_index()
    entries = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
    entries[target, source] = True
    return entries


def links_of(graph: Graph) -> Tensor:
    """The links ``(2, C)``: pairs of nodes of which at least one hears the other, the lower number first."""
    entries = entries_of(graph)
    return (entries | entries.T).triu(1).nonzero().T
