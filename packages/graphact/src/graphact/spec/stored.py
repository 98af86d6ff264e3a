"""Descriptions in files: JSON values in which every array is the name of a tensor of the file."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphact.spec.kinds import Activation, Convolution, Filter, HopMixture, Linear, Pointwise
from graphact.spec.layer import Layer, UnsupportedModelError
from graphact.spec.operations import Operation, find_operation

STORED = (Filter, Linear, Pointwise, HopMixture, Activation, Convolution)


def to_json(layers: Sequence[Layer], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Return a description for a file, with the name of a tensor of that file for each array.

    Args:
        layers: the layers.
        names: the name of each tensor by the ``id`` of its array.

    Raises:
        UnsupportedModelError: an array is computed rather than stored, or an operation has no registered name.
    """
    described = []
    for number, layer in enumerate(layers):
        if not isinstance(layer, STORED):
            raise UnsupportedModelError(
                f"layer {number}", f"a layer of the kind {layer.kind!r} cannot be stored in a file"
            )
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
    """Return whether a file can refer to an operation by its name."""
    try:
        return find_operation(operation.name) is operation
    except ValueError:
        return False
