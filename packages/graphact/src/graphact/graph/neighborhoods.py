"""Neighbour lists of all nodes as CSR, grouped by degree, and what is computed from their pattern alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphact._checks import check_integer
from graphact.graph.handles import new_key

Groups = tuple[tuple[int, int], ...]
Structure = TypeVar("Structure")
KEPT_ON_CPU = {"sizes"}  # wherever the graph is
MAX_WALKS = 500_000_000
MAX_DEGREE_OF_ONE_LAUNCH = 255  # slots are bytes; at most the ALONE of `kernels/triton/launch.py`
BALANCED = 4  # longest list over the mean, up to which nodes keep their own order, which is the kindest to the cache
MAX_UNBALANCED_NODES = 2**16  # of graphs so small that balance does not count


@dataclass(frozen=True, eq=False)
class Neighborhoods:
    """For every node the sorted list of its neighbours, as rows of a CSR matrix and grouped by degree.

    Nodes of equal degree d form a group, and the lists of a group of n nodes are a rectangular ``(n, d)`` table. Any
    function of a neighbourhood then runs on dense tensors, without padding, once for each distinct degree.

    Attributes:
        rowptr: ``(N + 1,)``; the list of node i is ``col[rowptr[i]:rowptr[i + 1]]``.
        col: ``(E,)``; the neighbours, ascending within each list.
        order: ``(N,)``; the nodes by ascending degree, and those of one degree by number.
        sizes: ``(G, 2)`` on the CPU; degree and number of nodes of each group.
        groups: ``sizes`` as Python integers.
        max_degree: the largest degree.
        fits_one_launch: every list has at most 255 entries, and lists are balanced or nodes few: a GPU then walks all
            of them in one launch, and slots are bytes.
        key: by which compiled code knows these lists, see :mod:`graphact.graph.handles`.
    """

    rowptr: Tensor
    col: Tensor
    order: Tensor
    sizes: Tensor
    groups: Groups

    if TYPE_CHECKING:

        @property
        def max_degree(self) -> int: ...
        @property
        def fits_one_launch(self) -> bool: ...
        @property
        def key(self) -> Tensor: ...

    def __post_init__(self) -> None:
        most, nodes = self.groups[-1][0] if self.groups else 0, self.order.numel()
        fits = isinstance(most, int) and most <= MAX_DEGREE_OF_ONE_LAUNCH  # torch.export wraps integers
        fits = fits and (nodes <= MAX_UNBALANCED_NODES or most * nodes <= BALANCED * (self.col.numel() + nodes))
        object.__setattr__(self, "max_degree", most)
        object.__setattr__(self, "fits_one_launch", fits)
        object.__setattr__(self, "key", new_key(self, most, self.fits_one_launch))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    @classmethod
    def from_rowptr(cls, rowptr: Tensor, col: Tensor) -> "Neighborhoods":
        """Build the lists from CSR, columns ascending within each row without repetition."""
        degree = rowptr.diff()
        if degree.device.type == "cpu":
            order, sizes = group_by_degree(degree.numpy())
        else:
            ascending, order = torch.sort(degree, stable=True)
            sizes = torch.stack(torch.unique_consecutive(ascending, return_counts=True), dim=1).cpu()
        return cls.from_sizes(rowptr, col, order, sizes)

    @classmethod
    def from_sizes(cls, rowptr: Tensor, col: Tensor, order: Tensor, sizes: Tensor) -> "Neighborhoods":
        """Build the lists from all their tensors."""
        return cls(rowptr, col, order, sizes, tuple((degree, count) for degree, count in sizes.tolist()))

    @property
    def num_nodes(self) -> int:
        return self.order.numel()

    @property
    def degree(self) -> Tensor:
        return self.rowptr.diff()

    @property
    def rank(self) -> Tensor:
        """``(N,)``; the position of node i in ``order``."""
        return inverse_permutation(self.order)

    @property
    def rows(self) -> Tensor:
        """The node to whose list each entry of ``col`` belongs."""
        nodes = torch.arange(self.num_nodes, device=self.rowptr.device)
        return nodes.repeat_interleave(self.degree, output_size=self.col.numel())

    def is_sound(self, num_entries: int) -> bool:
        """Return true if the lists have this many entries and no index is out of bounds; compiled code relies on it."""
        tensors = (self.rowptr, self.col, self.order, self.sizes)
        if not all(isinstance(part, Tensor) and part.dtype == torch.int64 for part in tensors):
            return False
        if self.col.is_meta:
            return True
        nodes, degree = self.order.numel(), self.rowptr.diff()
        return bool(
            self.rowptr.shape == (nodes + 1,)
            and nodes > 0
            and self.col.shape == (num_entries,)
            and self.rowptr[0] == 0
            and self.rowptr[-1] == num_entries
            and (degree >= 0).all()
            and ((self.col >= 0) & (self.col < nodes)).all()
            and ((self.order >= 0) & (self.order < nodes)).all()
            and self.groups == tuple(map(tuple, self.sizes.tolist()))
            and torch.equal(degree[self.order].cpu(), self.sizes[:, 0].repeat_interleave(self.sizes[:, 1]))
        )

    def tables(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the nodes ``(n,)`` and the neighbour table ``(n, d)`` of each group, by ascending degree d."""
        for nodes, edges in degree_groups(self.rowptr, self.order, self.groups):
            yield nodes, self.col[edges]

    def to(self, device: torch.device | str) -> "Neighborhoods":
        """Return the lists on another device."""
        return map_tensors(self, lambda part: part.to(device))


