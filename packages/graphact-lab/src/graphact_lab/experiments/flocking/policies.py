"""Policies side by side: networks of one shape with parameters of their own, each on the teams that it flies."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphact.functional.neighborhood import evaluate as evaluate_lists
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.nn import GraphModule
from graphact.spec import (
    Activation,
    Filter,
    HopMixture,
    Layer,
    Linear,
    Pointwise,
    UnsupportedModelError,
    structure,
)
from graphact.spec.reductions import find_operation
from graphact.training.stacked_models import apply_pointwise, mix_hops, why_not_stacked
from graphact.training.stacked_signals import KnownSignal, stacked_filter
from graphact_lab.experiments.flocking.team_graphs import TeamGraphs


class Policies:
    """R networks of one structure, whose parameters are stacked, with gradients.

    Attributes:
        models: the modules they come from; :meth:`write_back` changes them.
        parameters: tensors with a leading dimension of R.
        exchanges: between neighbours for one control.

    Raises:
        UnsupportedModelError: a layer is not a filter, a linear map or an activation that can be stacked.
        ValueError: the models have different structures.
    """

    def __init__(
        self, models: Sequence[GraphModule], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self.models, self.described = list(models), [model.layers() for model in models]
        expected = structure(self.described[0])
        for number, layers in enumerate(self.described):
            if structure(layers) != expected:
                raise ValueError(f"models must have one structure, got {structure(layers)} in model {number}")
        self.parameters: list[Tensor] = []
        self.layers: list[Layer] = []
        for number, alike in enumerate(zip(*self.described, strict=True)):
            check_layer(alike[0], number)
            arrays = {}
            for name in alike[0].arrays():
                stacked = torch.stack([layer.arrays()[name].detach() for layer in alike]).to(device, dtype)
                arrays[name] = stacked.requires_grad_()
                self.parameters.append(arrays[name])
            self.layers.append(alike[0].with_arrays(arrays))
        self.exchanges = sum(layer.exchanges for layer in self.described[0])

    def __len__(self) -> int:
        return len(self.models)

    def __call__(self, x: Tensor, graph: Graph) -> Tensor:
        """The controls ``(R, M, 2)`` from what is measured at the M rows of each policy, ``(R, M, 6)``."""
        graphs, x = TeamGraphs(graph, len(self)), x.unsqueeze(2)
        for layer in self.layers:
            match layer:
                case Filter():
                    x = stacked_filter(x, graphs, layer).everywhere(0)
                case Linear(weight=weight, bias=bias):
                    x = torch.bmm(x.squeeze(2), weight.transpose(1, 2)).unsqueeze(2)
                    x = x if bias is None else x + bias.view(len(self), 1, 1, -1)
                case Pointwise():
                    x = apply_pointwise(x, layer)
                case HopMixture():
                    x = mix_hops(KnownSignal(x, graphs), graphs, layer)
                case Activation():
                    x = mix_several(x, graphs, layer)
        return x.squeeze(2)

    def state(self) -> list[Tensor]:
        """A copy of the parameters."""
        return [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def keep(self, state: Sequence[Tensor], chosen: Tensor) -> None:
        """Overwrite a :meth:`state` with the present parameters of the policies that are chosen, ``(R,)``."""
        for kept, parameter in zip(state, self.parameters, strict=True):
            kept[chosen] = parameter[chosen]

    @torch.no_grad()
    def restore(self, state: Sequence[Tensor]) -> None:
        for kept, parameter in zip(state, self.parameters, strict=True):
            parameter.copy_(kept)

    @torch.no_grad()
    def write_back(self) -> None:
        """Give the modules the present parameters."""
        for replica, layers in enumerate(self.described):
            for layer, stacked in zip(layers, self.layers, strict=True):
                for name, array in layer.arrays().items():
                    array.copy_(stacked.arrays()[name][replica])


def check_layer(layer: Layer, number: int) -> None:
    """Raise if a layer cannot be stacked."""
    match layer:
        case Filter() | Linear():
            return
        case Pointwise() | HopMixture() if not why_not_stacked(layer):
            return
        case Activation(function="mixture-ga"):
            return
    raise UnsupportedModelError(f"layer {number}", f"a layer of the kind {layer.kind!r} cannot fly in a fleet")


def mix_several(x: Tensor, graphs: TeamGraphs, layer: Activation) -> Tensor:
    """Several functions of each neighbourhood, as :func:`graphact.functional.graph_adaptive_mixture` mixes them."""
    weights, signal = layer.tensors["weights"], KnownSignal(x, graphs)  # (R, M, K) or (R, M, K, F)
    operations, closed = [find_operation(name) for name in layer.options["ops"]], layer.options["closed"]
    first = 0 if layer.options.get("unshifted") else 1
    values = [
        evaluate_lists(signal.everywhere(hop).flatten(0, 2), graphs.union, op, op.parameters, closed).view(x.shape)
        for op in operations
        for hop in range(first, first + weights.size(2))
    ]
    return autograd.mix(x, values, layer.tensors["beta"], weights.flatten(1, 2))
