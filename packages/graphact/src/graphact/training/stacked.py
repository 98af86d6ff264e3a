"""Stacked graphs and samples, one for each model of a fleet.

Signals have the shape ``(R, N, B, F)``: replica, node, sample, feature. With the nodes before the samples, a shift is
one matrix product for each replica, mixing features is another, and the neighbourhoods of all replicas are those of
one disjoint union whose rows are long and contiguous.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.graph.edges import check_finite
from graphact.kernels import autograd
from graphact.kernels.reference import own_term
from graphact.storage import digest
from graphact.training.task import Task

MAX_DENSE_NODES = 256
SPLITS = ("train", "validation", "test")


class StackedGraphs:
    """R graphs of N nodes each, of which several may be the same one.

    Attributes:
        graphs: the graphs.
        num_nodes: N.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        sizes = {graph.num_nodes for graph in graphs}
        if len(sizes) != 1:
            raise ValueError(f"graphs of a fleet must have equally many nodes, got {sorted(sizes)}")
        self.graphs, self.num_nodes = list(graphs), sizes.pop()
        distinct = {id(graph): graph for graph in graphs}
        self._distinct = list(distinct.values())
        place = {key: number for number, key in enumerate(distinct)}
        self._replica = torch.tensor([place[id(graph)] for graph in graphs], device=graphs[0].device)
        self._powers: dict[int, Tensor] = {}
        self._scaled_vectors: dict[int, Tensor] = {}

    @cached_property
    def union(self) -> Graph:
        return Graph.union(self.graphs)

    @cached_property
    def dense(self) -> Tensor | None:
        """The shift operators as matrices ``(R, N, N)``, where N is small; None otherwise."""
        return None if self.num_nodes > MAX_DENSE_NODES else self._matrices()[self._replica]

    @cached_property
    def spectra(self) -> tuple[Tensor, Tensor] | None:
        """Eigenvalues ``(R, N)`` and eigenvectors ``(R, N, N)`` of small symmetric operators; None otherwise."""
        if self.num_nodes > MAX_DENSE_NODES or any(graph.is_directed for graph in self._distinct):
            return None
        matrices = self._matrices()
        values, vectors = torch.linalg.eigh(matrices.double())
        return values.to(matrices.dtype)[self._replica], vectors.to(matrices.dtype)[self._replica]

    def _matrices(self) -> Tensor:
        return torch.stack([graph.to_dense() for graph in self._distinct])

    def power(self, hop: int) -> Tensor:
        """``S^hop`` where the operators are matrices, ``(R, N, N)``."""
        assert self.dense is not None
        return torch.linalg.matrix_power(self.dense.double(), hop).to(self.dense.dtype)

    def powers_of_eigenvalues(self, count: int) -> Tensor:
        """The powers 0..count - 1 of the eigenvalues, ``(R, N, count)``; computed once."""
        assert self.spectra is not None
        if count not in self._powers:
            self._powers[count] = torch.linalg.vander(self.spectra[0], N=count)
        return self._powers[count]

    def scaled_vectors(self, hop: int) -> Tensor:
        """The eigenvectors times their eigenvalues to the power of ``hop``, ``(R, N, N)``; computed once."""
        assert self.spectra is not None
        values, vectors = self.spectra
        if hop == 0:
            return vectors
        if hop not in self._scaled_vectors:
            self._scaled_vectors[hop] = vectors * values.pow(hop).unsqueeze(1)
        return self._scaled_vectors[hop]

    def shift(self, x: Tensor) -> Tensor:
        """``S x`` for each replica."""
        if self.dense is not None:
            return torch.bmm(self.dense, x.flatten(2)).view(x.shape)
        shifted = autograd.shift(x.flatten(0, 1).flatten(1), self.union).view(x.shape)
        if self.union.diagonal is None:
            return shifted
        return shifted + own_term(self.union.diagonal.view(*x.shape[:2], 1, 1), x)


