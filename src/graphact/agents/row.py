"""The row of the shift operator that a node holds."""

from dataclasses import dataclass

import numpy as np

from graphact.agents.messages import Array
from graphact.agents.program import Received


@dataclass(frozen=True)
class Row:
    """Row i of S: the weights of the nodes that i hears, and its diagonal entry.

    Args:
        hears: the neighbours, ascending.
        weights: S_ij for each of them, in the dtype of the computation.
        diagonal: S_ii.
    """

    hears: tuple[int, ...]
    weights: Array
    diagonal: float

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.hears),) or not np.isfinite(self.weights).all():
            raise ValueError(
                f"weights must be {len(self.hears)} finite numbers, one for each neighbour, got {self.weights!r}"
            )
        object.__setattr__(self, "_position", {j: position for position, j in enumerate(self.hears)})

    def gather(self, received: Received, own: Array) -> tuple[Array, Array]:
        """The values of the neighbours that answered, ``(d, ..., F)``, and their weights ``(d,)``."""
        if len(received) == len(self.hears):
            weights = self.weights
        else:
            position: dict[int, int] = self._position  # type: ignore[attr-defined]
            weights = self.weights[[position[j] for j in received]]
        heard = np.array(list(received.values())) if received else np.empty((0, *own.shape), own.dtype)
        return heard, weights

    def shift(self, own: Array, heard: Array, weights: Array) -> Array:
        """``[Sx]_i`` over the neighbours that answered."""
        shifted: Array = weights.dot(heard.reshape(len(weights), own.size)).reshape(own.shape)
        return shifted + own.dtype.type(self.diagonal) * own if self.diagonal else shifted
