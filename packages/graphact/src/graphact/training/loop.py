"""The training loop, for one model or many: epochs of Adam, and of each model the parameters that validated best."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from graphact.progress import EpochProgress
from graphact.storage import check_tensors, load_tensors, save_tensors
from graphact.training import Task
from graphact.training.randomness import epoch_order
from graphact.training.settings import TrainingSettings
from graphact.training.threads import timed

WARM_UP_STEPS = 3  # before a step is recorded on a GPU

Step = Callable[[Tensor], Tensor]  # takes positions (R, B) of training samples, moves all models, returns losses (R,)


class ModelBatch(ABC):
    """R models with seeds ``(R,)`` as the training loop sees them; the tasks of all are like that of the first."""

    def __init__(self, task: Task, parameters: Iterable[tuple[str, Tensor]], seeds: Tensor) -> None:
        named = list(parameters)
        self.task, self.seeds, self.parameters = task, seeds, [parameter for _, parameter in named]
        self.spared = [parameter for name, parameter in named if name.endswith("bias")]  # by weight decay
        self.num_samples, self.higher_is_better = task.train.numel(), task.higher_is_better

    @abstractmethod
    def untrained(self) -> list[Tensor]:
        """Everything else that the next epoch depends on: buffers, such as running means, and frozen parameters."""

    def begin_step(self, epoch: int, number: int) -> None:  # noqa: B027, in most batches nothing is random
        """Called before each step; random operations of the step draw from streams of their own."""

    @abstractmethod
    def losses(self, positions: Tensor) -> Tensor:
        """The loss ``(R,)`` of each model on the training samples at ``positions`` ``(R, B)``, differentiable."""

    def backward(self, positions: Tensor) -> Tensor:
        """The same losses; adds to the gradients. A sum mixes no gradients of different models."""
        losses = self.losses(positions)
        losses.sum().backward()
        return losses.detach()

    @abstractmethod
    def metric(self, split: str) -> Tensor:
        """The metric ``(R,)`` of each model on the samples of a split."""

    def validate(self) -> Tensor | None:
        """The validation metric ``(R,)`` of each model, or None without validation samples."""
        return self.metric("validation") if self.task.validation.numel() else None

    def state(self) -> list[Tensor]:
        return [*self.parameters, *self.untrained()]

    @abstractmethod
    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        """Copy the state of the models marked in ``better`` ``(R,)`` to ``kept``."""

    @torch.no_grad()
    def restore(self, kept: list[Tensor]) -> None:
        for best, tensor in zip(kept, self.state(), strict=True):
            tensor.copy_(best)


class Selection:
    """The best validation metric of each model so far, when it was reached, and the state of the model then."""

    def __init__(self, batch: ModelBatch) -> None:
        self.metric = torch.full(batch.seeds.shape, torch.nan, dtype=torch.float64, device=batch.seeds.device)
        self.epoch = torch.zeros_like(batch.seeds)
        self.state = [tensor.detach().clone() for tensor in batch.state()]
        self.seconds_before = 0.0  # spent before training was interrupted and taken up again

    def update(self, batch: ModelBatch, epoch: int, patience: int | None) -> bool:
        """Validate the models after ``epoch`` epochs; return whether any of them may still improve."""
        metric = batch.validate()
        if metric is None:
            batch.keep(torch.ones_like(self.epoch, dtype=torch.bool), self.state)
            self.epoch.fill_(epoch)
            return True
        metric = metric.double()
        improved = metric > self.metric if batch.higher_is_better else metric < self.metric
        better = (improved | self.metric.isnan()) & ~metric.isnan()
        waiting = torch.ones_like(better) if patience is None else epoch - self.epoch <= patience
        better &= waiting
        batch.keep(better, self.state)
        self.metric = torch.where(better, metric, self.metric)
        self.epoch = torch.where(better, epoch, self.epoch)
        return patience is None or bool(waiting.any())


def train(
    batch: ModelBatch,
    settings: TrainingSettings,
    *,
    progress: EpochProgress | None = None,
    checkpoint: Path | None = None,
    identity: str = "",
    every: Callable[[], bool] = lambda: False,
    make_step: Callable[[ModelBatch, Optimizer], Step] | None = None,
) -> Selection:
    """Train, and return the best state of each model; see :meth:`Fleet.train`.

    ``identity`` tells these models, samples and seeds from others, for the checkpoint.
    """
    begun = time.perf_counter()
    optimizer = make_optimizer(batch.parameters, batch.spared, settings, on_device=batch.seeds.is_cuda)
    selection = Selection(batch)
    # a checkpoint goes on to more epochs as long as the learning rate does not depend on their number
    origin = f"{identity} {replace(settings, epochs=1) if settings.schedule == 'constant' else settings}"
    done = 0
    if checkpoint is not None and checkpoint.exists():
        done = read_checkpoint(checkpoint, origin, settings.epochs, batch, optimizer, selection)
    step = timed((make_step or plain_step)(batch, optimizer))
    for epoch in range(done + 1, settings.epochs + 1):
        set_learning_rate(optimizer, settings, epoch)
        order = epoch_order(batch.seeds, epoch, batch.num_samples)
        losses = []
        for number, positions in enumerate(order.split(settings.batch_size, dim=1)):
            batch.begin_step(epoch, number)
            losses.append(step(positions))
        if not selection.update(batch, epoch, settings.patience):
            break
        if checkpoint is not None and every():
            seconds = selection.seconds_before + time.perf_counter() - begun
            write_checkpoint(checkpoint, origin, batch, optimizer, selection, epoch, seconds)
        if progress is not None:
            progress(epoch, settings.epochs, torch.stack(losses).mean().item())
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
    parameters: Sequence[Tensor], spared: Sequence[Tensor], settings: TrainingSettings, on_device: bool
) -> Optimizer:
    """Adam, with decoupled decay of all parameters but the spared ones; ``on_device`` for steps that are recorded."""
    rate: float | Tensor = settings.learning_rate
    if on_device and settings.schedule != "constant":  # a recorded step reads a step size that changes from a tensor
        rate = torch.tensor(rate, dtype=torch.float32, device=parameters[0].device)
    known = {id(parameter) for parameter in spared} if settings.weight_decay else set()
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) not in known], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if id(p) in known], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(groups, rate, settings.betas, foreach=not on_device, fused=on_device, capturable=on_device)


def set_learning_rate(optimizer: Optimizer, settings: TrainingSettings, epoch: int) -> None:
    """Give the optimizer the step size of an epoch, counted from 1."""
    rate = learning_rate(settings, epoch)
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def learning_rate(settings: TrainingSettings, epoch: int) -> float:
    """The step size of an epoch, counted from 1."""
    if settings.schedule == "constant":
        return settings.learning_rate
    return settings.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / settings.epochs)) / 2


def checkpointed(
    batch: ModelBatch, selection: Selection, moments: Mapping[int, Mapping[str, Tensor]], epoch: Tensor, seconds: Tensor
) -> dict[str, Tensor]:
    """All that the next epoch depends on, as it is named in a file; moments are those of the optimizer."""
    named = {"epoch": epoch, "seconds": seconds}
    named |= {"selection.metric": selection.metric, "selection.epoch": selection.epoch}
    for number, (value, best) in enumerate(zip(batch.state(), selection.state, strict=True)):
        named |= {f"{number}.value": value, f"{number}.best": best}
    for number, each in moments.items():
        named |= {f"{number}.{name}": moment for name, moment in each.items()}
    return named


def write_checkpoint(
    path: Path, origin: str, batch: ModelBatch, optimizer: Optimizer, selection: Selection, epoch: int, seconds: float
) -> None:
    """Write half-finished training, and the seconds spent on it, to a file that belongs to its origin."""
    # a parameter that had no gradient yet has no moments
    moments = {number: optimizer.state.get(parameter, {}) for number, parameter in enumerate(batch.parameters)}
    spent = torch.tensor(seconds, dtype=torch.float64)
    tensors = checkpointed(batch, selection, moments, torch.tensor(epoch), spent)
    on_cpu = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_tensors(path, on_cpu, {"kind": "checkpoint", "origin": origin})


@torch.no_grad()
def read_checkpoint(
    path: Path, origin: str, epochs: int, batch: ModelBatch, optimizer: Optimizer, selection: Selection
) -> int:
    """Restore what :func:`write_checkpoint` wrote; return the number of epochs done, 0 for a file that does not fit."""
    try:
        header, tensors = load_tensors(path)
        check_tensors(path, header, tensors)
    except ValueError:
        return 0
    moments = {
        number: {
            "step": torch.tensor(0.0, device=parameter.device if parameter.is_cuda else "cpu"),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        for number, parameter in enumerate(batch.parameters)
        if f"{number}.step" in tensors
    }
    done, seconds = torch.tensor(0), torch.tensor(0.0, dtype=torch.float64)
    restored = checkpointed(batch, selection, moments, done, seconds)
    fits = tensors.keys() == restored.keys() and all(
        tensors[name].shape == tensor.shape and tensors[name].dtype == tensor.dtype for name, tensor in restored.items()
    )
    if header.get("origin") != origin or not fits or tensors["epoch"] > epochs:
        return 0
    for name, tensor in restored.items():
        tensor.copy_(tensors[name])
    optimizer.state.update({batch.parameters[number]: each for number, each in moments.items()})
    selection.seconds_before = seconds.item()
    return int(done)
