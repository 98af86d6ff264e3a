"""Descriptions in files: JSON values in which every array is the name of a tensor of the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphact.spec.kinds import (
    Activation,
    AdaptiveFilter,
    Convolution,
    Filter,
    HopMixture,
    Linear,
    Pointwise,
    Sum,
)
from graphact.spec.layer import Layer, UnsupportedModelError
from graphact.spec.reductions import Operation, find_operation
from graphact.spec.scaling_layers import InputScaling, OutputScaling

STORED = (
    Filter,
    AdaptiveFilter,
    Linear,
    Pointwise,
    HopMixture,
    Activation,
    Convolution,
    Sum,
    InputScaling,
    OutputScaling,
)


def to_json(layers: Sequence[Layer], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return a description for a file, with the name of a tensor of that file for each array.

    Args:
        layers: the layers.
        names: the name of each tensor by the ``id`` of its array.

    Raises:
        UnsupportedModelError: an array is computed rather than stored, or an operation has no registered name.
    """
    return [layer_to_json(layer, names, f"layer {number}") for number, layer in enumerate(layers)]


def layer_to_json(layer: Layer, names: Mapping[int, str], part: str) -> dict[str, Any]:
    """Return the description of one layer, whose name in errors is ``part``."""
    if not isinstance(layer, STORED):
        raise UnsupportedModelError(part, f"a layer of the kind {layer.kind!r} cannot be stored in a file")
    if isinstance(layer, Sum):
        branches = [
            [layer_to_json(one, names, f"{part}.{number}") for number, one in enumerate(layers)]
            for layers in layer.branches
        ]
        return {"kind": layer.kind, "branches": branches}
    for operation in operations_of(layer):
        if not is_registered(operation):
            reason = f"its operation {operation.name!r} holds a Python function that is not registered under a name"
            raise UnsupportedModelError(part, reason)
    for name, array in layer.arrays().items():
        if id(array) not in names:
            reason = (
                f"its {name} is computed from other parameters; make it an ordinary one first: "
                "graphact.guarantees.release(model) for a limit of the Lipschitz constant, "
                "torch.nn.utils.parametrize.remove_parametrizations for other parametrizations"
            )
            raise UnsupportedModelError(part, reason)
    arrays = {name: names[id(array)] for name, array in layer.arrays().items()}
    return {"kind": layer.kind, **layer.settings(), "arrays": arrays}


def operations_of(layer: Layer) -> tuple[Operation, ...]:
    """Return the functions of a neighbourhood that a layer evaluates."""
    if isinstance(layer, HopMixture):
        return (layer.operation,)
    return tuple(op for op, _ in layer.functions) if isinstance(layer, AdaptiveFilter) else ()


def is_registered(operation: Operation) -> bool:
    """Return whether a file can refer to an operation by its name."""
    try:
        return find_operation(operation.name) is operation
    except ValueError:
        return False
