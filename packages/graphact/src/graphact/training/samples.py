"""The samples of many tasks side by side, and what all models whose parameters are stacked make of them."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphact.storage import digest
from graphact.training import Task, loss_of, metric_of
from graphact.training.loop import TaskBatch
from graphact.training.stacked import StackedGraphs
from graphact.training.task import check_finite

SPLITS = ("train", "validation", "test")


class StackedTasks:
    """R tasks that are alike in everything but graph, samples and node; S samples of N nodes and F features."""

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


class StackedBatch(TaskBatch):
    """Models whose parameters carry a leading replica dimension; trained ones and the rest are stacked by name."""

    def __init__(self, data: StackedTasks, trained: dict[str, Tensor], untrained: dict[str, Tensor]) -> None:
        super().__init__(data.tasks[0], trained.items(), data.seeds)
        self.data, self.trained, self.others = data, trained, untrained

    @abstractmethod
    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """The answers that count to signals ``(R, B, N, F)`` on any graphs, as :meth:`Fleet.forward` gives them."""

    def answers(self, samples: Tensor) -> Tensor:
        """The same for samples ``(R, B)`` of the tasks."""
        return self.forward(self.data.signals(samples), self.data.graphs)

    @abstractmethod
    def write_back(self) -> None:
        """Copy the stacked parameters and buffers to the modules they came from."""

    def in_use(self) -> AbstractContextManager[None]:
        """A context around all calls; modules are only read."""
        return nullcontext()

    def untrained(self) -> list[Tensor]:
        return list(self.others.values())

    def losses(self, positions: Tensor) -> Tensor:
        samples = self.data.splits["train"].gather(1, positions)
        answers = self.answers(samples)
        self.task.check_outputs(answers)
        return loss_of(self.task.loss, answers, self.data.targets_of(samples), leading=1)

    @torch.no_grad()
    def metric(self, split: str) -> Tensor:
        samples = self.data.splits[split]
        return metric_of(self.task.metric, self.answers(samples), self.data.targets_of(samples), leading=1)

    @torch.no_grad()
    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        for best, tensor in zip(kept, self.state(), strict=True):
            mask = better.view(-1, *[1] * (best.dim() - 1))
            best.copy_(torch.where(mask, tensor, best))


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
