"""The kinds of layers at both ends of a network, between the units of its user and those that it was trained in."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphact.spec.layer import Layer
from graphact.spec.reductions import Array


@dataclass(frozen=True, eq=False)
class ScalingLayer(Layer):
    """The base of both kinds.

    Attributes:
        nodes: names of the nodes, in the order of the rows of ``mean`` and ``std``; None if all nodes share them.
        mean: ``(F,)``, or ``(N, F)`` with values for each node.
        std: as ``mean``; not 0.
    """

    ARRAYS = ("mean", "std")

    nodes: Sequence[str] | None
    mean: Array
    std: Array

    def settings(self) -> dict[str, Any]:
        return {"nodes": None if self.nodes is None else list(self.nodes)}


@dataclass(frozen=True, eq=False)
class InputScaling(ScalingLayer):
    """Readings less their mean, divided by their standard deviation; missing ones, which are NaN, are 0.

    Attributes:
        window: the number of readings in the input, the newest first, each of F features.
        mask: whether a feature for each of the input follows, 1 where it is present and 0 where it is missing.
    """

    kind = "standardize"

    window: int = 1
    mask: bool = False

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "window": self.window, "mask": self.mask}

    @property
    def in_features(self) -> int:
        return self.window * int(self.mean.shape[-1])

    @property
    def out_features(self) -> int:
        return self.in_features * (2 if self.mask else 1)


@dataclass(frozen=True, eq=False)
class OutputScaling(ScalingLayer):
    """Outputs times the standard deviation of the targets, plus their mean."""

    kind = "rescale"

    @property
    def in_features(self) -> int:
        return int(self.mean.shape[-1])