class Parts(NamedTuple):
    """All attributes of a graph, see :class:`graphact.Graph`."""

    incoming: Neighborhoods
    outgoing: Neighborhoods
    weight: Tensor
    outgoing_weight: Tensor
    diagonal: Tensor | None
    is_directed: bool
    incoming_slot: Tensor
    batch: Tensor | None = None


def degree_groups(
    rowptr: Tensor, order: Tensor, groups: Sequence[tuple[int, int]] | Sequence[list[int]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the nodes ``(n,)`` and the edge positions ``(n, d)`` of each group of nodes with equal degree d."""
    begin = 0
    for degree, count in groups:
        nodes = order[begin : begin + count]
        yield nodes, rowptr[nodes].unsqueeze(1) + torch.arange(degree, device=rowptr.device)
        begin += count


def inverse_permutation(order: Tensor) -> Tensor:
    """Return the position of each of 0..N-1 in ``order``."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))


def group_by_degree(degree: "np.ndarray[Any, Any]") -> tuple[Tensor, Tensor]:
    """Return the nodes by ascending degree, then by number, and the degree and number of nodes of each group."""
    counts = np.bincount(degree)
    present = counts.nonzero()[0]
    if len(counts) <= 1 << 16:
        degree = degree.astype(np.uint16)  # NumPy sorts these by radix, in linear time
    sizes = np.empty((len(present), 2), np.int64)
    sizes[:, 0], sizes[:, 1] = present, counts[present]
    return torch.from_numpy(degree.argsort(kind="stable")), torch.from_numpy(sizes)


def map_tensors(structure: Structure, function: Callable[[Tensor], Tensor]) -> Structure:
    """Return a graph like ``structure`` whose tensors are ``function(tensor)``; tensors shared in it stay shared."""
    mapped: Structure = _map(structure, function, {})
    return mapped


def _map(value: Any, function: Callable[[Tensor], Tensor], done: dict[int, Any]) -> Any:
    """Map a part of a graph; a closure instead would keep all of it alive until garbage is collected."""
    if isinstance(value, dict):
        return {key: _map(part, function, done) for key, part in value.items()}
    if id(value) not in done and isinstance(value, Tensor):
        done[id(value)] = function(value)
    elif id(value) not in done and is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in fields(value) if field.init and field.name not in KEPT_ON_CPU)
        done[id(value)] = replace(value, **{name: _map(getattr(value, name), function, done) for name in names})
    return done.get(id(value), value)


def hop_pattern(incoming_rowptr: Tensor, incoming_col: Tensor, hops: int, closed: bool) -> Neighborhoods:
    """Return the nonzero pattern of A^hops, where A is the pattern of the edges (plus the identity when closed)."""
    import scipy.sparse

    check_integer("hops", hops, minimum=1)
    n = incoming_rowptr.numel() - 1
    rowptr, col = incoming_rowptr.cpu().numpy(), incoming_col.cpu().numpy()
    one_hop = scipy.sparse.csr_array((np.ones(len(col), dtype=bool), col, rowptr), shape=(n, n))
    if closed:
        one_hop = one_hop + scipy.sparse.eye_array(n, dtype=bool, format="csr")
    reached = one_hop.copy()
    for _ in range(hops - 1):
        at_most = int(np.diff(one_hop.indptr).astype(np.int64)[reached.indices].sum())
        if at_most > MAX_WALKS:
            raise ValueError(
                f"hops={hops} would follow {at_most:,} walks on this graph, more than {MAX_WALKS:,}: use fewer hops, "
                "or a graph-adaptive activation, which needs one-hop neighbours only"
            )
        reached = reached @ one_hop
    reached.sort_indices()
    found = (torch.from_numpy(part.astype(np.int64)) for part in (reached.indptr, reached.indices))
    return Neighborhoods.from_rowptr(*found).to(incoming_col.device)
