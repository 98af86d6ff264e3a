"""Training of models of any kind one after another: :func:`fit` for one, and the loop strategy of a fleet."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphact._checks import check_seed
from graphact.graph import Graph
from graphact.progress import EpochProgress, progress_bar
from graphact.training import Task, loss_of, metric_of
from graphact.training.loop import TaskBatch, train
from graphact.training.module_state import check_extra_state, state_of, trained_parameters, untrained_tensors
from graphact.training.randomness import random_stream
from graphact.training.settings import TrainingSettings
from graphact.training.stacked import StackedGraphs, StackedTasks, cast, check_samples


@dataclass(frozen=True)
class Fit:
    """Result of training a model.

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
    progress: EpochProgress | bool | None = None,
) -> Fit:
    """Train a model on a task with Adam and leave it with the parameters that validated best.

    The model is in training mode while it is trained and in evaluation mode while it is validated and tested;
    afterwards it is in the mode it came in. Parameters that require no gradient stay as they are.

    Args:
        model: any module called as ``model(x, graph)``, on the device and in the dtype of the task, or what
            ``torch.compile`` makes of it, which pays where training takes minutes. Fleets on a GPU record steps.
        task: graph, samples, loss and metric.
        settings: epochs, batch size, optimizer; the paper's when left out.
        seed: decides the order of the samples and all that is random in the model, such as dropout; the generators of
            torch are left as they are.
        progress: True shows a bar with the time left (needs the package rich); a function is called after every epoch
            with the epoch, the number of epochs and the training loss.

    Raises:
        ValueError: nothing in the model is to be trained, it keeps a state besides parameters and buffers, the task
            holds NaN, or the seed is none.

    Example:
        >>> import torch
        >>> from graphact import Graph
        >>> from graphact.nn import GCNN
        >>> from graphact.training import Task, TrainingSettings, fit
        >>> graph = Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
        >>> x = torch.rand(60, 20, 1)
        >>> train, validation, test = torch.arange(60).split([40, 10, 10])
        >>> task = Task("copy", graph, x, x, train, validation, test)
        >>> model = GCNN([1, 4], order=3, activation="max-ga")
        >>> result = fit(model, task, TrainingSettings(epochs=50, batch_size=20, learning_rate=0.01))
        >>> result.test < 1.0
        True
    """
    check_samples([task])
    check_seed("seed", seed)
    settings = settings or TrainingSettings()
    batch = SeparateModels([model], [task], [seed])
    with batch.own_modes(), progress_bar(settings.epochs) if progress is True else nullcontext(progress or None) as bar:
        selection = train(batch, settings, progress=bar)
        has_result = bool(selection.epoch.item())
        if has_result:
            batch.restore(selection.state)
        test = batch.metric("test").item() if has_result else float("nan")
    return Fit(test, selection.metric.item(), int(selection.epoch.item()), task.metric)


class SeparateModels(TaskBatch):
    """Models of any kind, each with a task and a seed, called one after another as they are, hooks and all."""

    def __init__(self, models: Sequence[nn.Module], tasks: Sequence[Task], seeds: Sequence[int]) -> None:
        for model in models:
            check_extra_state(model)
        named = [item for model in models for item in trained_parameters(model).items()]
        super().__init__(tasks[0], named, torch.tensor(list(seeds), device=tasks[0].inputs.device))
        self.models, self.tasks = list(models), list(tasks)
        self._seed_of = list(map(int, seeds))
        self._step = (0, 0)  # epochs count from 1: this is the stream of evaluations

    def untrained(self) -> list[Tensor]:
        return [tensor for model in self.models for tensor in untrained_tensors(model).values()]

    def begin_step(self, epoch: int, number: int) -> None:
        self._step = epoch, number

    def losses(self, positions: Tensor, backward: bool = False) -> Tensor:
        losses = []
        for number, (model, task) in enumerate(zip(self.models, self.tasks, strict=True)):
            samples = task.train[positions[number]]
            with random_stream(self.seeds.device, self._seed_of[number], *self._step):
                model.train()
                outputs = task.read(model(task.inputs[samples], task.graph))
                task.check_outputs(outputs)
                loss = loss_of(task.loss, outputs, task.targets[samples])
                if backward:  # gradients may be random, too
                    loss.backward()
            losses.append(loss.detach() if backward else loss)
        return torch.stack(losses)

    def backward(self, positions: Tensor) -> Tensor:
        return self.losses(positions, backward=True)  # each model frees its intermediate results before the next

    @torch.no_grad()
    def metric(self, split: str) -> Tensor:
        found = []
        for number, task in enumerate(self.tasks):
            samples = getattr(task, split)
            outputs = self.evaluate(number, task.inputs[samples], task.graph)
            found.append(metric_of(task.metric, outputs, task.targets[samples]))
        return torch.stack(found)

    def evaluate(self, number: int, x: Tensor, graph: Graph) -> Tensor:
        """The answers that count of one model to signals ``(B, N, F)``, in evaluation mode."""
        self.models[number].eval()
        with random_stream(self.seeds.device, self._seed_of[number], 0, 0):
            return self.tasks[number].read(self.models[number](x, graph))

    @torch.no_grad()
    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        groups = (trained_parameters, untrained_tensors)
        owners = [number for group in groups for number, model in enumerate(self.models) for _ in group(model)]
        is_better = better.tolist()
        for place, (number, tensor) in enumerate(zip(owners, self.state(), strict=True)):
            if is_better[number]:
                kept[place] = tensor.detach().clone()

    @contextmanager
    def own_modes(self) -> Iterator[None]:
        """Bring every module back to the mode, training or evaluation, that it came in."""
        before = [(module, module.training) for model in self.models for module in model.modules()]
        try:
            yield
        finally:
            for module, training in before:
                module.training = training


class LoopedModels(SeparateModels):
    """The same as a fleet needs it: while modules are in use they are on the device and in the dtype of the tasks."""

    def __init__(self, models: Sequence[nn.Module], data: StackedTasks) -> None:
        super().__init__(models, data.separately(), data.seeds.tolist())
        self.data = data

    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        return torch.stack([self.evaluate(number, x[number], graph) for number, graph in enumerate(graphs.graphs)])

    def answers(self, samples: Tensor) -> Tensor:
        return self.forward(self.data.signals(samples), self.data.graphs)

    def write_back(self) -> None:
        """Nothing to do: the modules themselves were trained."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Bring the modules to the device and dtype of the tasks, and afterwards back, in the mode they were in."""
        before = [{name: tensor.data for name, tensor in state_of(model).items()} for model in self.models]
        with self.own_modes():
            try:
                for model in self.models:
                    for tensor in state_of(model).values():
                        place(tensor, cast(tensor.data, self.data.inputs.device, self.data.inputs.dtype))
                yield
            finally:
                for model, originals in zip(self.models, before, strict=True):
                    for name, tensor in state_of(model).items():
                        original = originals.get(name, tensor.data)
                        # unchanged values come back with all their digits
                        is_unchanged = torch.equal(tensor.data, original.to(tensor.device, tensor.dtype))
                        place(tensor, original if is_unchanged else tensor.data.to(original.device, original.dtype))


def place(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor other values, of another type or on another device; a gradient would not fit them."""
    if (tensor.device, tensor.dtype) != (values.device, values.dtype):
        tensor.data, tensor.grad = values, None
