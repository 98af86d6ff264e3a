"""Stacked models: one operation computes a layer of all replicas, from the description of the layer.

Shapes are those of ``stacked.py``. A network is a sequence of filter banks, each with or without an activation after
it and its input added to the result, and an optional linear map.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphact.functional.activation import iterated_extremes
from graphact.functional.elementwise import FUNCTIONS, pointwise
from graphact.functional.neighborhood import evaluate as evaluate_lists
from graphact.functional.neighborhood import evaluate_kernel
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.nn.module import describe
from graphact.spec import (
    AdaptiveFilter,
    Filter,
    HopMixture,
    Layer,
    Linear,
    Pointwise,
    Sum,
    UnsupportedModelError,
    structure,
)
from graphact.spec.reductions import KERNEL, LOG_MEAN_EXP, MAX, MIN, OURS, WEIGHTED_MEAN
from graphact.training.loop import TaskBatch
from graphact.training.stacked import EgoGraphs, StackedGraphs, StackedTasks
from graphact.training.stacked_signals import FilteredInputs, ShiftedInputs, StackedSignal, stacked_filter
from graphact.training.task import loss_of, metric_of

Activation = HopMixture | Pointwise
# parameters p of operations with f_p(z) = p f_1(z / p), or of the kernel f_p(z) = f_1(z / p)
SCALES = {KERNEL: "gamma", LOG_MEAN_EXP: "temperature", WEIGHTED_MEAN: "width"}


class Stage(NamedTuple):
    """A filter bank, the activation after it, and whether the result is added to the input of the bank."""

    bank: Filter | AdaptiveFilter
    activation: Activation | None
    adds_input: bool


class StackedModels(TaskBatch):
    """Described models; one operation computes a layer of all of them, from arrays with a leading replica dimension.

    Raises:
        UnsupportedModelError: a model does not describe itself, or in no form that can be stacked.
        ValueError: models describe different things.
    """

    def __init__(self, models: Sequence[nn.Module], data: StackedTasks) -> None:
        self.described, self.layers = [stackable_layers(model) for model in models], list[Layer]()
        expected = structure(self.described[0])
        for number, layers in enumerate(self.described):
            if structure(layers) != expected:
                raise ValueError(
                    f"models must have one configuration, got {expected} and {structure(layers)} in model {number}"
                )
        trained, self.frozen = dict[str, Tensor](), list[Tensor]()
        for number, alike in enumerate(zip(*self.described, strict=True)):
            arrays = {}
            for name, first in alike[0].arrays().items():
                stacked = torch.stack([layer.arrays()[name].detach() for layer in alike]).to(data.inputs)
                arrays[name] = stacked.requires_grad_(first.requires_grad)
                if first.requires_grad:
                    trained[f"{number}.{name}"] = stacked
                else:
                    self.frozen.append(stacked)
            self.layers.append(alike[0].with_arrays(arrays))
        super().__init__(data.tasks[0], trained.items(), data.seeds)
        self.data = data
        self.stages, self.readout = stages_of(self.layers)
        self.shifted_inputs = self._shift_inputs()

    def _shift_inputs(self) -> ShiftedInputs:
        """All shifts that the first filter bank and the activation after it need."""
        data = self.data
        graphs = StackedGraphs([data.graphs.graphs[number] for number in data.first_owners()])
        bank, activation, _ = stages_of(self.described[0])[0][0]
        hops = 0
        # on a GPU, shifting by small matrix products was faster than summing and differentiating more columns
        cheap_shifts = graphs.dense is not None and data.inputs.is_cuda
        if isinstance(activation, HopMixture) and isinstance(bank, Filter) and not cheap_shifts:
            hops = max(activation.shifts)
        return ShiftedInputs(data.inputs, graphs, data.owner, bank, hops)

    def untrained(self) -> list[Tensor]:
        return self.frozen

    def in_use(self) -> AbstractContextManager[None]:
        """A context around all calls; modules are only read."""
        return nullcontext()

    def losses(self, positions: Tensor) -> Tensor:
        samples = self.data.splits["train"].gather(1, positions)
        answers = self.answers(samples)
        self.task.check_outputs(answers)
        return loss_of(self.task.loss, answers, self.data.targets_of(samples), leading=1)

    @torch.no_grad()
    def metric(self, split: str) -> Tensor:
        samples = self.data.splits[split]
        return metric_of(self.task.metric, self.answers(samples), self.data.targets_of(samples), leading=1)

    @torch.no_grad()
    def keep(self, better: Tensor, kept: list[Tensor]) -> None:
        for best, tensor in zip(kept, self.state(), strict=True):
            mask = better.view(-1, *[1] * (best.dim() - 1))
            best.copy_(torch.where(mask, tensor, best))

    @torch.no_grad()
    def write_back(self) -> None:
        """Copy the stacked arrays to the modules they came from."""
        for replica, layers in enumerate(self.described):
            for layer, stacked in zip(layers, self.layers, strict=True):
                for name, array in layer.arrays().items():
                    if array.requires_grad:
                        array.copy_(stacked.arrays()[name][replica])

    def answers(self, samples: Tensor) -> Tensor:
        """The same for samples ``(R, B)`` of the tasks."""
        first = self.stages[0]
        signal = FilteredInputs(self.shifted_inputs, samples, self.data.graphs, first.bank)
        inputs = self.data.signals(samples).transpose(1, 2) if first.adds_input else None
        return self._after_first_filter(signal, inputs, self.data.graphs)

    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """The answers that count to signals ``(R, B, N, F)`` on any graphs, as :meth:`Fleet.forward` gives them."""
        x = x.transpose(1, 2).contiguous()
        return self._after_first_filter(stacked_filter(x, graphs, self.stages[0].bank), x, graphs)

    def _after_first_filter(self, signal: StackedSignal, x: Tensor | None, graphs: StackedGraphs) -> Tensor:
        for stage, following in pairwise(self.stages):
            out = activate(signal, graphs, stage.activation, None)
            x = x + out if stage.adds_input and x is not None else out
            signal = stacked_filter(x, graphs, following.bank)
        ego = None
        if self.data.nodes is not None:  # nothing after the last filter bank is needed but at these nodes
            ego = self._own_ego_graphs if graphs is self.data.graphs else EgoGraphs(graphs, self.data.nodes)
        answers = activate(signal, graphs, self.stages[-1].activation, ego)
        if self.stages[-1].adds_input and x is not None:
            answers = answers + (x if ego is None else x.flatten(0, 1).index_select(0, ego.nodes).unsqueeze(1))
        if self.readout is not None:
            read = torch.bmm(answers.flatten(1, 2), self.readout.weight.transpose(1, 2))
            read = read if self.readout.bias is None else read + self.readout.bias.unsqueeze(1)
            answers = read.view(*answers.shape[:-1], -1)
        return answers.transpose(1, 2) if ego is None else answers.squeeze(1)

    @cached_property
    def _own_ego_graphs(self) -> EgoGraphs:
        assert self.data.nodes is not None
        return EgoGraphs(self.data.graphs, self.data.nodes)


def activate(signal: StackedSignal, graphs: StackedGraphs, layer: Activation | None, ego: EgoGraphs | None) -> Tensor:
    """Return the activation of a signal at all nodes, ``(R, N, B, F)``, or only in the centers of ego graphs."""
    if isinstance(layer, HopMixture):
        return mix_hops(signal, graphs, layer, ego)
    own = signal.everywhere(0) if ego is None else signal.around(ego, [])
    return own if layer is None else apply_pointwise(own, layer)


def mix_hops(signal: StackedSignal, graphs: StackedGraphs, layer: HopMixture, ego: EgoGraphs | None = None) -> Tensor:
    r"""Return :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k f_k(x)` for all replicas, with an operation f of graphact.

    The terms are those of :func:`graphact.functional.graph_adaptive` and :func:`graphact.functional.localized`; shifts
    come from the signal in whatever form it is known.
    """
    scale, hops = layer.parameters.get(SCALES.get(layer.operation, "")), layer.weights.size(1)
    if scale is not None:  # of each replica, trained or one number for all
        scale = scale if isinstance(scale, Tensor) else layer.weights.new_full((len(layer.weights),), scale)
        scale = scale.view(-1, 1, 1, 1)
    if layer.reads == "hops" and hops > 1:
        own = signal.everywhere(0)
        values = evaluate_hops(own, graphs.union, layer, scale, ego if scale is None else None)
        if ego is not None:
            own, *values = (x.flatten(0, 1).index_select(0, ego.nodes).unsqueeze(1) for x in (own, *values))
        return autograd.mix(own, values, layer.beta, layer.weights)
    first = 1 if layer.reads == "shifted" else 0
    read = range(first, first + hops)
    if ego is None:
        values = [evaluate(signal.everywhere(hop), graphs.union, layer, scale) for hop in read]
        return autograd.mix(signal.everywhere(0), values, layer.beta, layer.weights)
    own, around = _LastRow.apply(signal.around(ego, read))
    union, centers = ego.union(len(read))
    chosen = evaluate(around, union, layer, scale).flatten(0, 1).index_select(0, centers)
    values = [*chosen.view(len(around), len(read), 1, *around.shape[2:]).unbind(1)]
    return autograd.mix(own, values, layer.beta, layer.weights)


def evaluate(z: Tensor, graph: Graph, activation: HopMixture, scale: Tensor | None) -> Tensor:
    """Evaluate the operation over neighbourhoods in a graph whose nodes are all rows ``(R, n)`` of a signal."""
    op, rows = activation.operation, (z if scale is None else z / scale).flatten(0, 1).flatten(1)
    if op is KERNEL:
        return evaluate_kernel(rows, graph.incoming, graph.outgoing, 1.0).view(z.shape)
    if op.is_built_in:
        return autograd.neighborhood_functions(rows, graph, [op.name], False, activation.closed)[0].view(z.shape)
    parameters = activation.constants if scale is None else {SCALES[op]: 1.0}
    values = evaluate_lists(rows, graph, op, parameters, activation.closed).view(z.shape)
    return values if scale is None else scale * values


def evaluate_hops(
    z: Tensor, graph: Graph, activation: HopMixture, scale: Tensor | None, ego: EgoGraphs | None
) -> list[Tensor]:
    """Evaluate it over the neighbours of each hop of a localized activation, at all nodes or only at centers."""
    rows, hops = (z if scale is None else z / scale).flatten(0, 1).flatten(1), activation.weights.size(1)
    if ego is not None:
        op, lists = activation.operation.name, ego.hop_lists(hops, activation.closed)
        return [autograd.select(rows, None, hop, op, False)[0].view(z.shape) for hop in lists]
    term = partial(evaluate_lists, op=activation.operation, parameters={"gamma": 1.0})
    walk = partial(iterated_extremes, op=activation.operation.name) if activation.operation in (MAX, MIN) else None
    return [value.view(z.shape) for value in graph.k_hop(rows, hops, activation.closed, term, walk)]


def apply_pointwise(x: Tensor, layer: Pointwise) -> Tensor:
    """Apply a function to a signal ``(R, n, B, F)``, with the trained arrays of each replica."""
    arrays = layer.arrays().values()
    if layer.function == "maxout":
        return pointwise(x, "maxout", *(array.view(*array.shape[:2], 1, 1, -1).transpose(0, 1) for array in arrays))
    return pointwise(x, layer.function, *(array.view(len(x), 1, 1, -1) for array in arrays))


class _LastRow(torch.autograd.Function):
    """Return the last row of each replica, and all rows.

    Autograd would make two gradients as large as the signal and add them; here that of the row is added in place to
    the other one, whose last row is unused and which has no other owner.
    """

    @staticmethod
    def forward(ctx: Any, signal: Tensor) -> tuple[Tensor, Tensor]:
        return signal[:, -1:].clone(), signal.view_as(signal)

    @staticmethod
    def backward(ctx: Any, grad_row: Tensor, grad_all: Tensor) -> Tensor:
        grad_all[:, -1:] += grad_row
        return grad_all


def stackable_layers(model: nn.Module) -> tuple[Layer, ...]:
    """Return the layers of a model if they can be stacked with others like them; raise otherwise."""
    layers = describe(model)
    for number, (_, activation, _) in enumerate(stages_of(layers)[0]):
        if reason := why_not_stacked(activation):
            raise UnsupportedModelError(f"activation {number}", reason)
    arrays = [array for layer in layers for array in layer.arrays().values()]
    if len({*map(id, arrays)}) != len(arrays) or {*map(id, arrays)} != {*map(id, model.parameters())}:
        raise UnsupportedModelError("", "a parameter is computed from others, shared or unused")
    return layers


def stages_of(layers: Sequence[Layer]) -> tuple[list[Stage], Linear | None]:
    """Pair each filter bank with the activation after it; return them and the readout, or raise for another order."""
    stages, readout = list[Stage](), None
    for number, layer in enumerate(layers):
        is_open = bool(stages) and readout is None and not stages[-1].adds_input
        if isinstance(layer, Filter | AdaptiveFilter) and readout is None:
            stages.append(Stage(layer, None, False))
        elif isinstance(layer, HopMixture | Pointwise) and is_open and stages[-1].activation is None:
            stages[-1] = stages[-1]._replace(activation=layer)
        elif isinstance(layer, Sum) and readout is None and len(inner := residual_stages(layer)) == 1:
            stages.append(inner[0]._replace(adds_input=True))
        elif isinstance(layer, Linear) and stages and readout is None:
            readout = layer
        else:
            raise UnsupportedModelError(f"layer {number}", f"a layer of kind {layer.kind!r} is not stacked here")
    if not stages:
        raise UnsupportedModelError("", "there is no filter bank")
    return stages, readout


def residual_stages(layer: Sum) -> list[Stage]:
    """Return the stages of a chain that is added to its input; none of another sum."""
    if len(layer.branches) != 2 or layer.branches[0]:
        return []
    stages, readout = stages_of(layer.branches[1])
    return stages if readout is None else []


def why_not_stacked(activation: Activation | None) -> str:
    """Explain why an activation has no stacked form; empty where it has one."""
    match activation:
        case Pointwise(function=function) if function not in FUNCTIONS:
            return f"the function {function!r} is not stacked"
        case HopMixture(operation=operation, reads="hops") if not operation.is_built_in:
            return f"the localized operation {operation.name!r} is not stacked"
        case HopMixture(operation=operation) if operation not in OURS:
            return f"the operation {operation.name!r} is not stacked"
    return ""
