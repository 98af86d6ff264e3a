"""A graph distributed over processes; it answers the protocol of a local one."""

import ctypes
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from graphact._checks import HALF_PRECISION, check_integer
from graphact.distributed.halo import HaloPlan, HaloSplit, Traffic, split_halo, split_k_hop
from graphact.distributed.partition import (
    METHODS,
    Array,
    Method,
    Part,
    assign_nodes,
    find_halos,
    graph_digest,
    read_part,
    take_part,
)
from graphact.distributed.process_group import PartitionError, all_gather, broadcast, raise_on_all_ranks, size_and_rank
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_values
from graphact.graph.protocol import Pass, Walk


class PartitionedGraph:
    """The part of a graph that this process holds, and its links to the parts that others hold.

    Every module of graphact takes it in the place of a :class:`~graphact.Graph`: ``model(x_local, graph)``, where
    ``x_local`` of shape ``(..., n, F)`` holds the values of the nodes ``graph.nodes``. All processes must call the same
    modules in the same order, forward and backward, also those that hold no node.

    Use the constructors: :meth:`from_graph`, or :meth:`load` where no process may load the whole graph.

    Attributes:
        rank: this process.
        parts: number of processes.
        group: the processes; None is all of them.
        device: where the graph is kept.
        dtype: the floating-point type of the weights.
        num_nodes: number n of nodes held here.
        total_nodes: number of nodes of the whole graph.
        nodes: ``(n,)``, the nodes held here, ascending: ``x_local = x[..., graph.nodes, :]``.
        num_edges: directed edges to the nodes held here.
        num_halo: in-neighbours of nodes held here that are held elsewhere.
        halo_fraction: such nodes for each node held here.
        num_sent: values of nodes held here that go to other processes in one exchange.
        traffic: what has been exchanged so far, in bytes.
        digest: SHA-256 of the graph and its cut, the same on all processes.

    Example:
        >>> import torch, graphact
        >>> from graphact.distributed import PartitionedGraph
        >>> graph = graphact.Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
        >>> model = graphact.nn.GCNN([1, 4], order=2, activation="max-ga")
        >>> x = torch.randn(20, 1)
        >>> part = PartitionedGraph.from_graph(graph)  # of one process, unless torch.distributed runs
        >>> torch.equal(model(x[part.nodes], part), model(x, graph))
        True
    """

    def __init__(self, part: Part, group: dist.ProcessGroup | None = None) -> None:
        self._part, self.group = part, group
        self.rank, self.parts = part.rank, part.parts
        self.total_nodes, self.digest = part.total_nodes, part.digest
        self.nodes = torch.from_numpy(part.nodes.astype(np.int64))
        self.num_nodes, self.num_edges = self.nodes.numel(), len(part.rows.col)
        self.num_halo, self.num_sent = len(part.known) - self.num_nodes, len(part.send)
        self.halo_fraction = self.num_halo / max(1, self.num_nodes)
        self.traffic = Traffic()
        send = torch.from_numpy(part.send.astype(np.int64))
        counts = tuple(part.send_counts.tolist()), tuple(part.halo_counts.tolist())
        self._one_hop = split_halo(part.owner, part.rank, [part.rows], HaloPlan(send, *counts, group, self.traffic))
        self._k_hop: dict[tuple[int, bool], HaloSplit] = {}
        self.device, self.dtype = self.nodes.device, torch.from_numpy(part.rows.weight[:0]).dtype
        # Give freed memory back to the system where the C library can; building a part needs twice what it keeps
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    @classmethod
    def from_graph(
        cls, graph: Graph, owner: Tensor | Method = "auto", *, group: dist.ProcessGroup | None = None
    ) -> "PartitionedGraph":
        """Take this process's part of a graph that every process has.

        Args:
            graph: the whole graph.
            owner: the process of each node, integers of shape ``(N,)``; or how to assign them, see
                :func:`~graphact.distributed.assign_nodes`. The first process assigns, so that all agree.
            group: the processes; all of them when left out.

        Raises:
            PartitionError: an argument is wrong on some process, or the graph is not the same on all.
        """
        parts, rank = size_and_rank(group)
        graph, found = raise_on_all_ranks(lambda: _check_whole(graph), group)
        check_same_digest("graph", found, group)
        owners = raise_on_all_ranks(lambda: _check_owner(graph, owner, parts, rank), group)
        owners = broadcast(owners, group)
        part = take_part(graph, owners, rank, find_halos(graph, owners, parts))
        digest = hashlib.sha256(f"{found} {hashlib.sha256(owners.tobytes()).hexdigest()}".encode()).hexdigest()
        return cls(replace(part, digest=digest), group).to(graph.device)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, group: dist.ProcessGroup | None = None) -> "PartitionedGraph":
        """Read this process's part from the files that ``graphact partition`` wrote.

        Every process checks its own file; what one finds wrong, all report.

        Raises:
            PartitionError: a file is missing, truncated or altered, or written for another number of processes; or the
                processes have read parts of different partitions. The message names it, on every process.
        """
        parts, rank = size_and_rank(group)
        part = raise_on_all_ranks(lambda: read_part(directory, rank, parts), group)
        check_same_digest("the folder of the partition", part.digest, group)
        return cls(part, group)

    def __repr__(self) -> str:
        return (
            f"PartitionedGraph(part {self.rank} of {self.parts}: {self.num_nodes:,} of {self.total_nodes:,} nodes, "
            f"{self.num_edges:,} edges, {self.num_halo:,} halo nodes, dtype={self.dtype}, "
            f"device={self.device})"
        )

    def to(
        self, device: torch.device | str | torch.dtype | None = None, dtype: torch.dtype | None = None
    ) -> "PartitionedGraph":
        """The same part on another device or with weights of another floating-point type; both count one traffic."""
        if isinstance(device, torch.dtype):
            device, dtype = None, device
        moved = copy(self)
        place, moved.dtype = torch.device(device or self.device), dtype or self.dtype
        moved.nodes = self.nodes.to(place)
        moved.device = moved.nodes.device
        moved._one_hop = self._one_hop.to(place, moved.dtype)
        moved._k_hop = {key: split.to(place, moved.dtype) for key, split in self._k_hop.items()}
        return moved

    whole = None  # no process holds all of it

    def check_signal(self, x: Any) -> Tensor:
        """Return ``x`` if it is a signal on the nodes held here."""
        if isinstance(x, Tensor) and x.dim() >= 2 and x.size(-2) != self.num_nodes:
            raise ValueError(
                f"x must have the shape (..., n, F) with n = {self.num_nodes}, the nodes that process {self.rank} "
                f"holds (graph.nodes), got {tuple(x.shape)}"
            )
        return check_values(x, self)

    def one_hop(self, x: Tensor, pass_: Pass, *arguments: Any) -> tuple[Tensor, ...]:
        """Evaluate ``pass_(x, graph, *arguments)`` with one exchange between the processes."""
        return self._one_hop.run(x, lambda y, graph: pass_(y, graph, *arguments))

    def k_hop(
        self, x: Tensor, hops: int, closed: bool, term: Callable[[Tensor, Any], Tensor], walk: Walk | None = None
    ) -> tuple[Tensor, ...]:
        """Evaluate a function over the neighbours 1..hops hops away, with one exchange for all of them."""
        del walk  # leads through nodes held elsewhere
        return self._split(hops, closed).run(x, lambda y, *graphs: tuple(term(y, graph) for graph in graphs))

    def reach_size(self, hops: int, closed: bool = False) -> tuple[int, int]:
        """Count the values that this process sends and receives in an exchange that reaches ``hops`` hops."""
        plan = self._split(hops, closed).plan
        return plan.send.numel(), sum(plan.halo_counts)

    def _split(self, hops: int, closed: bool) -> HaloSplit:
        check_integer("hops", hops, minimum=1)
        if hops == 1 and not closed:
            return self._one_hop
        if (hops, closed) not in self._k_hop:
            split = raise_on_all_ranks(lambda: split_k_hop(self._part, self._one_hop.plan, hops, closed), self.group)
            self._k_hop[hops, closed] = split.to(self.device, self.dtype)
        return self._k_hop[hops, closed]