class EgoGraphs:
    """A node of each replica, its center, and the center's neighbours: all that a last layer needs to read one node.

    The members of an ego graph are put into D ``slots`` ``(R, D)`` in ascending order, the center among them; smaller
    ones leave slots over, which repeat the center and are not ``filled``. ``nodes`` ``(R,)`` are the centers; both
    count through the union of all graphs.
    """

    def __init__(self, graphs: StackedGraphs, nodes: Tensor) -> None:
        self.graphs = graphs
        replicas = torch.arange(len(nodes), device=nodes.device)
        self.nodes = nodes + replicas * graphs.num_nodes
        rowptr, col = graphs.union.incoming.rowptr, graphs.union.incoming.col
        counts = rowptr[self.nodes + 1] - rowptr[self.nodes]
        replica_of_edge = replicas.repeat_interleave(counts)
        offset = torch.arange(len(replica_of_edge), device=nodes.device) - (counts.cumsum(0) - counts)[replica_of_edge]
        neighbors = col[rowptr[self.nodes][replica_of_edge] + offset]
        rows = torch.unique(torch.cat([neighbors, self.nodes]))
        owner, sizes = rows // graphs.num_nodes, counts + 1
        slot = torch.arange(len(rows), device=nodes.device) - (sizes.cumsum(0) - sizes)[owner]
        self.slots = self.nodes.unsqueeze(1).repeat(1, int(sizes.max()))
        self.slots[owner, slot] = rows
        self.filled = torch.zeros_like(self.slots, dtype=torch.bool)
        self.filled[owner, slot] = True
        self._replica_of_edge, self._neighbor_slot = replica_of_edge, slot[torch.searchsorted(rows, neighbors)]
        self._center_slot = slot[torch.searchsorted(rows, self.nodes)]
        self._unions: dict[int, tuple[Graph, Tensor]] = {}
        self._rows: dict[tuple[bool, tuple[int, ...]], Tensor] = {}
        self._hop_lists: dict[tuple[int, bool], list[Neighborhoods]] = {}

    def hop_lists(self, hops: int, closed: bool) -> list[Neighborhoods]:
        """The neighbours of the centers over 1..hops hops in the union of all graphs, where others have none."""
        if (hops, closed) not in self._hop_lists:
            made = []
            for hop in range(1, hops + 1):
                full = self.graphs.union.hop_pattern(hop, closed=closed)
                counts = torch.zeros_like(full.degree)
                counts[self.nodes] = full.degree[self.nodes]  # of ascending nodes, so the lists keep their order
                is_kept = counts.bool().repeat_interleave(full.degree)
                made.append(Neighborhoods.from_rowptr(F.pad(counts.cumsum(0), (1, 0)), full.col[is_kept]))
            self._hop_lists[hops, closed] = made
        return self._hop_lists[hops, closed]

    def union(self, hops: int) -> tuple[Graph, Tensor]:
        """The ego graphs of all replicas and hops, and the positions ``(R * hops,)`` of their centers.

        Each replica has D nodes a hop, then its center once more without an edge: the layout of
        :meth:`KnownSignal.around
        <graphact.training.stacked_signals.KnownSignal.around>`.
        """
        if hops not in self._unions:
            replicas, width = self.slots.shape
            device = self.slots.device
            starts = torch.arange(replicas, device=device).unsqueeze(1) * (hops * width + 1)
            starts = starts + torch.arange(hops, device=device) * width
            centers = starts + self._center_slot.unsqueeze(1)
            sources = starts[self._replica_of_edge] + self._neighbor_slot.unsqueeze(1)
            edge_index = torch.stack([sources.flatten(), centers[self._replica_of_edge].flatten()])
            graph = Graph.from_edge_index(edge_index, num_nodes=replicas * (hops * width + 1))
            self._unions[hops] = graph, centers.flatten()
        return self._unions[hops]

    def rows(self, hops: tuple[int, ...], in_eigenbasis: bool) -> Tensor:
        """The rows of ``S^hop`` at the slots, hop after hop, then the center's row of the identity; computed once.

        They are multiplied by the eigenvectors for signals that are given in the eigenbasis.
        """
        if (in_eigenbasis, hops) not in self._rows:
            power = self.graphs.scaled_vectors if in_eigenbasis else self.graphs.power
            parts = [power(hop).flatten(0, 1)[self.slots] * self.filled.unsqueeze(2) for hop in hops]
            center = power(0).flatten(0, 1)[self.nodes].unsqueeze(1)
            self._rows[in_eigenbasis, hops] = torch.cat([*parts, center], dim=1)
        return self._rows[in_eigenbasis, hops]


