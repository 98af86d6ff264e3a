"""Training one model of any kind on one task."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphact.data import Task, loss_of, metric_of
from graphact.progress import progress_bar
from graphact.training.loop import Progress, train
from graphact.training.settings import TrainingSettings


@dataclass(frozen=True)
class Fit:
    """What came of training a model.

    Attributes:
        test: the metric on the test samples, with the parameters that validated best; NaN if training diverged.
        validation: the best validation metric; NaN without validation samples.
        best_epoch: the epoch that reached it.
        metric: name of the metric.
    """

    test: float
    validation: float
    best_epoch: int
    metric: str


def fit(
    model: nn.Module,
    task: Task,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Fit:
    """Train a model on a task with Adam and leave it with the parameters that validated best.

    Args:
        model: any module called as ``model(x, graph)``, on the device and in the dtype of the task.
        task: graph, samples, loss and metric.
        settings: epochs, batch size, optimizer; the paper's when left out.
        seed: decides the order of the samples.
        progress: True shows a bar with the time left (needs the package rich); a function is called after every epoch
            with the epoch, the number of epochs and the training loss.

    Example:
        >>> import torch
        >>> from graphact.nn import GCNN
        >>> from graphact.tasks import consensus
        >>> from graphact.training import TrainingSettings, fit
        >>> model = GCNN([1, 4], order=3, activation="max-ga")
        >>> result = fit(model, consensus(), TrainingSettings(epochs=2))
        >>> result.test < 1.0
        True
    """
    trainee, settings = OneModel(model, task, seed), settings or TrainingSettings()
    with progress_bar(settings.epochs) if progress is True else nullcontext(progress or None) as watch:
        selection = train(trainee, settings, progress=watch)
    if trainee.best is not None:
        model.load_state_dict(trainee.best)
    return Fit(
        test=trainee.metric(task.test).item() if trainee.best is not None else float("nan"),
        validation=selection.metric.item(),
        best_epoch=int(selection.epoch.item()),
        metric=task.metric,
    )


class OneModel:
    """A model and its task, as the training loop sees them."""

    def __init__(self, model: nn.Module, task: Task, seed: int) -> None:
        self.model, self.task = model, task
        self.parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.biases: list[Tensor] = [
            parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad and name.endswith("bias")
        ]
        if not self.parameters:
            raise ValueError(f"model must have parameters to train, got {type(model).__name__} with none")
        self.best: dict[str, Any] | None = None  # parameters and buffers, such as running means
        self.seeds = torch.tensor([seed], device=task.inputs.device)
        self.num_samples = task.train.numel()
        self.higher_is_better = task.higher_is_better

    def identity(self) -> str:
        """See :class:`~graphact.training.loop.Trainee`."""
        return type(self.model).__name__

    def answers(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """What the model says to the samples, and what it should say."""
        outputs: Any = self.model(self.task.inputs[samples], self.task.graph)
        return self.task.read(outputs), self.task.targets[samples]

    def losses(self, positions: Tensor) -> Tensor:
        """See :class:`~graphact.training.loop.Trainee`."""
        self.model.train()
        return loss_of(self.task.loss, *self.answers(self.task.train[positions[0]])).unsqueeze(0)

    @torch.no_grad()
    def metric(self, samples: Tensor) -> Tensor:
        """The metric on the given samples."""
        self.model.eval()
        return metric_of(self.task.metric, *self.answers(samples)).unsqueeze(0)

    def validate(self) -> Tensor | None:
        """See :class:`~graphact.training.loop.Trainee`."""
        return self.metric(self.task.validation) if self.task.validation.numel() else None

    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        """See :class:`~graphact.training.loop.Trainee`."""
        if better.item():
            self.best = copy.deepcopy(self.model.state_dict())
            for best, parameter in zip(kept, self.parameters, strict=True):
                best.copy_(parameter.detach())
