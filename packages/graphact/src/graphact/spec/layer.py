"""The base class of the layers of a description, and the error for models without a true description."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

from graphact.spec.reductions import Array


class UnsupportedModelError(TypeError, ValueError):
    """A part of a model is not described, or an interpreter cannot do what it describes.

    Attributes:
        part: which part, such as ``"activations.0"``; empty for the model itself.
        reason: what is unknown or impossible about it.
    """

    def __init__(self, part: str, reason: str) -> None:
        self.part, self.reason = part, reason
        super().__init__(f"{part}: {reason}" if part else reason)

    def inside(self, parent: str) -> "UnsupportedModelError":
        """Return the same error as seen from the module that holds the part under this name."""
        return UnsupportedModelError(f"{parent}.{self.part}" if self.part else parent, self.reason)


@dataclass(frozen=True, eq=False)
class Layer:
    """One step of a network. Subclasses name the fields that hold arrays in ``ARRAYS``."""

    kind: ClassVar[str]
    ARRAYS: ClassVar[tuple[str, ...]] = ()

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that training changes, by name, in a fixed order."""
        return {name: getattr(self, name) for name in self.ARRAYS if getattr(self, name) is not None}

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        """Return the same layer with other arrays, of which all must be given."""
        return replace(self, **dict(arrays))

    def settings(self) -> dict[str, Any]:
        """Return the non-array fields, as JSON values."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in self.ARRAYS}

    @property
    def exchanges(self) -> int:
        """Number of exchanges between neighbours that an evaluation takes."""
        return 0

    @property
    def in_features(self) -> int | None:
        """Number of features of the input; None if any number will do."""
        return None

    @property
    def out_features(self) -> int | None:
        """Number of features of the output; None if that of the input."""
        return self.in_features


def map_arrays(layers: Iterable[Layer], function: Callable[[Array], Array]) -> tuple[Layer, ...]:
    """Return the same layers with a function applied to every array."""
    return tuple(
        layer.with_arrays({name: function(array) for name, array in layer.arrays().items()}) for layer in layers
    )


def structure(layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """Return kinds, settings and shapes of layers: all that tells networks apart but the values of their arrays."""
    return [
        {
            "kind": layer.kind,
            **layer.settings(),
            "shapes": {name: list(array.shape) for name, array in layer.arrays().items()},
        }
        for layer in layers
    ]