def check_same_digest(what: str, digest: str, group: dist.ProcessGroup | None) -> None:
    """Raise on every process if one has another digest: parts that do not belong together compute something else."""
    digests = all_gather(digest, group)
    for rank, other in enumerate(digests):
        if other != digests[0]:
            found = f"SHA-256 {digests[0]:.12} on process 0 and {other:.12} on process {rank}"
            raise PartitionError(f"{what} must be the same on every process, got {found}")


def _check_whole(graph: Any) -> tuple[Graph, str]:
    """The graph, in a precision that can be cut, and its digest."""
    graph = check_graph("graph", graph)
    graph = graph.to(dtype=torch.float32) if graph.dtype in HALF_PRECISION else graph
    return graph, graph_digest(graph)


def _check_owner(graph: Graph, owner: Any, parts: int, rank: int) -> Array | None:
    """The process of each node; where a method is named, the first process computes it."""
    if isinstance(owner, str):
        if owner not in METHODS:
            raise ValueError(f"owner must be one of {', '.join(map(repr, METHODS))} or a tensor, got {owner!r}")
        return assign_nodes(graph, parts, owner)[0].astype(np.int64) if rank == 0 else None  # type: ignore[arg-type]
    owner = torch.as_tensor(owner)
    if owner.is_floating_point() or owner.dtype == torch.bool or owner.shape != (graph.num_nodes,):
        raise ValueError(f"owner must hold {graph.num_nodes} integers, got {owner.dtype} of shape {tuple(owner.shape)}")
    if int(owner.min()) < 0 or int(owner.max()) >= parts:
        raise ValueError(f"owner must hold processes from 0 to {parts - 1}, got {int(owner.min())}..{int(owner.max())}")
    return owner.to("cpu", torch.int64).numpy()
