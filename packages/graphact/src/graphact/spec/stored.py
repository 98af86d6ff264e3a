"""Descriptions in files: JSON values in which every array is the name of a tensor of the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphact.spec.kinds import Activation, Convolution, Filter, HopMixture, Linear, Pointwise
from graphact.spec.layer import Layer, UnsupportedModelError
from graphact.spec.operations import Array, Operation, find_operation

KINDS: dict[str, type[Layer]] = {
    layer.kind: layer for layer in (Filter, Linear, Pointwise, HopMixture, Activation, Convolution)
}


def to_json(layers: Sequence[Layer], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """A description for a file: every array stands for a tensor of that file, named by the array's ``id``.

    Raise UnsupportedModelError if an array has no name (it is computed, not stored), or an operation has none.
    """
    described = []
    for number, layer in enumerate(layers):
        if layer.kind not in KINDS:
            raise UnsupportedModelError(f"layer {number}", f"a layer of the kind {layer.kind!r} has no place in a file")
        if isinstance(layer, HopMixture) and not is_registered(layer.operation):
            reason = (
                f"its operation {layer.operation.name!r} holds a Python function that is not registered under a name"
            )
            raise UnsupportedModelError(f"layer {number}", reason)
        for name, array in layer.arrays().items():
            if id(array) not in names:
                reason = (
                    f"its {name} is computed from other parameters; make it an ordinary one first: "
                    "graphact.guarantees.release(model) for a limit of the Lipschitz constant, "
                    "torch.nn.utils.parametrize.remove_parametrizations for other parametrizations"
                )
                raise UnsupportedModelError(f"layer {number}", reason)
        arrays = {name: names[id(array)] for name, array in layer.arrays().items()}
        described.append({"kind": layer.kind, **layer.settings(), "arrays": arrays})
    return described


def is_registered(operation: Operation) -> bool:
    """Whether a file can refer to an operation by its name."""
    try:
        return find_operation(operation.name) is operation
    except ValueError:
        return False


def from_json(described: Sequence[Mapping[str, Any]], tensors: Mapping[str, Array]) -> tuple[Layer, ...]:
    """The layers that :func:`to_json` described; KeyError, TypeError or ValueError if they do not fit the tensors."""
    layers = []
    for entry in described:
        settings = {name: value for name, value in entry.items() if name not in ("kind", "arrays")}
        arrays = {name: tensors[tensor] for name, tensor in entry["arrays"].items()}
        layers.append(KINDS[entry["kind"]].from_parts(settings, arrays))
    return tuple(layers)
