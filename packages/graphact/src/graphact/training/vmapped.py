"""Models that do not describe themselves, called together by ``torch.vmap`` where that is right.

It calls one module with the parameters of many. That is right where the modules differ in nothing but parameters and
buffers, where nothing is random (each model has a random stream of its own), and where no step depends on values.
Comparing the modules and trying a call decide whether it is so.
"""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from graphact.graph import Graph
from graphact.spec import UnsupportedModelError
from graphact.training.module_state import State, extra_state, same, state_of, trained_parameters, untrained_tensors
from graphact.training.randomness import random_stream
from graphact.training.stacked import StackedBatch, StackedGraphs, StackedTasks, stack

PROBE_SAMPLES = 4


class VmappedModels(StackedBatch):
    """Models whose code is one; those that share a graph are called together.

    Raises:
        UnsupportedModelError: they may not be called together, or would not give the same values.
    """

    def __init__(self, models: Sequence[nn.Module], data: StackedTasks) -> None:
        members = max(data.graphs.groups, key=len)
        if len(members) == 1:
            raise UnsupportedModelError("", "no two models share a graph")
        for number, model in enumerate(models[1:], start=1):
            if not same(models[0], model):
                raise UnsupportedModelError(f"model {number}", "it differs from the first in more than its parameters")
        if extra_state(models[0]):
            raise UnsupportedModelError("", "modules keep a state of their own besides buffers")
        try:
            self.models, self.template = list(models), copy.deepcopy(models[0]).to(data.inputs)
            trained, untrained = (
                stack_states(models, group, data) for group in (trained_parameters, untrained_tensors)
            )
            for parameter in trained.values():
                parameter.requires_grad_()
            super().__init__(data, trained, untrained)
            with warnings.catch_warnings(), random_stream(data.seeds.device, 0, 0, 0), torch.enable_grad():
                warnings.filterwarnings("error", message=".*batching rule")
                self._try_together(members[:2])
        except UnsupportedModelError:
            raise
        except Exception as error:  # whatever a module may raise: it is then called as it is
            raise UnsupportedModelError("", f"torch.vmap: {[*str(error).split(chr(10)), ''][0]}") from error

    def losses(self, positions: Tensor) -> Tensor:
        self.template.train()  # and it stays so until gradients are computed: layers may be called again for them
        return super().losses(positions)

    def metric(self, split: str) -> Tensor:
        self.template.eval()
        return super().metric(split)

    def in_use(self) -> AbstractContextManager[None]:
        self.template.eval()
        return super().in_use()

    @torch.no_grad()
    def write_back(self) -> None:
        state = {**self.trained, **self.others}
        for replica, model in enumerate(self.models):
            for name, tensor in state_of(model).items():
                values = state[name][replica]
                if not torch.equal(values, tensor.to(values.device, values.dtype)):  # others keep all their digits
                    tensor.copy_(values)

    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        groups = graphs.groups
        if len(groups) == 1:
            outputs, self.others = call_together(self.template, self.trained, self.others, x, graphs.graphs[0])
        else:  # one call for each graph
            order = torch.tensor([number for members in groups for number in members], device=x.device)
            found, back = [], order.argsort()
            for index, members in zip(order.split([*map(len, groups)]), groups, strict=True):
                trained, untrained = rows(self.trained, index), rows(self.others, index)
                graph = graphs.graphs[members[0]]
                found.append(call_together(self.template, trained, untrained, x.index_select(0, index), graph))
            outputs = torch.cat([outputs for outputs, _ in found]).index_select(0, back)
            self.others = {name: torch.cat([each[name] for _, each in found])[back] for name in self.others}
        return outputs if self.data.nodes is None else outputs[self.data.replicas, :, self.data.nodes]

    def _try_together(self, members: list[int]) -> None:
        """Call some models together and in turn, in both modes; raise if that makes a difference."""
        index = torch.tensor(members, device=self.seeds.device)
        x = self.data.signals(self.data.splits["train"][:, :PROBE_SAMPLES]).index_select(0, index)
        graph = self.data.graphs.graphs[members[0]]
        before = rows(self.trained, index)
        for training in (True, False):
            self.template.train(training)
            results = []
            for call in (call_together, call_in_turn):
                trained = {name: tensor.detach().clone().requires_grad_() for name, tensor in before.items()}
                outputs, changed = call(self.template, trained, rows(self.others, index), x, graph)
                grads = torch.autograd.grad(outputs.square().sum(), list(trained.values()), allow_unused=True)
                results.append([outputs.detach(), *changed.values(), *grads])
                if not all(torch.equal(trained[name], before[name]) for name in before):
                    raise UnsupportedModelError("", "a call changes parameters")
            if not all(is_close(first, second) for first, second in zip(*results, strict=True)):
                raise UnsupportedModelError("", "torch.vmap gives other values")
        if not same(self.template, self.models[0]):
            raise UnsupportedModelError("", "a call changes attributes of a module")


def call_together(
    template: nn.Module, trained: State, untrained: State, x: Tensor, graph: Graph
) -> tuple[Tensor, State]:
    """One module with stacked parameters and stacked signals: outputs, and frozen parameters and buffers afterwards."""

    def run(trained: State, untrained: State, x: Tensor) -> tuple[Tensor, State]:
        state = {**trained, **untrained}
        outputs = torch.func.functional_call(template, state, (x, graph))
        if any(state[name] is not tensor for name, tensor in trained.items()):
            raise RuntimeError("a call replaces a parameter")
        return outputs, {name: state[name] for name in untrained}

    outputs, changed = torch.vmap(run)(trained, untrained, x)
    return outputs, {name: value.detach().contiguous() for name, value in changed.items()}


def call_in_turn(
    template: nn.Module, trained: State, untrained: State, x: Tensor, graph: Graph
) -> tuple[Tensor, State]:
    """Compute what :func:`call_together` must give, model by model."""
    outputs, states = [], []
    for number, signal in enumerate(x):
        states.append({name: tensor[number] for name, tensor in (trained | untrained).items()})
        outputs.append(torch.func.functional_call(template, states[-1], (signal, graph)))
    return torch.stack(outputs), {name: torch.stack([state[name].detach() for state in states]) for name in untrained}


def is_close(first: Tensor | None, second: Tensor | None) -> bool:
    """Return whether two results differ by rounding at most."""
    if first is None or second is None or first.shape != second.shape:
        return first is second
    first, second = first.double(), second.double()
    return bool(((first - second).abs() <= 1e-4 * second.abs().amax()).all()) if first.numel() else True


def rows(state: State, index: Tensor) -> State:
    """The state of some replicas."""
    return {name: tensor.index_select(0, index) for name, tensor in state.items()}


def stack_states(models: Sequence[nn.Module], group: Callable[[nn.Module], State], data: StackedTasks) -> State:
    """The tensors of one kind of all models, stacked by name; numbers in the dtype of the tasks."""
    states, inputs = [group(model) for model in models], data.inputs
    return {name: stack([state[name].detach() for state in states], inputs.device, inputs.dtype) for name in states[0]}
