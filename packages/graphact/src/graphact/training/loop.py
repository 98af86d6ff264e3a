"""The training loop, for one model or many: epochs of Adam, and of each model the parameters that validated best."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from graphact.progress import EpochProgress
from graphact.training.module_state import trained_parameters, untrained_tensors
from graphact.training.randomness import epoch_order
from graphact.training.settings import TrainingSettings
from graphact.training.task import Task
from graphact.training.threads import timed

WARM_UP_STEPS = 3  # before a step is recorded on a GPU

Step = Callable[[Tensor], Tensor]  # takes positions (R, B) of training samples, moves all models, returns losses (R,)


class ModelBatch(ABC):
    """R models with seeds ``(R,)`` as the training loop sees them.

    Args:
        parameters: what is trained, by name.
        seeds: they decide the order of the samples.
        num_samples: training samples of each model.
        has_validation: whether models are selected by a validation metric, or the last ones are kept.
        higher_is_better: of that metric.
    """

    def __init__(
        self,
        parameters: Iterable[tuple[str, Tensor]],
        seeds: Tensor,
        num_samples: int,
        has_validation: bool,
        higher_is_better: bool,
    ) -> None:
        named = list(parameters)
        self.seeds, self.parameters = seeds, [parameter for _, parameter in named]
        self.without_decay = [parameter for name, parameter in named if name.endswith("bias")]
        self.num_samples, self.has_validation, self.higher_is_better = num_samples, has_validation, higher_is_better

    @abstractmethod
    def untrained(self) -> list[Tensor]:
        """Everything else that the next epoch depends on: buffers, such as running means, and frozen parameters."""

    def begin_step(self, epoch: int, number: int) -> None:  # noqa: B027, in most batches nothing is random
        """Called before each step; random operations of the step draw from streams of their own."""

    @abstractmethod
    def backward(self, positions: Tensor) -> Tensor:
        """Add to the gradients; return the loss ``(R,)`` on the training samples at ``positions`` ``(R, B)``."""

    @abstractmethod
    def validate(self) -> Tensor:
        """The validation metric ``(R,)`` of each model."""

    def state(self) -> list[Tensor]:
        return [*self.parameters, *self.untrained()]

    def snapshot(self) -> list[Tensor]:
        """A copy of the state."""
        return [tensor.detach().clone() for tensor in self.state()]

    @abstractmethod
    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        """Copy the state of the models marked in ``better`` ``(R,)`` to a snapshot."""

    @torch.no_grad()
    def restore(self, kept: list[Tensor]) -> None:
        for best, tensor in zip(kept, self.state(), strict=True):
            tensor.copy_(best)


class TaskBatch(ModelBatch):
    """R models with a task each; the tasks of all are like that of the first."""

    def __init__(self, task: Task, parameters: Iterable[tuple[str, Tensor]], seeds: Tensor) -> None:
        has_validation = task.validation.numel() > 0
        super().__init__(parameters, seeds, task.train.numel(), has_validation, task.higher_is_better)
        self.task = task

    @abstractmethod
    def losses(self, positions: Tensor) -> Tensor:
        """The loss ``(R,)`` of each model on the training samples at ``positions`` ``(R, B)``, differentiable."""

    def backward(self, positions: Tensor) -> Tensor:
        losses = self.losses(positions)
        losses.sum().backward()  # a sum mixes no gradients of different models
        return losses.detach()

    @abstractmethod
    def metric(self, split: str) -> Tensor:
        """The metric ``(R,)`` of each model on the samples of a split."""

    def validate(self) -> Tensor:
        return self.metric("validation")


class SingleModel(ModelBatch):
    """One model; all of its parameters decay alike.

    Args:
        model: the module.
        loss: the loss to minimize: ``loss()`` of all samples, or ``loss(positions)`` where ``num_samples`` is given.
        validate: a loss that decides which parameters to keep; None keeps those of the last epoch.
        num_samples: the number of samples that steps take in turn; None where each step uses all.
        seed: decides their order.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Tensor],
        validate: Callable[[], Tensor] | None = None,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> None:
        named = trained_parameters(model).items()
        super().__init__(named, torch.tensor([seed]), num_samples or 1, validate is not None, False)
        self.model, self.loss, self.validation_loss, self.without_decay = model, loss, validate, []
        self.uses_all = num_samples is None

    def untrained(self) -> list[Tensor]:
        return list(untrained_tensors(self.model).values())

    def backward(self, positions: Tensor) -> Tensor:
        loss = self.loss() if self.uses_all else self.loss(positions[0])
        loss.backward()
        return loss.detach().view(1)

    @torch.no_grad()
    def validate(self) -> Tensor:
        assert self.validation_loss is not None
        return self.validation_loss().view(1).to(self.seeds.device)

    def snapshot(self) -> list[Tensor]:
        return []  # a lazy parameter has no values yet

    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        if better:
            kept[:] = super().snapshot()


