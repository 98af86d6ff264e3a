"""The training loop, for one model or many: epochs of Adam, and of each model the parameters that validated best."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from graphact.training.checkpoint import origin_of, read_checkpoint, write_checkpoint
from graphact.training.optimizer import make_optimizer, set_learning_rate
from graphact.training.settings import TrainingSettings
from graphact.training.shuffling import epoch_order


class Trainee(Protocol):
    """What the loop needs to know of the R models it trains; all are trained on equally many samples."""

    parameters: list[Tensor]
    biases: list[Tensor]  # those of the parameters that do not decay
    seeds: Tensor  # (R,)
    num_samples: int
    higher_is_better: bool

    def identity(self) -> str:
        """What tells these models, samples and seeds from others, for checkpoints."""

    def losses(self, positions: Tensor) -> Tensor:
        """The loss ``(R,)`` of each model on the training samples at ``positions`` ``(R, B)``."""

    def validate(self) -> Tensor | None:
        """The validation metric ``(R,)`` of each model, or None without validation samples."""

    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        """Copy the parameters of the models marked in ``better`` ``(R,)`` to ``kept``."""


class Progress(Protocol):
    """Called after every epoch."""

    def __call__(self, epoch: int, epochs: int, loss: float) -> None:
        """After ``epoch`` of ``epochs`` epochs, with the mean training loss of the last one."""


class Selection:
    """The best validation metric of each model so far, when it was reached, and the parameters then.

    ``seconds_before`` were spent before training was interrupted and taken up again.
    """

    def __init__(self, trainee: Trainee) -> None:
        self.metric = torch.full(trainee.seeds.shape, torch.nan, dtype=torch.float64, device=trainee.seeds.device)
        self.epoch = torch.zeros_like(trainee.seeds)
        self.parameters = [parameter.detach().clone() for parameter in trainee.parameters]
        self.seconds_before = 0.0

    def update(self, trainee: Trainee, epoch: int, patience: int | None) -> bool:
        """Look at the models after ``epoch`` epochs; say whether any of them may still improve."""
        metric = trainee.validate()
        if metric is None:
            everyone = torch.ones_like(self.epoch, dtype=torch.bool)
            trainee.keep(everyone, self.parameters)
            self.epoch.fill_(epoch)
            return True
        metric = metric.double()
        improved = metric > self.metric if trainee.higher_is_better else metric < self.metric
        better = (improved | self.metric.isnan()) & ~metric.isnan()
        waiting = torch.ones_like(better) if patience is None else epoch - self.epoch <= patience
        better &= waiting
        trainee.keep(better, self.parameters)
        self.metric = torch.where(better, metric, self.metric)
        self.epoch = torch.where(better, epoch, self.epoch)
        return patience is None or bool(waiting.any())


def train(
    trainee: Trainee,
    settings: TrainingSettings,
    *,
    progress: Progress | None = None,
    checkpoint: Path | None = None,
    every: Callable[[], bool] = lambda: False,
    make_step: Callable[[Trainee, torch.optim.Optimizer], Callable[[Tensor], Tensor]] | None = None,
) -> Selection:
    """Train, and return the best parameters of each model.

    Args:
        trainee: the models and their samples.
        settings: epochs, batch size, optimizer.
        progress: called after every epoch, when its checkpoint is written; what it raises ends training.
        checkpoint: file to continue from if it exists, and to write to.
        every: asked after each epoch whether to write the checkpoint now.
        make_step: how to make the function that takes positions ``(R, B)``, makes one step and returns the losses.
    """
    begun = time.perf_counter()
    optimizer = make_optimizer(trainee.parameters, trainee.biases, settings, on_device=trainee.seeds.is_cuda)
    selection = Selection(trainee)
    done, origin = 0, ""
    if checkpoint is not None:
        origin = origin_of(settings, trainee.identity())
        if checkpoint.exists():
            done = read_checkpoint(checkpoint, origin, settings.epochs, trainee.parameters, optimizer, selection)
    step = plain_step(trainee, optimizer) if make_step is None else make_step(trainee, optimizer)
    for epoch in range(done + 1, settings.epochs + 1):
        set_learning_rate(optimizer, settings, epoch)
        order = epoch_order(trainee.seeds, epoch, trainee.num_samples)
        losses = [step(positions) for positions in order.split(settings.batch_size, dim=1)]
        if not selection.update(trainee, epoch, settings.patience):
            break
        if checkpoint is not None and every():
            seconds = selection.seconds_before + time.perf_counter() - begun
            write_checkpoint(checkpoint, origin, trainee.parameters, optimizer, selection, epoch, seconds)
        if progress is not None:
            progress(epoch, settings.epochs, torch.stack(losses).mean().item())
    return selection


def plain_step(trainee: Trainee, optimizer: torch.optim.Optimizer) -> Callable[[Tensor], Tensor]:
    """One step of the optimizer. Losses of different models are summed: none influences another's gradient."""

    def step(positions: Tensor) -> Tensor:
        optimizer.zero_grad()
        losses = trainee.losses(positions)
        losses.sum().backward()
        optimizer.step()
        return losses.detach()

    return step
