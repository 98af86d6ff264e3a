"""Whom a node hears, who hears it, and the keys of these links."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from graphact.agents.messages import KEY_BYTES
from graphact.agents.program import Direction


@dataclass(frozen=True)
class Links:
    """The place of one node in the network.

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
        if min(numbers) < 0 or max(numbers) >= 2**32:
            raise ValueError(f"nodes must have numbers from 0 to 2^32 - 1, got {numbers}")
        if not 0 <= self.epoch < 2**64:
            raise ValueError(f"epoch must lie between 0 and 2^64 - 1, got {self.epoch}")
        if set(self.keys) != set(self.neighbors):
            raise ValueError(f"keys must be those of the neighbours {self.neighbors}, got {sorted(self.keys)}")
        if any(len(key) != KEY_BYTES for key in self.keys.values()):
            raise ValueError(f"keys must have {KEY_BYTES} bytes")

    @cached_property
    def neighbors(self) -> tuple[int, ...]:
        """Everybody at the other end of an edge, ascending."""
        return tuple(sorted({*self.hears, *self.heard_by}))

    def recipients(self, direction: Direction) -> tuple[int, ...]:
        """Whom this node speaks to."""
        if direction is Direction.FORWARD:
            return self.heard_by
        return self.hears if direction is Direction.BACKWARD else self.neighbors

    def sources(self, direction: Direction) -> tuple[int, ...]:
        """Whom this node listens to."""
        if direction is Direction.FORWARD:
            return self.hears
        return self.heard_by if direction is Direction.BACKWARD else self.neighbors
