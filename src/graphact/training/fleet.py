"""Training many models of one shape as one batch."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphact.data import Task, loss_of, metric_of
from graphact.graph import Graph
from graphact.layers import HopMixture, UnsupportedModelError, structure
from graphact.nn import FIR, GCNN, GraphModule
from graphact.nn.activation import MixedActivation
from graphact.nn.graph_adaptive import GraphAdaptive, GraphAdaptiveKernel
from graphact.nn.localized import LocalizedMax
from graphact.training.capture import captured_step
from graphact.training.loop import Progress, train
from graphact.training.settings import TrainingSettings
from graphact.training.stacked import StackedGraphs
from graphact.training.stacked_activation import AtOneNode, Everywhere, stacked_activation
from graphact.training.stacked_filter import stacked_filter
from graphact.training.stacked_signal import FilteredInputs, ShiftedInputs, StackedSignal


@dataclass(frozen=True)
class FleetResult:
    """What came of training a fleet; entry r of each list belongs to model r.

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


class Fleet:
    """R models of one shape, each with a task, a graph and a seed of its own, trained and evaluated together.

    Parameters carry a leading replica dimension; one optimizer step moves all models. Each model ends as if it had
    been trained alone with :func:`~graphact.training.fit`.

    Args:
        models: GCNNs or FIRs with equal configurations.
        tasks: one for each model, alike in everything but graph, samples and node.
        seeds: one for each model; they decide the order of its samples.
        device: where to train.
        dtype: precision to train in.

    Example:
        >>> from graphact.nn import GCNN
        >>> from graphact.tasks import source_localization_tasks
        >>> from graphact.training import Fleet, TrainingSettings
        >>> tasks = source_localization_tasks(graphs=1, splits=2, nodes=2)
        >>> fleet = Fleet([GCNN([1, 4], out_features=4) for _ in tasks], tasks)
        >>> len(fleet.train(TrainingSettings(epochs=1)).test)
        4
    """

    def __init__(
        self,
        models: Sequence[GraphModule],
        tasks: Sequence[Task],
        seeds: Sequence[int] | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
    ) -> None:
        check_alike(models, tasks)
        if seeds is not None and len(seeds) != len(models):
            raise ValueError(f"seeds must have one number for each of the {len(models)} models, got {len(seeds)}")
        self.template, self.task, self.models = models[0], tasks[0], list(models)
        dtype = tasks[0].inputs.dtype if dtype is None else dtype
        self.seeds = torch.tensor(range(len(models)) if seeds is None else list(seeds), device=device)
        self.graphs = StackedGraphs(move_graphs([task.graph for task in tasks], device, dtype))
        self.inputs, self.owner = stack_distinct([(task.inputs, task.graph) for task in tasks], device, dtype)
        self.targets = stack([task.targets for task in tasks], device, dtype)
        self.splits = {
            name: torch.stack([getattr(task, name) for task in tasks]).to(device)
            for name in ("train", "validation", "test")
        }
        self.nodes = None if self.task.node is None else torch.tensor([task.node for task in tasks], device=device)
        self._read_node: AtOneNode | None = None
        self.diverged = torch.zeros_like(self.seeds, dtype=torch.bool)
        self.replicas = torch.arange(len(models), device=device)
        states = [model.state_dict() for model in models]
        self.state = {
            name: torch.stack([state[name] for state in states]).to(device, dtype).requires_grad_()
            for name in states[0]
        }
        self.parameters = list(self.state.values())
        self.biases = [parameter for name, parameter in self.state.items() if name.endswith("bias")]
        self.shifted_inputs = self._shift_inputs(tasks)
        self.num_samples = self.splits["train"].size(1)
        self.higher_is_better = self.task.higher_is_better

    def __len__(self) -> int:
        return len(self.models)

    def train(
        self,
        settings: TrainingSettings | None = None,
        *,
        progress: Progress | None = None,
        checkpoint: Path | None = None,
        every: Callable[[], bool] = lambda: False,
    ) -> FleetResult:
        """Train all models and leave them, and the modules they came from, with the parameters that validated best."""
        make_step = captured_step if self.seeds.is_cuda else None
        selection = train(
            self,
            settings or TrainingSettings(),
            progress=progress,
            checkpoint=checkpoint,
            every=every,
            make_step=make_step,
        )
        self.keep(torch.ones_like(self.seeds, dtype=torch.bool), selection.parameters, reverse=True)
        self.write_back()
        self.diverged = selection.epoch == 0
        return FleetResult(
            test=self.metric("test").tolist(),
            validation=selection.metric.tolist(),
            best_epoch=selection.epoch.tolist(),
            seconds_before=selection.seconds_before,
        )

    def identity(self) -> str:
        """See :class:`~graphact.training.loop.Trainee`."""
        tensors = [self.inputs, self.targets, self.owner, self.seeds, *self.splits.values()]
        tensors += [*self.graphs.union.to_edge_index(), *([] if self.nodes is None else [self.nodes])]
        digest = 0
        for tensor in tensors:
            digest = zlib.crc32(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), digest)
        return f"{type(self.template).__name__} {self.template.config()} {self.inputs.dtype} {digest:08x}"

    def _shift_inputs(self, tasks: Sequence[Task]) -> ShiftedInputs:
        """All shifts that the first filter bank and the activation after it need."""
        graphs = [tasks[number].graph for number in self.first_owners()]
        stacked = StackedGraphs(move_graphs(graphs, self.inputs.device, self.inputs.dtype))
        taps, bias = self._bank(0)
        hops = 0
        # on a GPU, shifting by small matrix products was faster than summing and differentiating more columns
        cheap_shifts = stacked.dense is not None and self.inputs.is_cuda
        following = self.template.layers()[1:2]
        if following and isinstance(following[0], HopMixture) and following[0].reads == "shifted" and not cheap_shifts:
            hops = following[0].hops
        return ShiftedInputs(self.inputs, stacked, self.owner, taps.size(1) - 1, hops, bias is not None)

    def first_owners(self) -> list[int]:
        """For each of the distinct pairs of signals and graph, the first model that has it."""
        first = {owner: number for number, owner in reversed(list(enumerate(self.owner.tolist())))}
        return [first[owner] for owner in range(len(first))]

    def write_back(self) -> None:
        """Copy the parameters to the modules the fleet was made of."""
        with torch.no_grad():
            for number, model in enumerate(self.models):
                for name, tensor in model.state_dict().items():
                    tensor.copy_(self.state[name][number])

    def forward(self, x: Tensor, graphs: StackedGraphs | None = None) -> Tensor:
        """The answers that count: ``(R, B, out_features)`` at one node each, or ``(R, B, N, out_features)``.

        Args:
            x: ``(R, B, N, F)``.
            graphs: other graphs than those of the tasks, such as thinned ones.
        """
        graphs = self.graphs if graphs is None else graphs
        x = x.transpose(1, 2).contiguous()
        return self._after_first_filter(stacked_filter(x, graphs, *self._bank(0)), graphs)

    def _bank(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """Taps and bias of a layer."""
        return self.state[f"filters.{layer}.taps"], self.state.get(f"filters.{layer}.bias")

    def _after_first_filter(self, signal: StackedSignal, graphs: StackedGraphs) -> Tensor:
        """All that follows the first filter bank."""
        assert isinstance(self.template, (GCNN, FIR))
        depth = len(self.template.filters)
        for layer in range(depth):
            where = self._where(graphs, is_last=layer + 1 == depth)
            x = self._activate(signal, where, layer) if isinstance(self.template, GCNN) else where.own(signal)
            if layer + 1 < depth:
                signal = stacked_filter(x, graphs, *self._bank(layer + 1))
        answers = self._read_out(x)
        return answers.transpose(1, 2) if self.nodes is None else answers.squeeze(1)

    def _where(self, graphs: StackedGraphs, is_last: bool) -> Everywhere | AtOneNode:
        """The nodes whose values the next step needs."""
        if self.nodes is None or not is_last:
            return Everywhere(graphs)
        if graphs is not self.graphs:
            return AtOneNode(graphs, self.nodes)
        if self._read_node is None:
            self._read_node = AtOneNode(graphs, self.nodes)
        return self._read_node

    def _activate(self, signal: StackedSignal, where: Everywhere | AtOneNode, layer: int) -> Tensor:
        assert isinstance(self.template, GCNN)
        activation = self.template.activations[layer]
        if not isinstance(activation, MixedActivation):
            return torch.relu(where.own(signal))
        prefix = f"activations.{layer}"
        gamma = None
        if isinstance(activation, GraphAdaptiveKernel):
            learned = self.state.get(f"{prefix}.log_gamma")
            constant = activation.initial["gamma"]
            gamma = self.inputs.new_full((len(self),), constant) if learned is None else learned.exp()
        return stacked_activation(
            signal,
            where,
            operation_of(activation),
            isinstance(activation, (GraphAdaptive, GraphAdaptiveKernel)),
            self.state[f"{prefix}.beta"],
            self.state[f"{prefix}.weights"],
            gamma,
            activation.closed,
        )

    def _read_out(self, x: Tensor) -> Tensor:
        weight = self.state.get("readout.weight")
        if weight is None:
            return x
        read = torch.bmm(x.reshape(len(self), -1, x.size(-1)), weight.transpose(1, 2))
        if "readout.bias" in self.state:
            read = read + self.state["readout.bias"].unsqueeze(1)
        return read.view(*x.shape[:-1], -1)

    def answers(
        self, samples: Tensor, graphs: StackedGraphs | None = None, inputs: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What the models say to samples ``(R, B)`` of their tasks, and what they should say."""
        if graphs is not None:
            inputs = self.inputs if inputs is None else inputs
            return self.forward(inputs[self.owner.unsqueeze(1), samples], graphs), self._targets(samples)
        signal = FilteredInputs(self.shifted_inputs, samples, self.graphs, *self._bank(0))
        return self._after_first_filter(signal, self.graphs), self._targets(samples)

    def _targets(self, samples: Tensor) -> Tensor:
        return self.targets[self.replicas.unsqueeze(1), samples]

    def losses(self, positions: Tensor) -> Tensor:
        """See :class:`~graphact.training.loop.Trainee`."""
        samples = self.splits["train"].gather(1, positions)
        return loss_of(self.task.loss, *self.answers(samples), leading=1)

    @torch.no_grad()
    def metric(self, split: str, graphs: StackedGraphs | None = None, inputs: Tensor | None = None) -> Tensor:
        """The metric ``(R,)`` of each model on its ``"train"``, ``"validation"`` or ``"test"`` samples.

        It is NaN for models whose training never gave a finite validation metric.

        Args:
            split: which samples.
            graphs: other graphs than those of the tasks, such as thinned ones.
            inputs: the signals on these graphs, like ``self.inputs``, where they depend on the graph.
        """
        metric = metric_of(self.task.metric, *self.answers(self.splits[split], graphs, inputs), leading=1)
        return metric.masked_fill(self.diverged, torch.nan)

    def validate(self) -> Tensor | None:
        """See :class:`~graphact.training.loop.Trainee`."""
        return self.metric("validation") if self.splits["validation"].size(1) else None

    @torch.no_grad()
    def keep(self, better: Tensor, kept: list[Tensor], *, reverse: bool = False) -> None:
        """See :class:`~graphact.training.loop.Trainee`; in reverse, take the kept ones back."""
        for best, parameter in zip(kept, self.parameters, strict=True):
            mask = better.view(-1, *[1] * (best.dim() - 1))
            target, source = (parameter, best) if reverse else (best, parameter)
            target.copy_(torch.where(mask, source, target))


def operation_of(activation: MixedActivation) -> str:
    """The function that an activation takes over neighbourhoods, by name."""
    if isinstance(activation, GraphAdaptive):
        return str(activation.op)
    if isinstance(activation, GraphAdaptiveKernel):
        return "kernel"
    return "max" if isinstance(activation, LocalizedMax) else "median"


def check_alike(models: Sequence[GraphModule], tasks: Sequence[Task]) -> None:
    """Say so if the models or tasks cannot be trained as one."""
    if not models or len(models) != len(tasks):
        raise ValueError(f"models and tasks must be equally many and at least one, got {len(models)} and {len(tasks)}")
    if not isinstance(models[0], (GCNN, FIR)):
        raise TypeError(f"models must be GCNN or FIR, got {type(models[0]).__name__}")
    for model in models:
        if type(model) is not type(models[0]) or model.config() != models[0].config():
            raise ValueError(f"models must have one configuration, got {models[0].config()} and {model.config()}")
    for number, model in enumerate(models):
        check_described(model, f"model {number}", structure(models[0].layers()))
    for task in tasks:
        for name in ("loss", "metric", "out_features"):
            if getattr(task, name) != getattr(tasks[0], name):
                raise ValueError(
                    f"tasks must agree in {name}, got {getattr(tasks[0], name)!r}, {getattr(task, name)!r}"
                )
        for name in ("inputs", "targets", "train", "validation", "test"):
            if getattr(task, name).shape != getattr(tasks[0], name).shape:
                raise ValueError(
                    f"{name} of the tasks must have one shape, got {tuple(getattr(tasks[0], name).shape)} "
                    f"and {tuple(getattr(task, name).shape)}"
                )
        if (task.node is None) != (tasks[0].node is None):
            raise ValueError("tasks must all read one node or all read every node")


def check_described(model: GraphModule, name: str, expected: list[dict[str, Any]]) -> None:
    """Raise if a model computes something else than the fleet would train."""
    layers = model.layers()
    if structure(layers) != expected:
        raise UnsupportedModelError(name, "its layers differ from those of the first model")
    trained = [array for layer in layers for array in layer.arrays().values()]
    if {id(array) for array in trained} != {id(parameter) for parameter in model.parameters()}:
        raise UnsupportedModelError(name, "a parameter is computed from others, shared or unused")
    if not all(parameter.requires_grad for parameter in model.parameters()):
        raise UnsupportedModelError(name, "a frozen parameter would be trained")
    for layer in layers:
        if isinstance(layer, HopMixture):
            if layer.reads == "hops" and layer.hops > 1:
                raise UnsupportedModelError(
                    name, f"localized activations in a fleet must have one hop, got hops={layer.hops}"
                )
            if not layer.operation.is_built_in:
                raise UnsupportedModelError(name, f"the operation {layer.operation.name!r} is not stacked")


def move_graphs(graphs: Sequence[Graph], device: torch.device | str, dtype: torch.dtype) -> list[Graph]:
    """Each distinct graph moved once."""
    moved = {id(graph): graph.to(device, dtype) for graph in graphs}
    return [moved[id(graph)] for graph in graphs]


def stack_distinct(
    inputs: Sequence[tuple[Tensor, Graph]], device: torch.device | str, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The inputs of the distinct pairs of inputs and graph stacked, and for each pair its place among them."""
    distinct = {(id(tensor), id(graph)): tensor for tensor, graph in inputs}
    place = {key: number for number, key in enumerate(distinct)}
    owner = torch.tensor([place[id(tensor), id(graph)] for tensor, graph in inputs], device=device)
    return stack(list(distinct.values()), device, dtype), owner


def stack(tensors: Sequence[Tensor], device: torch.device | str, dtype: torch.dtype) -> Tensor:
    """Numbers in the given precision, classes as they are."""
    stacked = torch.stack(list(tensors))
    return stacked.to(device, dtype) if stacked.is_floating_point() else stacked.to(device)
