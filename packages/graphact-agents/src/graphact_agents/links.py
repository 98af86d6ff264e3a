"""The place of a node in the network: its links with their keys, and its row of the shift operator."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from graphact_agents.messages import KEY_BYTES, MAX_FIELD, Array
from graphact_agents.program import Direction, Received


@dataclass(frozen=True)
class Links:
    """Whom a node hears, who hears it, and the keys of these links.

    Args:
        node: its number.
        epoch: the number of the deployment; messages of another one are refused.
        hears: the nodes it hears, ascending.
        heard_by: the nodes that hear it, ascending.
        keys: one key for each of these, known to the two ends alone.
    """

    node: int
    epoch: int
    hears: tuple[int, ...]
    heard_by: tuple[int, ...]
    keys: Mapping[int, bytes] = field(repr=False)  # secrets do not belong into error messages

    def __post_init__(self) -> None:
        for name in ("hears", "heard_by"):
            others = getattr(self, name)
            if list(others) != sorted(set(others)) or self.node in others:
                raise ValueError(f"{name} must be other nodes than {self.node}, ascending, each once, got {others}")
        numbers = (self.node, *self.neighbors)
        if min(numbers) < 0 or max(numbers) > MAX_FIELD["sender"]:
            raise ValueError(f"nodes must have numbers from 0 to 2^32 - 1, got {numbers}")
        if not 0 <= self.epoch <= MAX_FIELD["epoch"]:
            raise ValueError(f"epoch must lie between 0 and 2^64 - 1, got {self.epoch}")
        if set(self.keys) != set(self.neighbors):
            raise ValueError(f"keys must be those of the neighbours {self.neighbors}, got {sorted(self.keys)}")
        if any(len(key) != KEY_BYTES for key in self.keys.values()):
            raise ValueError(f"keys must have {KEY_BYTES} bytes")

    @property
    def deployment(self) -> str:
        """The number of the deployment as operators see it, in hexadecimal."""
        return f"{self.epoch:016x}"

    @cached_property
    def neighbors(self) -> tuple[int, ...]:
        """All nodes at the other end of an edge, ascending."""
        return tuple(sorted({*self.hears, *self.heard_by}))

    def among(self, present: Collection[int]) -> "Links":
        """The links to those of its neighbours that are present; ValueError if one is no neighbour."""
        strangers = sorted({*present} - {*self.neighbors})
        if strangers:
            raise ValueError(f"present must be among the neighbours {self.neighbors}, got {strangers}")
        hears, heard_by = (tuple(j for j in each if j in present) for each in (self.hears, self.heard_by))
        keys = {j: self.keys[j] for j in {*hears, *heard_by}}
        return Links(self.node, self.epoch, hears, heard_by, keys)

    def recipients(self, direction: Direction) -> tuple[int, ...]:
        if direction is Direction.FORWARD:
            return self.heard_by
        return self.hears if direction is Direction.BACKWARD else self.neighbors

    def sources(self, direction: Direction) -> tuple[int, ...]:
        if direction is Direction.FORWARD:
            return self.hears
        return self.heard_by if direction is Direction.BACKWARD else self.neighbors


@dataclass(frozen=True)
class ShiftRow:
    """Row i of S: the weights of the nodes that i hears, and its diagonal entry.

    Args:
        hears: the neighbours, ascending.
        weights: S_ij for each of them, in the dtype of the computation.
        diagonal: S_ii.
        name: the name of the node in a model that has a scaling for each node.
    """

    hears: tuple[int, ...]
    weights: Array
    diagonal: float
    name: str = ""

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.hears),) or not np.isfinite(self.weights).all():
            expected = f"{len(self.hears)} finite numbers, one for each neighbour"
            raise ValueError(f"weights must be {expected}, got {' '.join(repr(self.weights).split()):.100}")
        if not math.isfinite(self.diagonal):
            raise ValueError(f"diagonal must be a finite number, got {self.diagonal}")

    def gather(self, received: Received, own: Array) -> tuple[Array, Array]:
        """The values of the neighbours that answered, ``(d, ..., F)``, and their weights ``(d,)``."""
        is_complete = len(received) == len(self.hears)
        weights = self.weights if is_complete else self.weights[np.searchsorted(self.hears, list(received))]
        heard = np.array(list(received.values())) if received else np.empty((0, *own.shape), own.dtype)
        return heard, weights

    def shift(self, own: Array, heard: Array, weights: Array) -> Array:
        """``[Sx]_i`` over the neighbours that answered."""
        shifted: Array = weights.dot(heard.reshape(len(weights), own.size)).reshape(own.shape)
        return shifted + own.dtype.type(self.diagonal) * own if self.diagonal else shifted
