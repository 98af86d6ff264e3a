"""The samples of many tasks side by side, and what all models whose parameters are stacked make of them."""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from graphact.data import Task, loss_of, metric_of
from graphact.data.task import check_finite
from graphact.storage import digest
from graphact.training.loop import ModelBatch
from graphact.training.stacked import StackedGraphs

SPLITS = ("train", "validation", "test")


class StackedTasks:
    """R tasks that are alike in everything but graph, samples and node.

    Attributes:
        seeds: ``(R,)``.
        graphs: one for each task.
        inputs: ``(G, S, N, F)``, the samples of each distinct pair of samples and graph.
        owner: ``(R,)``, for each task its place among the G.
        targets: ``(R, S)`` or ``(R, S, N, 1)``.
        splits: the samples ``(R, n)`` of each split.
        nodes: ``(R,)``, the node that is read; None for all nodes.
    """

    def __init__(
        self, tasks: Sequence[Task], seeds: Sequence[int], device: torch.device | str, dtype: torch.dtype
    ) -> None:
        self.tasks = list(tasks)
        self.seeds = torch.tensor(list(seeds), device=device)
        moved = {id(task.graph): task.graph.to(device, dtype) for task in tasks}  # each distinct graph once
        self.graphs = StackedGraphs([moved[id(task.graph)] for task in tasks])
        distinct = {(id(task.inputs), id(task.graph)): task.inputs for task in tasks}
        place = {key: number for number, key in enumerate(distinct)}
        self.owner = torch.tensor([place[id(task.inputs), id(task.graph)] for task in tasks], device=device)
        self.inputs = stack(distinct.values(), device, dtype)
        self.targets = stack([task.targets for task in tasks], device, dtype)
        self.splits = {name: torch.stack([getattr(task, name) for task in tasks]).to(device) for name in SPLITS}
        self.nodes = None if tasks[0].node is None else torch.tensor([task.node for task in tasks], device=device)
        self.replicas = torch.arange(len(tasks), device=device)

    def __len__(self) -> int:
        return len(self.tasks)

    def digest(self) -> str:
        """SHA-256 over samples, graphs and seeds."""
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
        """The targets of samples ``(R, B)``."""
        return self.targets[self.replicas.unsqueeze(1), samples]

    def separately(self) -> list[Task]:
        """The tasks one by one, on the device and in the dtype of this object, whose memory they share."""
        return [
            replace(
                task,
                graph=self.graphs.graphs[number],
                inputs=self.inputs[self.owner[number]],
                targets=self.targets[number],
                train=self.splits["train"][number],
                validation=self.splits["validation"][number],
                test=self.splits["test"][number],
            )
            for number, task in enumerate(self.tasks)
        ]


class StackedBatch(ModelBatch):
    """Models whose parameters carry a leading replica dimension.

    Args:
        data: the tasks.
        trained: the trained parameters, stacked, by name; leaves that require gradients.
        spared: the names of those that weight decay leaves alone.
        untrained: frozen parameters and buffers, stacked, by name.
    """

    def __init__(
        self, data: StackedTasks, trained: dict[str, Tensor], spared: Iterable[str], untrained: dict[str, Tensor]
    ) -> None:
        super().__init__(data.tasks[0], [*trained.values()], [trained[name] for name in spared], data.seeds)
        self.data, self.trained, self.others = data, trained, untrained

    @abstractmethod
    def outputs_on(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """The answers that count to signals ``(R, B, N, F)`` on any graphs.

        ``(R, B, out_features)`` at one node each, or ``(R, B, N, out_features)``.
        """

    def outputs(self, samples: Tensor) -> Tensor:
        """The same for samples ``(R, B)`` of the tasks."""
        return self.outputs_on(self.data.signals(samples), self.data.graphs)

    @abstractmethod
    def write_back(self) -> None:
        """Copy the stacked parameters and buffers to the modules they came from."""

    def in_use(self) -> AbstractContextManager[None]:
        """A context around all calls; modules are only read."""
        return nullcontext()

    def set_mode(self, training: bool) -> None:  # described layers have one mode
        """Switch between training and evaluation, where that makes a difference."""

    def untrained(self) -> list[Tensor]:
        return list(self.others.values())

    def losses(self, positions: Tensor) -> Tensor:
        samples = self.data.splits["train"].gather(1, positions)
        self.set_mode(training=True)
        return loss_of(self.task.loss, self.outputs(samples), self.data.targets_of(samples), leading=1)

    @torch.no_grad()
    def metric(self, split: str, graphs: StackedGraphs | None = None, inputs: Tensor | None = None) -> Tensor:
        """On other graphs and inputs than those of the tasks where given."""
        samples = self.data.splits[split]
        answers = self.answers(samples, graphs, inputs)
        return metric_of(self.task.metric, answers, self.data.targets_of(samples), leading=1)

    def answers(self, samples: Tensor, graphs: StackedGraphs | None = None, inputs: Tensor | None = None) -> Tensor:
        """The answers that count to samples ``(R, B)``, in evaluation mode."""
        if graphs is None and inputs is None:
            self.set_mode(training=False)
            return self.outputs(samples)
        return self.forward(self.data.signals(samples, inputs), graphs or self.data.graphs)

    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """The answers that count to signals ``(R, B, N, F)``, in evaluation mode."""
        self.set_mode(training=False)
        return self.outputs_on(x, graphs)

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
        for name in ("loss", "metric", "out_features"):
            if getattr(task, name) != getattr(first, name):
                raise ValueError(f"tasks must agree in {name}, got {getattr(first, name)!r}, {getattr(task, name)!r}")
        for name in ("inputs", "targets", *SPLITS):
            if getattr(task, name).shape != getattr(first, name).shape:
                raise ValueError(
                    f"{name} of the tasks must have one shape, got {tuple(getattr(first, name).shape)} "
                    f"and {tuple(getattr(task, name).shape)}"
                )
        if (task.node is None) != (first.node is None):
            raise ValueError("tasks must all read one node or all read every node")
    check_samples(tasks)


def check_samples(tasks: Sequence[Task]) -> None:
    """Raise if a sample holds NaN or infinity; a task was checked when it was made, but tensors can be written to."""
    tensors: dict[int, tuple[str, Tensor]] = {}
    for number, task in enumerate(tasks):
        for name in ("inputs", "targets"):
            tensor = getattr(task, name)
            tensors.setdefault(id(tensor), (f"{name} of task {number}" if len(tasks) > 1 else name, tensor))
    for name, tensor in tensors.values():
        check_finite(name, tensor)


def stack(tensors: Iterable[Tensor], device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Numbers in the given precision, classes as they are."""
    stacked = torch.stack(list(tensors))
    return stacked.to(device, dtype) if stacked.is_floating_point() else stacked.to(device)
