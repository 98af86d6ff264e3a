"""Models that describe themselves, side by side: what their layers compute, for all replicas at once.

Shapes as in ``stacked.py``. A network is a row of filter banks, each with an activation after it or none, and then
perhaps one linear map.
"""

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from graphact.functional.activation import iterated_extremes
from graphact.functional.elementwise import FUNCTIONS, pointwise
from graphact.functional.neighborhood import evaluate as evaluate_lists
from graphact.functional.neighborhood import evaluate_kernel
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.nn.module import describe
from graphact.spec import Filter, HopMixture, Layer, Linear, Pointwise, UnsupportedModelError, structure
from graphact.spec.operations import MAX, MIN
from graphact.training.samples import StackedBatch, StackedTasks
from graphact.training.stacked import EgoGraphs, StackedGraphs
from graphact.training.stacked_signals import FilteredInputs, ShiftedInputs, StackedSignal, stacked_filter

Activation = HopMixture | Pointwise


class StackedModels(StackedBatch):
    """Described models; one operation computes a layer of all of them.

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
        trained, frozen = dict[str, Tensor](), dict[str, Tensor]()
        for number, alike in enumerate(zip(*self.described, strict=True)):
            arrays = {}
            for name, first in alike[0].arrays().items():
                stacked = torch.stack([layer.arrays()[name].detach() for layer in alike]).to(data.inputs)
                arrays[name] = stacked.requires_grad_(first.requires_grad)
                (trained if first.requires_grad else frozen)[f"{number}.{name}"] = stacked
            self.layers.append(alike[0].with_arrays(arrays))
        super().__init__(data, trained, frozen)
        self.stages, self.readout = stages_of(self.layers)
        self.shifted_inputs = self._shift_inputs()

    def _shift_inputs(self) -> ShiftedInputs:
        """All shifts that the first filter bank and the activation after it need."""
        data = self.data
        graphs = StackedGraphs([data.graphs.graphs[number] for number in data.first_owners()])
        bank, activation = stages_of(self.described[0])[0][0]
        hops = 0
        # on a GPU, shifting by small matrix products was faster than summing and differentiating more columns
        cheap_shifts = graphs.dense is not None and data.inputs.is_cuda
        if isinstance(activation, HopMixture) and activation.reads == "shifted" and not cheap_shifts:
            hops = activation.hops
        return ShiftedInputs(data.inputs, graphs, data.owner, bank.exchanges, hops, bank.bias is not None)

    @torch.no_grad()
    def write_back(self) -> None:
        for replica, layers in enumerate(self.described):
            for layer, stacked in zip(layers, self.layers, strict=True):
                for name, array in layer.arrays().items():
                    if array.requires_grad:
                        array.copy_(stacked.arrays()[name][replica])

    def answers(self, samples: Tensor) -> Tensor:
        bank, _ = self.stages[0]
        signal = FilteredInputs(self.shifted_inputs, samples, self.data.graphs, bank.taps, bank.bias)
        return self._after_first_filter(signal, self.data.graphs)

    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        bank, _ = self.stages[0]
        x = x.transpose(1, 2).contiguous()
        return self._after_first_filter(stacked_filter(x, graphs, bank.taps, bank.bias), graphs)

    def _after_first_filter(self, signal: StackedSignal, graphs: StackedGraphs) -> Tensor:
        for (_, activation), (bank, _) in pairwise(self.stages):
            x = self._activate(signal, graphs, None, activation)
            signal = stacked_filter(x, graphs, bank.taps, bank.bias)
        ego = None
        if self.data.nodes is not None:  # nothing after the last filter bank is needed but at these nodes
            ego = self._own_ego_graphs if graphs is self.data.graphs else EgoGraphs(graphs, self.data.nodes)
        answers = self._activate(signal, graphs, ego, self.stages[-1][1])
        if self.readout is not None:
            read = torch.bmm(answers.flatten(1, 2), self.readout.weight.transpose(1, 2))
            read = read if self.readout.bias is None else read + self.readout.bias.unsqueeze(1)
            answers = read.view(*answers.shape[:-1], -1)
        return answers.transpose(1, 2) if ego is None else answers.squeeze(1)

    @cached_property
    def _own_ego_graphs(self) -> EgoGraphs:
        assert self.data.nodes is not None
        return EgoGraphs(self.data.graphs, self.data.nodes)

    def _activate(
        self, signal: StackedSignal, graphs: StackedGraphs, ego: EgoGraphs | None, activation: Activation | None
    ) -> Tensor:
        """The activation of a signal at all nodes, ``(R, N, B, F)``, or in the centers of ego graphs alone."""
        if not isinstance(activation, HopMixture):
            own = signal.everywhere(0) if ego is None else signal.around(ego, [])
            return own if activation is None else apply_pointwise(own, activation)
        gamma = activation.parameters.get("gamma")
        if gamma is not None:  # of each replica, trained or one number for all
            gamma = gamma if isinstance(gamma, Tensor) else self.data.inputs.new_full((len(self.data),), gamma)
            gamma = gamma.view(-1, 1, 1, 1)
        hops = range(1, activation.weights.size(1) + 1) if activation.reads == "shifted" else range(1)
        if activation.reads == "hops" and activation.weights.size(1) > 1:
            own = signal.everywhere(0)
            values = evaluate_hops(own, graphs.union, activation, gamma, ego if gamma is None else None)
            if ego is not None:
                own, *values = (x.flatten(0, 1).index_select(0, ego.nodes).unsqueeze(1) for x in (own, *values))
        elif ego is None:
            shifts = (signal.everywhere(hop) for hop in hops)
            values = [evaluate(z, graphs.union, activation, gamma) for z in shifts]
            own = signal.everywhere(0)
        else:
            own, around = _LastRow.apply(signal.around(ego, hops))
            union, centers = ego.union(len(hops))
            chosen = evaluate(around, union, activation, gamma).flatten(0, 1).index_select(0, centers)
            values = [*chosen.view(len(around), len(hops), 1, *around.shape[2:]).unbind(1)]
        return autograd.mix(own, values, activation.beta, activation.weights)


def evaluate(z: Tensor, graph: Graph, activation: HopMixture, gamma: Tensor | None) -> Tensor:
    """The operation over neighbourhoods in one graph whose nodes are all rows ``(R, n)`` of a signal."""
    if gamma is not None:
        rows = (z / gamma).flatten(0, 1).flatten(1)
        return evaluate_kernel(rows, graph.incoming, graph.outgoing, 1.0).view(z.shape)
    rows, op = z.flatten(0, 1).flatten(1), activation.operation.name
    return autograd.fused_neighbor_pass(rows, graph, op, activation.closed, shifting=False)[0].view(z.shape)


def evaluate_hops(
    z: Tensor, graph: Graph, activation: HopMixture, gamma: Tensor | None, ego: EgoGraphs | None
) -> list[Tensor]:
    """The operation over the neighbours of each hop of a localized activation, likewise, or at centers alone."""
    rows, hops = (z if gamma is None else z / gamma).flatten(0, 1).flatten(1), activation.weights.size(1)
    if ego is not None:
        op, lists = activation.operation.name, ego.hop_lists(hops, activation.closed)
        return [autograd.select(rows, None, hop, op, False)[0].view(z.shape) for hop in lists]
    term = partial(evaluate_lists, op=activation.operation, parameters={"gamma": 1.0})
    walk = partial(iterated_extremes, op=activation.operation.name) if activation.operation in (MAX, MIN) else None
    return [value.view(z.shape) for value in graph.k_hop(rows, hops, activation.closed, term, walk)]


def apply_pointwise(x: Tensor, layer: Pointwise) -> Tensor:
    """The function of a signal ``(R, n, B, F)``, with the trained arrays of each replica."""
    arrays = layer.arrays().values()
    if layer.function == "maxout":
        return pointwise(x, "maxout", *(array.view(*array.shape[:2], 1, 1, -1).transpose(0, 1) for array in arrays))
    return pointwise(x, layer.function, *(array.view(len(x), 1, 1, -1) for array in arrays))


class _LastRow(torch.autograd.Function):
    """The last row of each replica beside all of them, of which the rest of the work leaves the last alone.

    Autograd would make two gradients as large as the signal and add them; here that of the row is added in place to
    the other, which nobody else holds.
    """

    @staticmethod
    def forward(ctx: Any, signal: Tensor) -> tuple[Tensor, Tensor]:
        return signal[:, -1:].clone(), signal.view_as(signal)

    @staticmethod
    def backward(ctx: Any, grad_row: Tensor, grad_all: Tensor) -> Tensor:
        grad_all[:, -1:] += grad_row
        return grad_all


def stackable_layers(model: nn.Module) -> tuple[Layer, ...]:
    """The layers of a model that can be stacked with others like it; raise if it has others."""
    layers = describe(model)
    for number, (_, activation) in enumerate(stages_of(layers)[0]):
        if reason := why_not_stacked(activation):
            raise UnsupportedModelError(f"activation {number}", reason)
    arrays = [array for layer in layers for array in layer.arrays().values()]
    if len({*map(id, arrays)}) != len(arrays) or {*map(id, arrays)} != {*map(id, model.parameters())}:
        raise UnsupportedModelError("", "a parameter is computed from others, shared or unused")
    return layers


def stages_of(layers: Sequence[Layer]) -> tuple[list[tuple[Filter, Activation | None]], Linear | None]:
    """Each filter bank with the activation after it, and the readout; raise if layers come in another order."""
    stages, readout = list[tuple[Filter, Activation | None]](), None
    for number, layer in enumerate(layers):
        may_follow = bool(stages) and readout is None
        if isinstance(layer, Filter) and readout is None:
            stages.append((layer, None))
        elif isinstance(layer, Linear) and may_follow:
            readout = layer
        elif isinstance(layer, HopMixture | Pointwise) and may_follow and stages[-1][1] is None:
            stages[-1] = stages[-1][0], layer
        else:
            raise UnsupportedModelError(f"layer {number}", f"a layer of kind {layer.kind!r} is not stacked here")
    if not stages:
        raise UnsupportedModelError("", "there is no filter bank")
    return stages, readout


def why_not_stacked(activation: Activation | None) -> str:
    """Why an activation has no stacked form; empty where it has one."""
    match activation:
        case Pointwise(function=function) if function not in FUNCTIONS:
            return f"the function {function!r} is not stacked"
        case HopMixture(operation=operation) if not operation.is_built_in:
            return f"the operation {operation.name!r} is not stacked"
    return ""
