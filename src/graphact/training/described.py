"""Models that describe themselves, side by side: what their layers compute, for all replicas at once.

Shapes as in ``stacked.py``. A network is a row of filter banks, each with an activation after it or none, and then
perhaps one linear map.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphact.functional.neighborhood import evaluate_kernel
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.layers import Filter, HopMixture, Layer, Linear, Pointwise, UnsupportedModelError
from graphact.nn.base import describe
from graphact.training.ego_graphs import EgoGraphs
from graphact.training.samples import StackedBatch, StackedTasks
from graphact.training.stacked import StackedGraphs
from graphact.training.stacked_signals import FilteredInputs, ShiftedInputs, StackedSignal, stacked_filter

Activation = HopMixture | Pointwise


class StackedModels(StackedBatch):
    """Described models as the training loop sees them; one optimizer step moves all of them.

    Args:
        described: the layers of each model, as :func:`stackable_layers` gives them.
        data: the tasks.
    """

    def __init__(self, described: Sequence[tuple[Layer, ...]], data: StackedTasks) -> None:
        self.described, self.layers = list(described), list[Layer]()
        trained, spared, frozen = dict[str, Tensor](), list[str](), dict[str, Tensor]()
        for number, alike in enumerate(zip(*described, strict=True)):
            arrays = {}
            for name, first in alike[0].arrays().items():
                stacked = torch.stack([layer.arrays()[name].detach() for layer in alike]).to(data.inputs)
                arrays[name] = stacked.requires_grad_(first.requires_grad)
                (trained if first.requires_grad else frozen)[f"{number}.{name}"] = stacked
                spared += [f"{number}.{name}"] if name == "bias" and first.requires_grad else []
            self.layers.append(alike[0].with_arrays(arrays))
        super().__init__(data, trained, spared, frozen)
        self.stages, self.readout = stages_of(self.layers)
        self.shifted_inputs = self._shift_inputs()
        self._readout_node: ReadoutNode | None = None

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
        """See :class:`StackedBatch`."""
        for replica, layers in enumerate(self.described):
            for layer, stacked in zip(layers, self.layers, strict=True):
                for name, array in layer.arrays().items():
                    if array.requires_grad:
                        array.copy_(stacked.arrays()[name][replica])

    def outputs(self, samples: Tensor) -> Tensor:
        """See :class:`StackedBatch`."""
        bank, _ = self.stages[0]
        signal = FilteredInputs(self.shifted_inputs, samples, self.data.graphs, bank.taps, bank.bias)
        return self._after_first_filter(signal, self.data.graphs)

    def outputs_on(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """See :class:`StackedBatch`."""
        bank, _ = self.stages[0]
        x = x.transpose(1, 2).contiguous()
        return self._after_first_filter(stacked_filter(x, graphs, bank.taps, bank.bias), graphs)

    def _after_first_filter(self, signal: StackedSignal, graphs: StackedGraphs) -> Tensor:
        for number, (_, activation) in enumerate(self.stages):
            is_last = number + 1 == len(self.stages)
            where = self._where(graphs, is_last)
            x = where.own(signal) if activation is None else self._activate(signal, where, activation)
            if not is_last:
                bank, _ = self.stages[number + 1]
                signal = stacked_filter(x, graphs, bank.taps, bank.bias)
        answers = x if self.readout is None else read_out(x, self.readout)
        return answers.transpose(1, 2) if self.data.nodes is None else answers.squeeze(1)

    def _where(self, graphs: StackedGraphs, is_last: bool) -> "Everywhere | ReadoutNode":
        """The nodes whose values the next layer needs."""
        if self.data.nodes is None or not is_last:
            return Everywhere(graphs)
        if graphs is not self.data.graphs:
            return ReadoutNode(graphs, self.data.nodes)
        if self._readout_node is None:
            self._readout_node = ReadoutNode(graphs, self.data.nodes)
        return self._readout_node

    def _activate(self, signal: StackedSignal, where: "Everywhere | ReadoutNode", activation: Activation) -> Tensor:
        if isinstance(activation, Pointwise):
            return torch.relu(where.own(signal))
        gamma = activation.parameters.get("gamma")
        if gamma is not None and not isinstance(gamma, Tensor):
            gamma = self.data.inputs.new_full((len(self.data),), gamma)
        hops = range(1, activation.weights.size(1) + 1) if activation.reads == "shifted" else [0]
        own, values = where.hops(signal, hops, activation.operation.name, activation.closed, gamma)
        return autograd.mix(own, values, activation.beta, activation.weights)


def stackable_layers(model: nn.Module) -> tuple[Layer, ...]:
    """The layers of a model that can be stacked with others like it.

    Raises:
        UnsupportedModelError: the model is not described, or not in a form that is known here.
    """
    layers = describe(model)
    for number, (_, activation) in enumerate(stages_of(layers)[0]):
        check_stackable(activation, f"activation {number}")
    arrays = [array for layer in layers for array in layer.arrays().values()]
    if len({*map(id, arrays)}) != len(arrays) or {*map(id, arrays)} != {*map(id, model.parameters())}:
        raise UnsupportedModelError("", "a parameter is computed from others, shared or unused")
    return layers


def stages_of(layers: Sequence[Layer]) -> tuple[list[tuple[Filter, Activation | None]], Linear | None]:
    """Each filter bank with the activation after it, and the readout.

    Raises:
        UnsupportedModelError: the layers come in another order.
    """
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


def check_stackable(activation: Activation | None, part: str) -> None:
    """Raise if an activation has no stacked form."""
    if activation is None:
        return
    if isinstance(activation, Pointwise):
        if activation.function != "relu":
            raise UnsupportedModelError(part, f"the function {activation.function!r} is not stacked")
    elif not activation.operation.is_built_in:
        raise UnsupportedModelError(part, f"the operation {activation.operation.name!r} is not stacked")
    elif activation.reads == "hops" and activation.exchanges > 1:
        raise UnsupportedModelError(part, f"localized activations are stacked with one hop, got {activation.exchanges}")


def read_out(x: Tensor, readout: Linear) -> Tensor:
    """A linear map of its own for each replica."""
    read = torch.bmm(x.reshape(len(x), -1, x.size(-1)), readout.weight.transpose(1, 2))
    if readout.bias is not None:
        read = read + readout.bias.unsqueeze(1)
    return read.view(*x.shape[:-1], -1)


class Everywhere:
    """All nodes of all replicas."""

    def __init__(self, graphs: StackedGraphs) -> None:
        self.graphs = graphs

    def own(self, signal: StackedSignal) -> Tensor:
        """The values of the nodes themselves, ``(R, N, B, F)``."""
        return signal.everywhere(0)

    def hops(
        self, signal: StackedSignal, hops: Sequence[int], op: str, closed: bool, gamma: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The values of the nodes themselves, and the operation over their neighbourhoods after so many shifts.

        Args:
            signal: what the activation is applied to.
            hops: how often the signal is shifted before each term; 0 is the signal itself.
            op: "max", "min", "median" or "kernel".
            closed: count nodes among their neighbours.
            gamma: widths of the kernel, ``(R,)``; None for other operations.
        """
        values = []
        for hop in hops:
            z = signal.everywhere(hop)
            rows = (z if gamma is None else z / gamma.view(-1, 1, 1, 1)).flatten(0, 1).flatten(1)
            values.append(evaluate(rows, self.graphs.union, op, closed).view(z.shape))
        return self.own(signal), values


