"""Training models of any kind one after another: :func:`fit` for one of them, and the slow way of a fleet."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphact.data import Task, loss_of, metric_of
from graphact.graph import Graph
from graphact.progress import progress_bar
from graphact.training.loop import Progress, train
from graphact.training.randomness import random_stream
from graphact.training.samples import check_samples
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

    The model is in training mode while it is trained and in evaluation mode while it is validated and tested;
    afterwards it is in the mode it came in. Parameters that require no gradient stay as they are.

    Args:
        model: any module called as ``model(x, graph)``, on the device and in the dtype of the task.
        task: graph, samples, loss and metric.
        settings: epochs, batch size, optimizer; the paper's when left out.
        seed: decides the order of the samples and all that is random in the model, such as dropout; the generators of
            torch are left as they are.
        progress: True shows a bar with the time left (needs the package rich); a function is called after every epoch
            with the epoch, the number of epochs and the training loss.

    Raises:
        ValueError: nothing in the model is to be trained, or the task holds NaN.

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
    check_samples([task])
    settings = settings or TrainingSettings()
    batch = SeparateModels([model], [task], [seed])
    with batch.own_modes(), progress_bar(settings.epochs) if progress is True else nullcontext(progress or None) as bar:
        selection = train(batch, settings, progress=bar)
        has_result = bool(selection.epoch.item())
        if has_result:
            batch.restore(selection.state)
        test = batch.metric("test").item() if has_result else float("nan")
    return Fit(test, selection.metric.item(), int(selection.epoch.item()), task.metric)


class SeparateModels:
    """Models of any kind, each with a task and a seed, called one after another, as the training loop sees them.

    Every model is called as it is, hooks and all, in its own modules.

    Args:
        models: modules called as ``model(x, graph)``, on the device and in the dtype of the tasks.
        tasks: one for each model.
        seeds: one for each model.
    """

    def __init__(self, models: Sequence[nn.Module], tasks: Sequence[Task], seeds: Sequence[int]) -> None:
        self.models, self.tasks = list(models), list(tasks)
        self.parameters: list[Tensor] = [p for model in models for p in trained_parameters(model).values()]
        self.spared = [p for model in models for name, p in trained_parameters(model).items() if is_spared(name)]
        self.seeds = torch.tensor(list(seeds), device=tasks[0].inputs.device)
        self.num_samples, self.higher_is_better = tasks[0].train.numel(), tasks[0].higher_is_better
        self._seed_of = list(map(int, seeds))
        self._extra: list[dict[str, Any]] = [{} for _ in models]
        self._step = (0, 0)  # epochs count from 1: this is the stream of evaluations

    def untrained(self) -> list[Tensor]:
        """See :class:`~graphact.training.loop.ModelBatch`."""
        return [tensor for model in self.models for tensor in untrained_tensors(model).values()]

    def begin_step(self, epoch: int, number: int) -> None:
        """See :class:`~graphact.training.loop.ModelBatch`."""
        self._step = epoch, number

    def losses(self, positions: Tensor) -> Tensor:
        """The loss ``(R,)`` of each model on the training samples at ``positions`` ``(R, B)``."""
        losses = []
        for number in range(len(self.models)):
            with self._stream(number, *self._step):
                losses.append(self._loss(number, positions[number]))
        return torch.stack(losses)

    def backward(self, positions: Tensor) -> Tensor:
        """See :class:`~graphact.training.loop.ModelBatch`; each model forgets its intermediate results at once."""
        losses = []
        for number in range(len(self.models)):
            with self._stream(number, *self._step):
                loss = self._loss(number, positions[number])
                loss.backward()
            losses.append(loss.detach())
        return torch.stack(losses)

    def _loss(self, number: int, positions: Tensor) -> Tensor:
        task = self.tasks[number]
        self.models[number].train()
        samples = task.train[positions]
        return loss_of(task.loss, self._outputs(number, task.inputs[samples]), task.targets[samples])

    def _outputs(self, number: int, x: Tensor, graph: Graph | None = None) -> Tensor:
        """The answers that count to signals ``(B, N, F)``, on the graph of the task where no other is given."""
        task = self.tasks[number]
        outputs: Any = self.models[number](x, task.graph if graph is None else graph)
        return task.read(outputs)

    def _stream(self, number: int, epoch: int, batch: int) -> Any:
        return random_stream(self.seeds.device, self._seed_of[number], epoch, batch)

    @torch.no_grad()
    def metric(self, split: str) -> Tensor:
        """The metric ``(R,)`` of each model on the samples of a split."""
        found = []
        for number, task in enumerate(self.tasks):
            samples = getattr(task, split)
            outputs = self.evaluate(number, task.inputs[samples])
            found.append(metric_of(task.metric, outputs, task.targets[samples]))
        return torch.stack(found)

    def evaluate(self, number: int, x: Tensor, graph: Graph | None = None) -> Tensor:
        """The answers that count of one model in evaluation mode."""
        self.models[number].eval()
        with self._stream(number, 0, 0):
            return self._outputs(number, x, graph)

    def validate(self) -> Tensor | None:
        """See :class:`~graphact.training.loop.ModelBatch`."""
        return self.metric("validation") if self.tasks[0].validation.numel() else None

    @torch.no_grad()
    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        """See :class:`~graphact.training.loop.ModelBatch`."""
        is_better = better.tolist()
        for place, (number, tensor) in enumerate(self._state()):
            if is_better[number]:
                kept[place] = tensor.detach().clone()
        for number, model in enumerate(self.models):
            if is_better[number]:
                self._extra[number] = extra_state(model)

    @torch.no_grad()
    def restore(self, kept: list[Tensor]) -> None:
        """Take back what was kept."""
        for best, (_, tensor) in zip(kept, self._state(), strict=True):
            tensor.copy_(best)
        for model, extra in zip(self.models, self._extra, strict=True):
            for name, value in extra.items():
                model.get_submodule(name).set_extra_state(copy.deepcopy(value))

    def _state(self) -> list[tuple[int, Tensor]]:
        """Parameters, then everything else, each with the number of its model."""
        groups = (trained_parameters, untrained_tensors)
        return [
            (r, tensor) for group in groups for r, model in enumerate(self.models) for tensor in group(model).values()
        ]

    @contextmanager
    def own_modes(self) -> Iterator[None]:
        """Bring every module back to the mode, training or evaluation, that it came in."""
        before = [(module, module.training) for model in self.models for module in model.modules()]
        try:
            yield
        finally:
            for module, training in before:
                module.training = training


def trained_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that require gradients, by name.

    Raises:
        ValueError: there are none.
    """
    trained: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not trained:
        raise ValueError(f"model must have parameters to train, got {type(model).__name__} with none")
    return trained


def untrained_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Frozen parameters and buffers, by name."""
    frozen: dict[str, Tensor] = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    return {**frozen, **dict(model.named_buffers())}


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, trained ones first, by name."""
    return {**trained_parameters(model), **untrained_tensors(model)}


def is_spared(name: str) -> bool:
    """Whether weight decay leaves a parameter of this name alone: biases of all kinds."""
    return name.endswith("bias")


def extra_state(model: nn.Module) -> dict[str, Any]:
    """What modules keep in their own way, by the names of these modules."""
    return {
        name: copy.deepcopy(module.get_extra_state())
        for name, module in model.named_modules()
        if type(module).get_extra_state is not nn.Module.get_extra_state
    }