class StackedTasks:
    """R tasks that differ in graph, samples and node alone; S samples of N nodes and F features."""

    def __init__(
        self, tasks: Sequence[Task], seeds: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self.tasks = list(tasks)
        self.seeds = torch.tensor(list(seeds), device=device)
        moved = {id(task.graph): task.graph.to(device, dtype) for task in tasks}  # each distinct graph once
        self.graphs = StackedGraphs([moved[id(task.graph)] for task in tasks])
        # (G, S, N, F), the samples of each distinct pair of samples and graph; (R,), the place of each task among the G
        distinct = {(id(task.inputs), id(task.graph)): task.inputs for task in tasks}
        place = {key: number for number, key in enumerate(distinct)}
        self.inputs = stack(distinct.values(), device, dtype)
        self.owner = torch.tensor([place[id(task.inputs), id(task.graph)] for task in tasks], device=device)
        self.targets = stack([task.targets for task in tasks], device, dtype)  # (R, S) or (R, S, N, 1)
        if dtype.itemsize < tasks[0].inputs.dtype.itemsize:
            check_finite(f"inputs in {dtype}", self.inputs)
            check_finite(f"targets in {dtype}", self.targets)
        self.splits = {name: torch.stack([getattr(task, name) for task in tasks]).to(device) for name in SPLITS}
        self.nodes = None if tasks[0].node is None else torch.tensor([task.node for task in tasks], device=device)
        self.replicas = torch.arange(len(tasks), device=device)

    def __len__(self) -> int:
        return len(self.tasks)

    def digest(self) -> str:
        tensors = [self.inputs, self.targets, self.owner, self.seeds, *self.splits.values()]
        tensors += [] if self.nodes is None else [self.nodes]
        return digest_of([*tensors, *self.graphs.union.to_edge_index()])

    def first_owners(self) -> list[int]:
        """For each of the distinct pairs of samples and graph, the first task that has it."""
        first = {owner: number for number, owner in reversed(list(enumerate(self.owner.tolist())))}
        return [first[owner] for owner in range(len(first))]

    def signals(self, samples: Tensor, inputs: Tensor | None = None) -> Tensor:
        """The inputs ``(R, B, N, F)`` of samples ``(R, B)``, or others that are stacked like them."""
        return (self.inputs if inputs is None else inputs)[self.owner.unsqueeze(1), samples]

    def targets_of(self, samples: Tensor) -> Tensor:
        return self.targets[self.replicas.unsqueeze(1), samples]

    def separately(self) -> list[Task]:
        """The tasks one by one, on the device and in the dtype of this object, whose memory they share."""
        tasks = []
        for number, (task, owner) in enumerate(zip(self.tasks, self.owner.tolist(), strict=True)):
            splits: dict[str, Any] = {name: samples[number] for name, samples in self.splits.items()}
            graph, inputs, targets = self.graphs.graphs[number], self.inputs[owner], self.targets[number]
            tasks.append(replace(task, graph=graph, inputs=inputs, targets=targets, **splits))
        return tasks


def digest_of(tensors: Iterable[Tensor]) -> str:
    """SHA-256 over types, shapes and values."""
    return hashlib.sha256("".join(digest(tensor.detach().cpu()) for tensor in tensors).encode()).hexdigest()


def check_tasks(tasks: Sequence[Task]) -> None:
    """Raise if tasks cannot be trained as one, or hold NaN."""
    first = tasks[0]
    for task in tasks:
        for name in ("loss", "metric", "out_features", "inputs", "targets", *SPLITS):
            ours, theirs = getattr(first, name), getattr(task, name)
            if isinstance(ours, Tensor):
                if ours.shape != theirs.shape:
                    shapes = f"{tuple(ours.shape)} and {tuple(theirs.shape)}"
                    raise ValueError(f"{name} of the tasks must have one shape, got {shapes}")
            elif ours != theirs:
                raise ValueError(f"tasks must agree in {name}, got {ours!r}, {theirs!r}")
        if (task.node is None) != (first.node is None):
            raise ValueError("tasks must all read one node or all read every node")
    check_samples(tasks)


def check_samples(tasks: Sequence[Task]) -> None:
    """Raise if a sample holds NaN or infinity; a task was checked when it was made, but tensors can be written to."""
    seen = set[int]()
    for number, task in enumerate(tasks):
        for name, tensor in (("inputs", task.inputs), ("targets", task.targets)):
            if id(tensor) not in seen:
                check_finite(f"{name} of task {number}" if len(tasks) > 1 else name, tensor)
                seen.add(id(tensor))


def stack(tensors: Iterable[Tensor], device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Side by side, numbers in the given precision."""
    return cast(torch.stack(list(tensors)), device, dtype)


def cast(tensor: Tensor, device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Numbers in the given precision, classes as they are."""
    return tensor.to(device, dtype if tensor.is_floating_point() else None)