class Selection:
    """The best validation metric of each model so far, when it was reached, and the state of the model then."""

    def __init__(self, batch: ModelBatch) -> None:
        self.metric = torch.full(batch.seeds.shape, torch.nan, dtype=torch.float64, device=batch.seeds.device)
        self.epoch = torch.zeros_like(batch.seeds)
        self.state = batch.snapshot()
        self.seconds_before = 0.0  # spent before training was interrupted and taken up again

    def update(self, batch: ModelBatch, epoch: int, patience: int | None) -> bool:
        """Validate the models after ``epoch`` epochs; return whether any of them may still improve."""
        if not batch.has_validation:
            return True
        metric = batch.validate().double()
        improved = metric > self.metric if batch.higher_is_better else metric < self.metric
        better = (improved | self.metric.isnan()) & ~metric.isnan()
        if patience is not None:
            better &= epoch - self.epoch <= patience
        batch.keep(better, self.state)
        self.metric = torch.where(better, metric, self.metric)
        self.epoch = torch.where(better, epoch, self.epoch)
        return patience is None or bool((epoch - self.epoch < patience).any())

    def select_last(self, batch: ModelBatch, epoch: int) -> None:
        """Select the models as they are."""
        batch.keep(torch.ones_like(self.epoch, dtype=torch.bool), self.state)
        self.epoch.fill_(epoch)


class Checkpoint(Protocol):
    """A place that half-finished training is continued from."""

    def read(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection) -> int:
        """Restore what was written; return the number of epochs done."""

    def is_due(self, epoch: int) -> bool:
        """Return whether to write after this epoch."""

    def write(self, batch: ModelBatch, optimizer: Optimizer, selection: Selection, epoch: int, seconds: float) -> None:
        """Write everything that the next epoch depends on, and the seconds spent so far."""


def train(
    batch: ModelBatch,
    settings: TrainingSettings,
    *,
    progress: EpochProgress | None = None,
    checkpoint: Checkpoint | None = None,
    make_step: Callable[[ModelBatch, Optimizer], Step] | None = None,
) -> Selection:
    """Train, and return the best state of each model; :func:`fit`, fleets, estimators and partitioned graphs use it."""
    begun = time.perf_counter()
    optimizer = make_optimizer(batch.parameters, batch.without_decay, settings)
    selection = Selection(batch)
    done = 0 if checkpoint is None else checkpoint.read(batch, optimizer, selection)
    step = timed((make_step or plain_step)(batch, optimizer))
    for epoch in range(done + 1, settings.epochs + 1):
        if settings.schedule != "constant":
            set_learning_rate(optimizer, settings, epoch)
        order = epoch_order(batch.seeds, epoch, batch.num_samples)
        losses = []
        for number, positions in enumerate(order.split(settings.batch_size, dim=1)):
            batch.begin_step(epoch, number)
            losses.append(step(positions))
        may_improve = selection.update(batch, epoch, settings.patience)
        if checkpoint is not None and checkpoint.is_due(epoch):
            seconds = selection.seconds_before + time.perf_counter() - begun
            checkpoint.write(batch, optimizer, selection, epoch, seconds)
        if progress is not None:
            mean = torch.stack(losses).mean() if len(losses) > 1 else losses[0].mean()
            progress(epoch, settings.epochs, mean.item())
        if not may_improve:
            break
    if not batch.has_validation:
        selection.select_last(batch, settings.epochs)
    return selection


def plain_step(batch: ModelBatch, optimizer: Optimizer) -> Step:
    """One step of the optimizer. No model influences another's gradient."""

    def step(positions: Tensor) -> Tensor:
        optimizer.zero_grad()
        losses = batch.backward(positions)
        optimizer.step()
        return losses

    return step


def captured_step(batch: ModelBatch, optimizer: Optimizer) -> Step:
    """The same as CUDA graphs, one for each batch size: the launches of a small step cost more than its work."""
    plain = plain_step(batch, optimizer)
    recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
    warm_up_left = WARM_UP_STEPS

    def step(positions: Tensor) -> Tensor:
        nonlocal warm_up_left
        size = positions.size(1)
        if size not in recorded and warm_up_left > 0:
            warm_up_left -= 1
            stream = torch.cuda.Stream()  # recording demands that the steps before it run outside the default stream
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                losses = plain(positions)
            torch.cuda.current_stream().wait_stream(stream)
            return losses
        if size not in recorded:
            graph, static_positions = torch.cuda.CUDAGraph(), positions.clone()
            with torch.cuda.graph(graph):  # recording runs nothing
                losses = plain(static_positions)
            recorded[size] = graph, static_positions, losses
        graph, static_positions, losses = recorded[size]
        static_positions.copy_(positions)
        graph.replay()
        return losses.clone()

    return step


def make_optimizer(
    parameters: Sequence[Tensor], without_decay: Sequence[Tensor], settings: TrainingSettings
) -> Optimizer:
    """Return Adam with decoupled decay of all parameters but some; on a GPU its steps can be recorded."""
    on_gpu = parameters[0].is_cuda
    rate: float | Tensor = settings.learning_rate
    if on_gpu and settings.schedule != "constant":  # a recorded step reads a step size that changes from a tensor
        rate = torch.tensor(rate, dtype=torch.float32, device=parameters[0].device)
    known = {id(parameter) for parameter in without_decay} if settings.weight_decay else set()
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in known], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if id(p) in known], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(groups, rate, settings.betas, foreach=not on_gpu, fused=on_gpu, capturable=on_gpu)


def set_learning_rate(optimizer: Optimizer, settings: TrainingSettings, epoch: int) -> None:
    """Give the optimizer the step size of an epoch, counted from 1."""
    rate = learning_rate(settings, epoch)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(settings: TrainingSettings, epoch: int) -> float:
    """Return the step size of an epoch, counted from 1."""
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / settings.epochs)) / 2
