"""The tensors of a graph that passes over the neighbours read, as one bundle.

Operators take a bundle as a flat list of tensors or, in compiled code, as the handles of the objects that hold them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.graph.handles import find_object


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

    @staticmethod
    def handles(lists: Any) -> list[int]:
        """The handles, for operators in compiled code; there the handle itself stands for the lists."""
        return [lists]

    @staticmethod
    def from_handles(handles: Sequence[int]) -> int:
        """The inverse of :meth:`handles`."""
        return handles[0]

    @staticmethod
    def find(handle: int) -> Neighborhoods:
        """The lists with a handle."""
        found: Neighborhoods = find_object(handle)
        return found


class OneLaunchLists(NamedTuple):
    """Lists that one launch walks, see :attr:`Neighborhoods.fits_one_launch`; compiled code knows no more of them."""

    rowptr: Tensor
    col: Tensor

    @property
    def order(self) -> Tensor:
        """A stand-in; the nodes keep their own order."""
        return self.rowptr


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

    def handles(self) -> list[Any]:
        """The handles, for operators in compiled code."""
        return [*self]

    @classmethod
    def from_handles(cls, handles: Sequence[Any]) -> "EdgeLists":
        """The inverse of :meth:`handles`."""
        return cls(*handles)

    @classmethod
    def find(cls, handles: Any) -> "EdgeLists":
        """The lists with these handles."""
        return cls(find_object(handles.incoming), find_object(handles.outgoing))


class GraphTensors(NamedTuple):
    """The lists of both directions and the weights.

    Attributes:
        incoming: for every node its neighbours.
        outgoing: the lists of the transposed graph.
        weight: in the order of ``incoming``; constant.
        weight_t: in the order of ``outgoing``; constant.
        incoming_slot: for each edge, in the order of ``outgoing``, its slot in the incoming list that holds it.
        handle: in compiled code the handle of the graph, which stands for all its tensors; else 0.
    """

    incoming: Lists
    outgoing: Lists
    weight: Tensor
    weight_t: Tensor
    incoming_slot: Tensor
    handle: int = 0

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

    @classmethod
    def handles_of(cls, graph: Graph) -> "GraphTensors":
        """The handles of a graph, in the places of its lists, without tensors."""
        nothing: Any = None
        incoming: Any = graph.incoming.key.size(0)
        outgoing: Any = graph.outgoing.key.size(0)
        return cls(incoming, outgoing, nothing, nothing, nothing, graph.key.size(0))

    def handles(self) -> list[Any]:
        """The handles, for operators in compiled code."""
        return [self.handle, *self.lists]

    @classmethod
    def from_handles(cls, handles: Sequence[Any]) -> "GraphTensors":
        """The inverse of :meth:`handles`."""
        handle, incoming, outgoing = handles
        nothing: Any = None
        return cls(incoming, outgoing, nothing, nothing, nothing, handle)

    @staticmethod
    def find(handles: "GraphTensors") -> "GraphTensors":
        """The tensors of the graph with these handles."""
        from graphact.kernels.autograd import tensors_of

        return tensors_of(find_object(handles.handle))


def is_of_handles(bundle: Any) -> bool:
    """Return true if a bundle consists of handles."""
    first = bundle[0] if isinstance(bundle, tuple) else bundle
    return isinstance(first, (int, torch.SymInt))
