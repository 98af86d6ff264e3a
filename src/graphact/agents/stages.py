"""The stages of a model, in NumPy.

Every stage is a program of one node (:mod:`graphact.agents.program`): it takes the node's value ``(..., F)`` and its
row of S, and exchanges with the neighbours as often as it needs.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from graphact.agents.messages import Array
from graphact.agents.operations import reduce
from graphact.agents.program import Exchange, Program
from graphact.agents.row import Row


class Stage(Protocol):
    """One step of a model."""

    @property
    def rounds(self) -> int:
        """How many exchanges it takes."""

    def widths(self, features: int) -> list[int]:
        """The number of features that each of its exchanges carries, for this many input features."""

    def features(self, features: int) -> int:
        """The number of features that come out."""

    def __call__(self, x: Array, row: Row) -> Program[Array]:
        """Compute this node's value."""


@dataclass(frozen=True)
class Filter:
    r"""A bank of graph filters, :math:`\sum_k [S^k x]_i H_k + b`: one exchange a shift."""

    taps: Array
    bias: Array | None = None

    @property
    def rounds(self) -> int:
        """The order K."""
        return len(self.taps) - 1

    def widths(self, features: int) -> list[int]:
        """Input features travel."""
        return [features] * self.rounds

    def features(self, features: int) -> int:
        """The number of features that come out."""
        if features != self.taps.shape[1]:
            raise ValueError(f"signal must have {self.taps.shape[1]} features, got {features}")
        return int(self.taps.shape[2])

    def __call__(self, x: Array, row: Row) -> Program[Array]:
        """Shift and mix, tap by tap."""
        out: Array = x @ self.taps[0]
        for tap in self.taps[1:]:
            heard, weights = row.gather((yield Exchange(x)), x)
            x = row.shift(x, heard, weights)
            out = out + x @ tap
        return out if self.bias is None else out + self.bias


@dataclass(frozen=True)
class Relu:
    """The pointwise activation."""

    rounds: int = 0

    def widths(self, features: int) -> list[int]:
        """Nothing travels."""
        del features
        return []

    def features(self, features: int) -> int:
        """The number of features that come out."""
        return features

    def __call__(self, x: Array, row: Row) -> Program[Array]:
        """No exchange, and yet a program like the others."""
        del row
        yield from ()
        return np.maximum(x, 0)


@dataclass(frozen=True)
class Mixed:
    r"""The localized (one hop) and graph-adaptive activations, :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,(\cdot)_k`.

    A graph-adaptive one exchanges :math:`y_0 = x, y_1 = Sx, \ldots, y_K`: what a node hears of :math:`y_k` gives both
    the function of the neighbourhood and :math:`y_{k+1}`, so K hops take K + 1 exchanges. A localized one exchanges x.
    """

    op: str
    adaptive: bool
    beta: float
    weights: Array
    gamma: float = 0.1
    closed: bool = False

    def __post_init__(self) -> None:
        if not self.adaptive and len(self.weights) > 1:
            raise ValueError(
                f"a localized activation must have one hop to run on agents (more need messages from nodes that are "
                f"not neighbours), got {len(self.weights)}"
            )

    @property
    def rounds(self) -> int:
        """K + 1 for K hops; 1 where x itself is looked at."""
        return len(self.weights) + 1 if self.adaptive else 1

    def widths(self, features: int) -> list[int]:
        """All features travel."""
        return [features] * self.rounds

    def features(self, features: int) -> int:
        """The number of features that come out."""
        if self.weights.ndim == 2 and features != self.weights.shape[1]:
            raise ValueError(f"signal must have {self.weights.shape[1]} features, got {features}")
        return features

    def __call__(self, x: Array, row: Row) -> Program[Array]:
        """Exchange, take the function of the neighbourhood, shift."""
        out: Array = x.dtype.type(self.beta) * np.maximum(x, 0)
        if self.adaptive:
            heard, weights = row.gather((yield Exchange(x)), x)
            x = row.shift(x, heard, weights)
        for hop, mixing in enumerate(self.weights, start=1):
            heard, weights = row.gather((yield Exchange(x)), x)
            out = out + mixing * reduce(self.op, x, heard, self.closed, self.gamma)
            if hop < len(self.weights):
                x = row.shift(x, heard, weights)
        return out


@dataclass(frozen=True)
class Readout:
    """The linear map shared by all nodes."""

    weight: Array
    bias: Array | None = None
    rounds: int = 0

    def widths(self, features: int) -> list[int]:
        """Nothing travels."""
        del features
        return []

    def features(self, features: int) -> int:
        """The number of features that come out."""
        del features
        return len(self.weight)

    def __call__(self, x: Array, row: Row) -> Program[Array]:
        """No exchange, and yet a program like the others."""
        del row
        yield from ()
        out: Array = x @ self.weight.T
        return out if self.bias is None else out + self.bias
