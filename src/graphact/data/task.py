"""A learning problem as data: graph, signals, targets, splits, loss and metric."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_choice, check_integer, check_tensor
from graphact.data.scoring import LOSSES, METRICS
from graphact.graph import Graph
from graphact.graph.graph import check_graph


@dataclass(frozen=True, eq=False)
class Task:
    """One learning problem on one graph. Nothing in it is random any more: the functions that make tasks take seeds.

    Attributes:
        name: the kind of problem, such as "consensus"; experiments find their baselines by it.
        graph: the shift operator S, an adjacency matrix divided by its largest eigenvalue magnitude.
        inputs: ``(M, N, F)``, M signals of F features on the N nodes; a task as the paper has it has one feature.
        targets: ``(M,)`` classes (int64) or numbers where ``node`` is set, ``(M, N, 1)`` numbers otherwise.
        train: indices of the samples to learn from; the three index tensors (int64) share no sample.
        validation: indices of the samples to choose with; empty where a task has none.
        test: indices of the samples to report on.
        node: the node whose output counts; None for all nodes.
        out_features: how many numbers a node answers with: the number of classes, or 1.
        loss: "cross_entropy", "mse" or "smooth_l1"; :func:`~graphact.data.loss_of` computes it.
        metric: "accuracy" in percent or "rmse"; :func:`~graphact.data.metric_of` computes it.
        details: what tells this task from its siblings (graph, split, film, ...), as JSON values.
    """

    name: str
    graph: Graph
    inputs: Tensor
    targets: Tensor
    train: Tensor
    validation: Tensor
    test: Tensor
    node: int | None
    out_features: int
    loss: str
    metric: str
    details: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_graph("graph", self.graph)
        check_choice("loss", self.loss, tuple(LOSSES))
        check_choice("metric", self.metric, tuple(METRICS))
        check_integer("out_features", self.out_features, minimum=1)
        count, nodes = check_tensor("inputs", self.inputs).size(0), self.graph.num_nodes
        if self.inputs.dim() != 3 or self.inputs.size(1) != nodes or self.inputs.size(2) == 0:
            raise ValueError(f"inputs must have the shape (M, {nodes}, F), got {tuple(self.inputs.shape)}")
        if self.node is not None and not 0 <= check_integer("node", self.node, minimum=0) < nodes:
            raise ValueError(f"node must be None or from 0 to {nodes - 1}, got {self.node}")
        expected = (count, nodes, 1) if self.node is None else (count,)
        if check_tensor("targets", self.targets).shape != expected:
            raise ValueError(f"targets must have the shape {expected}, got {tuple(self.targets.shape)}")
        check_finite("inputs", self.inputs)
        check_finite("targets", self.targets)
        check_split(self.train, self.validation, self.test, count)

    @property
    def higher_is_better(self) -> bool:
        return METRICS[self.metric].higher_is_better

    def read(self, outputs: Tensor) -> Tensor:
        """Of the outputs ``(..., N, out_features)`` those that count: of ``node``, ``(..., out_features)``, or all."""
        return outputs if self.node is None else outputs[..., self.node, :]

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Task":
        """The same task on another device or in another floating-point type; classes and indices stay integers."""
        device = self.inputs.device if device is None else device
        tensors = ("inputs", "targets", "train", "validation", "test")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in tensors}
        moved = {name: part.to(dtype) if part.is_floating_point() else part for name, part in moved.items()}
        return replace(self, graph=self.graph.to(device, dtype), **moved)


def check_finite(name: str, values: Tensor) -> None:
    """Raise if a sample holds NaN or infinity: training would end in NaN without a word."""
    bad = ~values.isfinite()
    if bool(bad.any()):
        place = bad.nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite numbers, got {values[tuple(place)].item()} at {name}{place}")


def check_split(train: Tensor, validation: Tensor, test: Tensor, count: int) -> None:
    """Raise if index tensors are no integers, leave the samples 0 to ``count - 1``, or share one."""
    parts = {"train": train, "validation": validation, "test": test}
    for name, part in parts.items():
        if check_tensor(name, part).dtype != torch.int64 or part.dim() != 1:
            raise TypeError(
                f"{name} must hold int64 indices of shape (n,), got {part.dtype} of shape {tuple(part.shape)}"
            )
    everything = torch.cat(list(parts.values()))
    outside = everything[(everything < 0) | (everything >= count)]
    if outside.numel():
        raise ValueError(f"train, validation and test must hold samples from 0 to {count - 1}, got {int(outside[0])}")
    samples, times = torch.unique(everything, return_counts=True)
    if samples.numel() != everything.numel():
        twice = int(samples[times > 1][0])
        raise ValueError(f"train, validation and test must not share samples, got sample {twice} more than once")
