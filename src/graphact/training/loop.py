"""The training loop, for one model or many: epochs of Adam, and of each model the parameters that validated best."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from graphact.training.checkpoint import origin_of, read_checkpoint, write_checkpoint
from graphact.training.optimizer import make_optimizer, set_learning_rate
from graphact.training.randomness import epoch_order
from graphact.training.settings import TrainingSettings


class ModelBatch(Protocol):
    """What the loop needs to know of the R models it trains; all are trained on equally many samples."""

    parameters: list[Tensor]  # those that are trained
    spared: list[Tensor]  # those of the parameters that do not decay
    seeds: Tensor  # (R,)
    num_samples: int
    higher_is_better: bool

    def untrained(self) -> list[Tensor]:
        """Everything else that the next epoch depends on: buffers, such as running means, and frozen parameters."""

    def begin_step(self, epoch: int, number: int) -> None:
        """Called before each step; random operations of the step draw from streams of their own."""

    def backward(self, positions: Tensor) -> Tensor:
        """The loss ``(R,)`` of each model on the training samples at ``positions`` ``(R, B)``; adds to gradients."""

    def validate(self) -> Tensor | None:
        """The validation metric ``(R,)`` of each model, or None without validation samples."""

    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        """Copy what belongs to the models marked in ``better`` ``(R,)``, parameters and the rest, to ``kept``."""


class Progress(Protocol):
    """Called after every epoch."""

    def __call__(self, epoch: int, epochs: int, loss: float) -> None:
        """After ``epoch`` of ``epochs`` epochs, with the mean training loss of the last one."""


class Selection:
    """The best validation metric of each model so far, when it was reached, and the state of the model then.

    ``state`` holds the parameters and after them what is not trained. ``seconds_before`` were spent before training
    was interrupted and taken up again.
    """

    def __init__(self, batch: ModelBatch) -> None:
        self.metric = torch.full(batch.seeds.shape, torch.nan, dtype=torch.float64, device=batch.seeds.device)
        self.epoch = torch.zeros_like(batch.seeds)
        self.state = [tensor.detach().clone() for tensor in (*batch.parameters, *batch.untrained())]
        self.seconds_before = 0.0

    def update(self, batch: ModelBatch, epoch: int, patience: int | None) -> bool:
        """Validate the models after ``epoch`` epochs; return whether any of them may still improve."""
        metric = batch.validate()
        if metric is None:
            everyone = torch.ones_like(self.epoch, dtype=torch.bool)
            batch.keep(everyone, self.state)
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
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    identity: str = "",
    every: Callable[[], bool] = lambda: False,
    make_step: Callable[[ModelBatch, torch.optim.Optimizer], Callable[[Tensor], Tensor]] | None = None,
) -> Selection:
    """Train, and return the best state of each model.

    Args:
        batch: the models and their samples.
        settings: epochs, batch size, optimizer.
        progress: called after every epoch, when its checkpoint is written; what it raises ends training.
        checkpoint: file to continue from if it exists, and to write to.
        identity: what tells these models, samples and seeds from others, for the checkpoint.
        every: asked after each epoch whether to write the checkpoint now.
        make_step: how to make the function that takes positions ``(R, B)``, makes one step and returns the losses.
    """
    begun = time.perf_counter()
    optimizer = make_optimizer(batch.parameters, batch.spared, settings, on_device=batch.seeds.is_cuda)
    selection = Selection(batch)
    done, origin = 0, origin_of(settings, identity)
    if checkpoint is not None and checkpoint.exists():
        done = read_checkpoint(checkpoint, origin, settings.epochs, batch, optimizer, selection)
    step = plain_step(batch, optimizer) if make_step is None else make_step(batch, optimizer)
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


def plain_step(batch: ModelBatch, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], Tensor]:
    """One step of the optimizer. No model influences another's gradient."""

    def step(positions: Tensor) -> Tensor:
        optimizer.zero_grad()
        losses = batch.backward(positions)
        optimizer.step()
        return losses

    return step
