"""Training many models of one shape as one batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_seed
from graphact.progress import EpochProgress
from graphact.spec import UnsupportedModelError
from graphact.training import Task, metric_of
from graphact.training.checkpoint import FileCheckpoint
from graphact.training.loop import captured_step, train
from graphact.training.module_state import fingerprint, shapes_of, state_of
from graphact.training.settings import TrainingSettings
from graphact.training.single import LoopedModels
from graphact.training.stacked import StackedGraphs, StackedTasks, check_tasks, digest_of
from graphact.training.stacked_models import StackedModels

STRATEGIES = ("stacked", "loop")


@dataclass(frozen=True)
class FleetResult:
    """Results of training a fleet; entry r of each list belongs to model r.

    Attributes:
        test: the metric on the test samples, with the parameters that validated best; NaN if training diverged.
        validation: the best validation metric; NaN without validation samples.
        best_epoch: the epoch that reached it; 0 if training diverged from the first epoch on.
        seconds_before: spent on all models before training was interrupted and taken up again.
    """

    test: list[float]
    validation: list[float]
    best_epoch: list[int]
    seconds_before: float = field(default=0.0, compare=False)

    @classmethod
    def joined(cls, results: "Sequence[FleetResult]") -> "FleetResult":
        """The results of several fleets as those of one."""
        columns = zip(*((result.test, result.validation, result.best_epoch) for result in results), strict=True)
        test, validation, best_epoch = ([value for part in column for value in part] for column in columns)
        return cls(test, validation, best_epoch)


class Fleet:
    """R models of one shape, each with a task, a graph and a seed of its own, trained and evaluated together.

    Each model ends as if it had been trained alone with :func:`~graphact.training.fit`. Models that describe
    themselves (:meth:`~graphact.nn.GraphModule.layers`) as filter banks, built-in activations and a readout are
    stacked: one operation computes a layer of all of them, and on a GPU a step is recorded once and replayed. Other
    modules are called one after another.

    Args:
        models: modules called as ``model(x, graph)``, with parameters of equal names and shapes and none in common.
        tasks: one for each model, alike in everything but graph, samples and node.
        seeds: one for each model; they decide the order of its samples and what is random in it, such as dropout.
        device: where to train.
        dtype: precision to train in.
        strategy: insist on ``"stacked"`` or ``"loop"``; stacked where that is possible when left out.

    Attributes:
        strategy: ``"stacked"`` or ``"loop"``.
        reason: why models are not stacked; empty where they are.
        seeds: ``(R,)``.
        inputs: ``(G, S, N, F)``, those of the distinct pairs of samples and graph.
        owner: ``(R,)``, for each model the place of its inputs among the distinct ones.
        num_samples: how many samples each model is trained on.
        parameters: what is trained: tensors with a leading replica dimension, or all parameters one by one in a loop.

    Raises:
        ValueError: models or tasks are not alike, share parameters, keep a state besides parameters and buffers, or
            hold NaN in their samples.
        UnsupportedModelError: the strategy that was asked for is impossible.

    Example:
        >>> import torch
        >>> from graphact import Graph
        >>> from graphact.nn import GCNN
        >>> from graphact.training import Fleet, Task, TrainingSettings
        >>> graph = Graph.stochastic_block_model([10, 10], 0.8, 0.1).normalize("spectral")
        >>> x = torch.rand(60, 20, 1)
        >>> splits = torch.arange(60).split([40, 10, 10])
        >>> tasks = [Task("copy a node", graph, x, x[:, node, 0], *splits, node=node) for node in range(4)]
        >>> fleet = Fleet([GCNN([1, 4]) for _ in tasks], tasks)
        >>> fleet.strategy
        'stacked'
        >>> len(fleet.train(TrainingSettings(epochs=1)).test)
        4
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        tasks: Sequence[Task],
        seeds: Sequence[int] | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        strategy: str | None = None,
    ) -> None:
        if not models or len(models) != len(tasks):
            raise ValueError(
                f"models and tasks must be equally many and at least one, got {len(models)} and {len(tasks)}"
            )
        if seeds is not None and len(seeds) != len(models):
            raise ValueError(f"seeds must have one number for each of the {len(models)} models, got {len(seeds)}")
        for number, seed in enumerate([] if seeds is None else seeds):
            check_seed(f"seeds[{number}]", seed)
        if strategy is not None:
            check_choice("strategy", strategy, STRATEGIES)
        check_models(models)
        check_tasks(tasks)
        dtype = tasks[0].inputs.dtype if dtype is None else dtype
        self.models = list(models)
        self.data = StackedTasks(tasks, range(len(models)) if seeds is None else seeds, device, dtype)
        self.strategy, self.reason, self.batch = choose(self.models, self.data, strategy)
        self.seeds, self.inputs, self.owner = self.data.seeds, self.data.inputs, self.data.owner
        self.num_samples, self.parameters = self.batch.num_samples, self.batch.parameters
        self.diverged = torch.zeros_like(self.seeds, dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.models)

    def first_owners(self) -> list[int]:
        """For each of the distinct pairs of samples and graph, the first model that has it."""
        return self.data.first_owners()

    def train(
        self,
        settings: TrainingSettings | None = None,
        *,
        progress: EpochProgress | None = None,
        checkpoint: Path | None = None,
        every: Callable[[], bool] = lambda: False,
    ) -> FleetResult:
        """Train all models and leave them, and the modules they came from, with the parameters that validated best.

        Args:
            settings: epochs, batch size, optimizer; the paper's when left out.
            progress: called after every epoch with the epoch, the number of epochs and the training loss.
            checkpoint: file to continue from if it is of this training, and to write to.
            every: asked after each epoch whether to write the checkpoint now.
        """
        settings = settings or TrainingSettings()
        saved = None if checkpoint is None else FileCheckpoint(checkpoint, self._identity(), settings, every)
        make_step = captured_step if self.strategy == "stacked" and self.seeds.is_cuda else None
        with self.batch.in_use():
            start = [tensor.detach().clone() for tensor in self.batch.state()]
            try:
                selection = train(self.batch, settings, progress=progress, checkpoint=saved, make_step=make_step)
            except BaseException:  # interrupted: the models are as before
                self.batch.restore(start)
                raise
            self.batch.restore(selection.state)
            self.batch.write_back()
            self.diverged = selection.epoch == 0
            return FleetResult(
                test=self.metric("test").tolist(),
                validation=selection.metric.tolist(),
                best_epoch=selection.epoch.tolist(),
                seconds_before=selection.seconds_before,
            )

    def _identity(self) -> str:
        """Tell this training from others: models, where they start, and tasks."""
        alike = self.strategy != "loop"  # models differ in parameters and buffers alone
        modules = " ".join(map(fingerprint, self.models[:1] if alike else self.models))
        start = digest_of(self.batch.state())
        return f"{self.strategy} {modules} {shapes_of(self.models[0])} {start} {self.inputs.dtype} {self.data.digest()}"

    def losses(self, positions: Tensor) -> Tensor:
        """The loss ``(R,)`` of each model on the training samples at ``positions`` ``(R, B)``, differentiable."""
        with self.batch.in_use():
            return self.batch.losses(positions)

    def forward(self, x: Tensor, graphs: StackedGraphs | None = None) -> Tensor:
        """The answers that count: ``(R, B, out_features)`` at one node each, or ``(R, B, N, out_features)``.

        Args:
            x: ``(R, B, N, F)``.
            graphs: other graphs than those of the tasks, such as thinned ones.
        """
        with self.batch.in_use():
            return self.batch.forward(x, graphs or self.data.graphs)

    def answers(
        self, samples: Tensor, graphs: StackedGraphs | None = None, inputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The answers of the models to samples ``(R, B)`` of their tasks, and the targets."""
        with self.batch.in_use():
            if graphs is None and inputs is None:
                answers = self.batch.answers(samples)
            else:
                answers = self.batch.forward(self.data.signals(samples, inputs), graphs or self.data.graphs)
            return answers, self.data.targets_of(samples)

    @torch.no_grad()
    def metric(self, split: str, graphs: StackedGraphs | None = None, inputs: Tensor | None = None) -> Tensor:
        """The metric ``(R,)`` of each model on its ``"train"``, ``"validation"`` or ``"test"`` samples.

        It is NaN for models whose training never gave a finite validation metric.

        Args:
            split: which samples.
            graphs: other graphs than those of the tasks, such as thinned ones.
            inputs: the signals on these graphs, like ``self.inputs``, where they depend on the graph.
        """
        if graphs is None and inputs is None:
            with self.batch.in_use():
                metric = self.batch.metric(split)
        else:
            answers, targets = self.answers(self.data.splits[split], graphs, inputs)
            metric = metric_of(self.batch.task.metric, answers, targets, leading=1)
        return metric.masked_fill(self.diverged, torch.nan)


def choose(
    models: Sequence[nn.Module], data: StackedTasks, strategy: str | None
) -> tuple[str, str, StackedModels | LoopedModels]:
    """Return the given strategy or the fastest that is right, why models are not stacked, and the models prepared."""
    reason = "it was asked for"
    if strategy != "loop":
        try:
            for model in models:
                check_parameters(model)
            return "stacked", "", StackedModels(models, data)
        except UnsupportedModelError as error:
            if strategy is not None:
                raise
            reason = str(error)
    return "loop", reason, LoopedModels(models, data)


def check_parameters(model: nn.Module) -> None:
    """Raise if a stacked copy of a parameter would not do what the parameter does."""
    for name, parameter in model.named_parameters():
        if type(parameter) is not nn.Parameter:
            raise UnsupportedModelError(name, f"it is a parameter of the special class {type(parameter).__name__}")
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            raise UnsupportedModelError(name, "it carries hooks, which may change its gradient")


def check_models(models: Sequence[nn.Module]) -> None:
    """Raise if models have other parameters, trained or not, than the first, or share some."""
    expected, owner = shapes_of(models[0]), dict[int, int]()
    for number, model in enumerate(models):
        found = shapes_of(model)
        for name in {**expected, **found}:
            if expected.get(name) != found.get(name):
                raise ValueError(
                    f"models must have one configuration, got {name} as {expected.get(name)} in the first and as "
                    f"{found.get(name)} in model {number}"
                )
        for name, tensor in state_of(model).items():
            if owner.setdefault(id(tensor), number) != number:
                raise ValueError(f"models must not share parameters, got {name} in {owner[id(tensor)]} and {number}")
