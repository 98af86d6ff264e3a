"""The tensors of a graph that passes over the neighbours read, as one bundle; operators take them as flat lists."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from torch import Tensor

from graphact.graph import Neighborhoods


class CSRLists(NamedTuple):
    """The tensors of :class:`Neighborhoods`; backends take either."""

    rowptr: Tensor
    col: Tensor
    order: Tensor
    sizes: Tensor

    @classmethod
    def from_lists(cls, lists: "Lists") -> "CSRLists":
        """Take them from neighbour lists."""
        return cls(*(getattr(lists, name) for name in cls._fields))

    @staticmethod
    def flat(lists: "Lists") -> list[Tensor]:
        """The tensors, for operators."""
        return list(CSRLists.from_lists(lists))

    @classmethod
    def from_flat(cls, tensors: Sequence[Tensor]) -> "CSRLists":
        """The inverse of :meth:`flat`."""
        return cls(*tensors)


Lists: TypeAlias = Neighborhoods | CSRLists
COUNT = len(CSRLists._fields)


class EdgeLists(NamedTuple):
    """The lists of both directions: the neighbours of each node, and the nodes whose neighbour it is."""

    incoming: Lists
    outgoing: Lists

    @property
    def transposed(self) -> "EdgeLists":
        """The lists of the transposed graph."""
        return EdgeLists(self.outgoing, self.incoming)

    def flat(self) -> list[Tensor]:
        """The tensors, for operators."""
        return [*CSRLists.from_lists(self.incoming), *CSRLists.from_lists(self.outgoing)]

    @classmethod
    def from_flat(cls, tensors: Sequence[Tensor]) -> "EdgeLists":
        """The inverse of :meth:`flat`."""
        return cls(CSRLists(*tensors[:COUNT]), CSRLists(*tensors[COUNT:]))


class GraphTensors(NamedTuple):
    """The lists of both directions and the weights.

    Attributes:
        incoming: for every node its neighbours.
        outgoing: the lists of the transposed graph.
        weight: in the order of ``incoming``; constant.
        weight_t: in the order of ``outgoing``; constant.
        incoming_slot: for each edge, in the order of ``outgoing``, its slot in the incoming list that holds it.
    """

    incoming: Lists
    outgoing: Lists
    weight: Tensor
    weight_t: Tensor
    incoming_slot: Tensor

    @property
    def lists(self) -> EdgeLists:
        """The lists alone."""
        return EdgeLists(self.incoming, self.outgoing)

    def flat(self) -> list[Tensor]:
        """The tensors, for operators."""
        return [self.weight, self.weight_t, self.incoming_slot, *self.lists.flat()]

    @classmethod
    def from_flat(cls, tensors: Sequence[Tensor]) -> "GraphTensors":
        """The inverse of :meth:`flat`."""
        weight, weight_t, incoming_slot, *lists = tensors
        return cls(*EdgeLists.from_flat(lists), weight, weight_t, incoming_slot)