class ReadoutNode:
    """One node of each replica; the arguments and results are those of :class:`Everywhere`."""

    def __init__(self, graphs: StackedGraphs, nodes: Tensor) -> None:
        self.ego = EgoGraphs(graphs, nodes)

    def own(self, signal: StackedSignal) -> Tensor:
        """The values of the nodes themselves, ``(R, 1, B, F)``."""
        return signal.around(self.ego, [])

    def hops(
        self, signal: StackedSignal, hops: Sequence[int], op: str, closed: bool, gamma: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The value of the node itself, and the operation over its neighbourhood after so many shifts."""
        own, around = _LastRow.apply(signal.around(self.ego, hops))
        values = around if gamma is None else around / gamma.view(-1, 1, 1, 1)
        graph, centers = self.ego.union(len(hops))
        chosen = evaluate(values.flatten(0, 1).flatten(1), graph, op, closed).index_select(0, centers)
        return own, [term.unsqueeze(1) for term in chosen.view(len(around), len(hops), *around.shape[2:]).unbind(1)]


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


def evaluate(rows: Tensor, graph: Graph, op: str, closed: bool) -> Tensor:
    """An operation over neighbourhoods by name; the kernel has the width 1."""
    if op == "kernel":
        return evaluate_kernel(rows, graph.incoming, graph.outgoing, 1.0)
    return autograd.fused_neighbor_pass(rows, graph, op, closed, shifting=False)[0]
