"""Learning problems as data: graph, signals, targets, splits; losses and metrics by name, for one model or a fleet."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphact._checks import check_choice, check_integer, check_tensor
from graphact.graph import Graph
from graphact.graph.edges import check_finite
from graphact.graph.graph import check_graph


def loss_of(name: str, outputs: Tensor, targets: Tensor, *, leading: int = 0) -> Tensor:
    """The mean loss of each model.

    The first ``leading`` dimensions number models (replicas); the mean runs over all others, so that the losses of a
    fleet come back side by side and may be summed without one model influencing the gradient of another.

    Args:
        name: "cross_entropy" (outputs are logits, targets classes), "mse" or "smooth_l1" (threshold 1).
        outputs: answers, read at the node that counts, or at all nodes.
        targets: what should have been answered.
        leading: how many dimensions number models.

    Shapes:
        outputs: ``(*R, B, out_features)`` with targets ``(*R, B)``, or both ``(*R, B, N, 1)``; result: ``R``.

    Raises:
        ValueError: unknown name, or shapes that do not fit together.

    Example:
        >>> import torch
        >>> outputs = torch.tensor([[[1.0], [2.0]], [[1.0], [5.0]]])  # two models, two samples each
        >>> targets = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
        >>> loss_of("mse", outputs, targets, leading=1)
        tensor([0.0000, 4.5000])
        >>> loss_of("mse", outputs, targets)
        tensor(2.2500)
    """
    check_choice("loss", name, tuple(LOSSES))
    return mean_of_each(LOSSES[name](outputs, targets), leading)


def metric_of(name: str, outputs: Tensor, targets: Tensor, *, leading: int = 0) -> Tensor:
    """The metric of each model: "accuracy" in percent (higher is better) or "rmse" (lower is better).

    Arguments and shapes are those of :func:`loss_of`. Where an answer holds NaN or infinity, as those of a model
    that has diverged do, and without samples, the result is NaN. The metric of several batches is not the mean of their
    metrics: give it all samples together.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 4.0], [1.0, 0.0]])
        >>> metric_of("accuracy", logits, torch.tensor([0, 1, 0, 1]))
        tensor(75.)
    """
    check_choice("metric", name, tuple(METRICS))
    metric = METRICS[name]
    return metric.finish(mean_of_each(metric.each(outputs, targets), leading))


def mean_of_each(values: Tensor, leading: int) -> Tensor:
    """The mean over all but the first ``leading`` dimensions."""
    check_integer("leading", leading, minimum=0)
    if leading >= values.dim():
        raise ValueError(f"leading must leave a dimension of samples, got {leading} for shape {tuple(values.shape)}")
    return values.flatten(leading).mean(-1)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of each sample."""
    check_classes(outputs, targets)
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten(), reduction="none").view(targets.shape)


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Squared error of each number."""
    return (same_shape(outputs, targets) - targets).square()


def is_right(outputs: Tensor, targets: Tensor) -> Tensor:
    """One for each sample whose largest output is that of its class, zero for others, NaN where one is not finite."""
    check_classes(outputs, targets)
    right = (outputs.argmax(-1) == targets).to(outputs.dtype)
    return right.masked_fill(~outputs.isfinite().all(-1), torch.nan)


def check_classes(outputs: Tensor, targets: Tensor) -> None:
    """Raise if the outputs are not one row of logits for each target class."""
    if targets.is_floating_point():
        raise TypeError(f"targets must hold classes, that is integers, got {targets.dtype}")
    if outputs.shape[:-1] != targets.shape:
        raise ValueError(
            f"outputs must have the shape {tuple(targets.shape)} of the targets plus one dimension of classes, "
            f"got {tuple(outputs.shape)}"
        )


def same_shape(outputs: Tensor, targets: Tensor) -> Tensor:
    """The outputs, without their last dimension of one number where the targets lack it."""
    if outputs.shape == (*targets.shape, 1):
        return outputs.squeeze(-1)
    if outputs.shape != targets.shape:
        raise ValueError(
            f"outputs must have the shape {tuple(targets.shape)} of the targets, or one more dimension of size 1, "
            f"got {tuple(outputs.shape)}"
        )
    return outputs


class Metric(NamedTuple):
    """A metric: a value of each sample or number, and what becomes of their mean."""

    each: Callable[[Tensor, Tensor], Tensor]
    finish: Callable[[Tensor], Tensor]
    higher_is_better: bool


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": cross_entropy,
    "mse": squared_error,
    "smooth_l1": lambda outputs, targets: F.smooth_l1_loss(same_shape(outputs, targets), targets, reduction="none"),
}
METRICS: dict[str, Metric] = {
    "accuracy": Metric(is_right, lambda share: 100 * share, higher_is_better=True),
    "rmse": Metric(squared_error, torch.sqrt, higher_is_better=False),
}


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
        loss: "cross_entropy", "mse" or "smooth_l1"; :func:`~graphact.training.loss_of` computes it.
        metric: "accuracy" in percent or "rmse"; :func:`~graphact.training.metric_of` computes it.
        details: what tells this task from its siblings (graph, split, film, ...), as JSON values.
    """

    name: str
    graph: Graph
    inputs: Tensor
    targets: Tensor
    train: Tensor
    validation: Tensor
    test: Tensor
    node: int | None = None
    out_features: int = 1
    loss: str = "mse"
    metric: str = "rmse"
    details: Mapping[str, Any] = field(default_factory=dict)

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

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise if a model answers with another number of features ``(..., out_features)`` than the task has."""
        if outputs.size(-1) != self.out_features:
            raise ValueError(
                f"model must give out_features = {self.out_features} numbers at each node for the task {self.name!r}, "
                f"got {outputs.size(-1)}; make it with out_features={self.out_features}, such as "
                f"GCNN(features, out_features={self.out_features})"
            )

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Task":
        """The same task on another device or in another floating-point type; classes and indices stay integers."""
        device = self.inputs.device if device is None else device
        tensors = ("inputs", "targets", "train", "validation", "test")
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in tensors}
        moved = {name: part.to(dtype) if part.is_floating_point() else part for name, part in moved.items()}
        return replace(self, graph=self.graph.to(device, dtype), **moved)


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
