"""Models that do not describe themselves: called together through ``torch.func`` where that is right, else in turn.

``torch.vmap`` calls one module with the parameters of many. That is right where the modules differ in nothing but
parameters and buffers, where nothing is random (each model has a random stream of its own), and where no step depends
on values. Whether it is so is found out by comparing the modules and by trying.
"""

import copy
import hashlib
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from graphact.data import metric_of
from graphact.graph import Graph
from graphact.layers import UnsupportedModelError
from graphact.nn.base import original_class
from graphact.training.randomness import random_stream
from graphact.training.samples import StackedBatch, StackedTasks, stack
from graphact.training.single import (
    SeparateModels,
    extra_state,
    is_spared,
    state_of,
    trained_parameters,
    untrained_tensors,
)
from graphact.training.stacked import StackedGraphs

PROBE_SAMPLES = 4
PLAIN = (bool, int, float, complex, str, bytes, set, frozenset, range, torch.device, torch.Size)


class VmappedModels(StackedBatch):
    """Models whose code is one, as the training loop sees them; those that share a graph are called together.

    Args:
        models: modules of one shape.
        data: the tasks.
    """

    def __init__(self, models: Sequence[nn.Module], data: StackedTasks) -> None:
        self.models, self.template = list(models), copy.deepcopy(models[0]).to(data.inputs)
        trained, untrained = (stack_states(models, group, data) for group in (trained_parameters, untrained_tensors))
        for parameter in trained.values():
            parameter.requires_grad_()
        super().__init__(data, trained, [name for name in trained if is_spared(name)], untrained)

    def set_mode(self, training: bool) -> None:
        """See :class:`StackedBatch`."""
        self.template.train(training)

    @torch.no_grad()
    def write_back(self) -> None:
        """See :class:`StackedBatch`."""
        state = {**self.trained, **self.others}
        for replica, model in enumerate(self.models):
            for name, tensor in state_of(model).items():
                values = state[name][replica]
                if not torch.equal(values, tensor.to(values.device, values.dtype)):  # others keep all their digits
                    tensor.copy_(values)

    def outputs(self, samples: Tensor) -> Tensor:
        """See :class:`StackedBatch`."""
        return self.outputs_on(self.data.signals(samples), self.data.graphs)

    def outputs_on(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """See :class:`StackedBatch`."""
        groups = groups_of(graphs.graphs)
        if len(groups) == 1:
            outputs, self.others = call_together(self.template, self.trained, self.others, x, graphs.graphs[0])
        else:
            outputs, self.others = self._call_groups(groups, x, graphs)
        return outputs if self.data.nodes is None else outputs[self.data.replicas, :, self.data.nodes]

    def _call_groups(
        self, groups: list[list[int]], x: Tensor, graphs: StackedGraphs
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """One call for each graph."""
        order = torch.tensor([number for members in groups for number in members], device=x.device)
        found = []
        for index, members in zip(order.split([*map(len, groups)]), groups, strict=True):
            trained, untrained = rows(self.trained, index), rows(self.others, index)
            graph = graphs.graphs[members[0]]
            found.append(call_together(self.template, trained, untrained, x.index_select(0, index), graph))
        back = order.argsort()
        changed = {name: torch.cat([each[name] for _, each in found])[back] for name in self.others}
        return torch.cat([outputs for outputs, _ in found]).index_select(0, back), changed


def call_together(
    template: nn.Module, trained: dict[str, Tensor], untrained: dict[str, Tensor], x: Tensor, graph: Graph
) -> tuple[Tensor, dict[str, Tensor]]:
    """One module with stacked parameters and stacked signals: outputs, and frozen parameters and buffers afterwards."""

    def run(trained: dict[str, Tensor], untrained: dict[str, Tensor], x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        state = {**trained, **untrained}
        outputs = torch.func.functional_call(template, state, (x, graph))
        if any(state[name] is not tensor for name, tensor in trained.items()):
            raise RuntimeError("a call replaces a parameter")
        return outputs, {name: state[name] for name in untrained}

    outputs, changed = torch.vmap(run)(trained, untrained, x)
    return outputs, {name: value.detach().contiguous() for name, value in changed.items()}


class LoopedModels(SeparateModels):
    """Models of any kind, called one after another in their own modules, as a fleet needs them.

    Args:
        models: the modules; while they are in use they are on the device and in the dtype of the tasks.
        data: the tasks.
    """

    def __init__(self, models: Sequence[nn.Module], data: StackedTasks) -> None:
        super().__init__(models, data.separately(), data.seeds.tolist())
        self.data = data

    def answers(self, samples: Tensor, graphs: StackedGraphs | None = None, inputs: Tensor | None = None) -> Tensor:
        """See :class:`StackedBatch`."""
        return self.forward(self.data.signals(samples, inputs), self.data.graphs if graphs is None else graphs)

    def forward(self, x: Tensor, graphs: StackedGraphs) -> Tensor:
        """See :class:`StackedBatch`."""
        return torch.stack([self.evaluate(number, x[number], graph) for number, graph in enumerate(graphs.graphs)])

    @torch.no_grad()
    def metric(self, split: str, graphs: StackedGraphs | None = None, inputs: Tensor | None = None) -> Tensor:
        """See :class:`StackedBatch`."""
        if graphs is None and inputs is None:
            return super().metric(split)
        samples, task = self.data.splits[split], self.tasks[0]
        answers = self.answers(samples, graphs, inputs)
        return metric_of(task.metric, answers, self.data.targets_of(samples), leading=1)

    def write_back(self) -> None:
        """Nothing to do: the modules themselves were trained."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Bring the modules to the device and dtype of the tasks, and afterwards back, in the mode they were in."""
        device, dtype = self.data.inputs.device, self.data.inputs.dtype
        before = [{name: tensor.data for name, tensor in state_of(model).items()} for model in self.models]
        with self.own_modes():
            try:
                for model in self.models:
                    for tensor in state_of(model).values():
                        place(tensor, tensor.data.to(device, dtype if tensor.is_floating_point() else None))
                yield
            finally:
                for model, originals in zip(self.models, before, strict=True):
                    for name, tensor in state_of(model).items():
                        bring_back(tensor, originals.get(name, tensor.data))


def call_models_together(models: Sequence[nn.Module], data: StackedTasks) -> VmappedModels:
    """Models that may be called together through ``torch.vmap``.

    Raises:
        UnsupportedModelError: they may not, or would not give the same values.
    """
    members = max(groups_of(data.graphs.graphs), key=len)
    if len(members) == 1:
        raise UnsupportedModelError("", "no two models share a graph")
    for number, model in enumerate(models[1:], start=1):
        if not same(models[0], model, {}):
            raise UnsupportedModelError(f"model {number}", "it differs from the first in more than its parameters")
    if extra_state(models[0]):
        raise UnsupportedModelError("", "modules keep a state of their own besides buffers")
    try:
        batch = VmappedModels(models, data)
        with warnings.catch_warnings(), random_stream(data.seeds.device, 0, 0, 0), torch.enable_grad():
            warnings.filterwarnings("error", message=".*batching rule")
            try_together(batch, members[:2])
    except UnsupportedModelError:
        raise
    except Exception as error:  # whatever a module may raise: it is then called as it is
        raise UnsupportedModelError("", f"torch.vmap: {[*str(error).split(chr(10)), ''][0]}") from error
    return batch


def try_together(batch: VmappedModels, members: list[int]) -> None:
    """Call some models together and in turn, in both modes.

    Raises:
        UnsupportedModelError: that makes a difference, or a call changes more than buffers.
    """
    index = torch.tensor(members, device=batch.seeds.device)
    x = batch.data.signals(batch.data.splits["train"][:, :PROBE_SAMPLES]).index_select(0, index)
    graph = batch.data.graphs.graphs[members[0]]
    before = rows(batch.trained, index)
    for training in (True, False):
        batch.set_mode(training)
        results = []
        for call in (call_together, call_in_turn):
            trained = {name: tensor.detach().clone().requires_grad_() for name, tensor in before.items()}
            outputs, changed = call(batch.template, trained, rows(batch.others, index), x, graph)
            grads = torch.autograd.grad(outputs.square().sum(), list(trained.values()), allow_unused=True)
            results.append([outputs.detach(), *changed.values(), *grads])
            if not all(torch.equal(trained[name], before[name]) for name in before):
                raise UnsupportedModelError("", "a call changes parameters")
        if not all(is_close(first, second) for first, second in zip(*results, strict=True)):
            raise UnsupportedModelError("", "torch.vmap gives other values")
    if not same(batch.template, batch.models[0], {}):
        raise UnsupportedModelError("", "a call changes attributes of a module")


def call_in_turn(
    template: nn.Module, trained: dict[str, Tensor], untrained: dict[str, Tensor], x: Tensor, graph: Graph
) -> tuple[Tensor, dict[str, Tensor]]:
    """What :func:`call_together` must give."""
    found = []
    for number, signal in enumerate(x):
        state = {name: tensor[number] for name, tensor in (trained | untrained).items()}
        outputs = torch.func.functional_call(template, state, (signal, graph))
        found.append((outputs, {name: state[name].detach() for name in untrained}))
    changed = {name: torch.stack([each[name] for _, each in found]) for name in untrained}
    return torch.stack([outputs for outputs, _ in found]), changed


def is_close(first: Tensor | None, second: Tensor | None) -> bool:
    """Whether two results differ by rounding at most."""
    if first is None or second is None or first.shape != second.shape:
        return first is second
    first, second = first.double(), second.double()
    return bool(((first - second).abs() <= 1e-4 * second.abs().amax()).all()) if first.numel() else True


def same(first: Any, second: Any, seen: dict[tuple[int, int], Any]) -> bool:
    """Whether two objects are equal in everything but the parameters, the buffers and the mode of modules.

    In doubt they are not. Functions are equal only if they are one, since they may enclose anything.
    """
    if first is second or (id(first), id(second)) in seen:
        return True
    seen[id(first), id(second)] = first, second  # their ids are not given to others meanwhile
    if isinstance(first, nn.Module) and isinstance(second, nn.Module):
        return original_class(first) is original_class(second) and same(attributes(first), attributes(second), seen)
    if type(first) is not type(second) or isinstance(first, FunctionType | ModuleType | type):
        return False
    if isinstance(first, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, PLAIN):
        return bool(first == second)
    if isinstance(first, MethodType):
        parts: Any = [(method.__func__, method.__self__) for method in (first, second)]
    elif type(first) in (dict, OrderedDict):
        parts = [tuple(item for pair in mapping.items() for item in pair) for mapping in (first, second)]
    elif type(first) in (list, tuple):
        parts = [first, second]
    else:
        try:
            reduced = [value.__reduce_ex__(4) for value in (first, second)]
        except Exception:  # an object that cannot be taken apart is equal to itself alone
            return False
        parts = [[list(part) if isinstance(part, Iterator) else part for part in whole] for whole in reduced]
        if isinstance(reduced[0], str):
            return False
    return len(parts[0]) == len(parts[1]) and all(same(a, b, seen) for a, b in zip(*parts, strict=True))


def attributes(module: nn.Module) -> dict[str, Any]:
    """All that a call depends on but the values of parameters and buffers, and the mode."""
    found = {name: value for name, value in vars(module).items() if name != "training" and "state_dict" not in name}
    for kind in ("_parameters", "_buffers"):
        found[kind] = [(name, tensor is None) for name, tensor in found[kind].items()]
    return found


def fingerprint(model: nn.Module) -> str:
    """SHA-256 over the classes and attributes of all modules, as far as they can be shown."""

    def show(value: Any) -> str:
        try:
            return re.sub(" at 0x[0-9a-f]+", "", repr(sorted(value) if isinstance(value, set) else value))
        except Exception:
            return type(value).__qualname__

    shown = [
        f"{name} {original_class(module).__module__}.{original_class(module).__qualname__} {key} {show(value)}"
        for name, module in model.named_modules()
        for key, value in attributes(module).items()
        if key != "_modules"
    ]
    return hashlib.sha256("\n".join(shown).encode()).hexdigest()


def groups_of(graphs: Sequence[Graph]) -> list[list[int]]:
    """The positions of each distinct graph."""
    groups: dict[int, list[int]] = {}
    for number, graph in enumerate(graphs):
        groups.setdefault(id(graph), []).append(number)
    return list(groups.values())


def rows(state: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    """The state of some replicas."""
    return {name: tensor.index_select(0, index) for name, tensor in state.items()}


def stack_states(
    models: Sequence[nn.Module], tensors_of: Callable[[nn.Module], dict[str, Tensor]], data: StackedTasks
) -> dict[str, Tensor]:
    """Tensors of all models, stacked by name; numbers in the dtype of the tasks."""
    states = [tensors_of(model) for model in models]
    inputs = data.inputs
    return {name: stack([state[name].detach() for state in states], inputs.device, inputs.dtype) for name in states[0]}


def place(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor other values, of another type or on another device; a gradient would not fit them."""
    if (tensor.device, tensor.dtype) != (values.device, values.dtype):
        tensor.data, tensor.grad = values, None


def bring_back(tensor: Tensor, original: Tensor) -> None:
    """Give a tensor the type and device of its original, and all its digits if the values have not changed."""
    is_unchanged = torch.equal(tensor.data, original.to(tensor.device, tensor.dtype))
    place(tensor, original if is_unchanged else tensor.data.to(original.device, original.dtype))
