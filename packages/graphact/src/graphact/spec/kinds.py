"""The kinds of layers: filters, linear maps, activations, and containers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from graphact.spec.layer import Layer, structure
from graphact.spec.reductions import Array, Operation, namespace_of

Reads = Literal["shifted", "unshifted", "hops"]


class Bank(Layer):
    """A bank of filters of order K, with ``taps`` of shape ``(K + 1, F_in, F_out)``."""

    taps: Array

    @property
    def exchanges(self) -> int:
        return len(self.taps) - 1

    @property
    def in_features(self) -> int:
        return int(self.taps.shape[1])

    @property
    def out_features(self) -> int:
        return int(self.taps.shape[2])


@dataclass(frozen=True, eq=False)
class Filter(Bank):
    r"""A bank of graph filters, :math:`\sum_k S^k x H_k + b`."""

    kind = "filter"
    ARRAYS = ("taps", "bias")

    taps: Array  # (K + 1, F_in, F_out)
    bias: Array | None = None  # (F_out,)


@dataclass(frozen=True, eq=False)
class AdaptiveFilter(Bank):
    r"""A bank of graph-adaptive filters.

    .. math:: \sum_{k=0}^{K} S^k x H_k + \sum_m \sum_{k=0}^{K-1} f_m(S^k x) G_{mk} + b

    Attributes:
        functions: the functions f of a neighbourhood, each with its parameters.
        closed: whether a node counts among its neighbours.
        taps: H, ``(K + 1, F_in, F_out)``.
        function_taps: G, ``(M, K, F_in, F_out)``.
        bias: b, ``(F_out,)``.
    """

    kind = "adaptive-filter"
    ARRAYS = ("taps", "function_taps", "bias")

    functions: tuple[tuple[Operation, Mapping[str, float]], ...]
    closed: bool
    taps: Array
    function_taps: Array
    bias: Array | None = None

    def settings(self) -> dict[str, Any]:
        functions = [{"operation": op.name, "constants": dict(constants)} for op, constants in self.functions]
        return {"functions": functions, "closed": self.closed}


@dataclass(frozen=True, eq=False)
class Linear(Layer):
    """A linear map that all nodes share, such as a readout."""

    kind = "linear"
    ARRAYS = ("weight", "bias")

    weight: Array  # (F_out, F_in)
    bias: Array | None = None  # (F_out,)

    @property
    def in_features(self) -> int:
        return int(self.weight.shape[1])

    @property
    def out_features(self) -> int:
        return int(self.weight.shape[0])


@dataclass(frozen=True, eq=False)
class Pointwise(Layer):
    """A function of each value on its own, by name: see :data:`graphact.functional.elementwise.FUNCTIONS`.

    Two have trained arrays: ``"prelu"`` the slope below 0, ``()`` or one for each feature ``(F,)``; ``"maxout"`` the
    slopes and offsets of the lines of which it takes the largest, ``(P,)`` or ``(P, F)``.
    """

    kind = "pointwise"
    ARRAYS = ("slope", "offset")

    function: str
    slope: Any = None
    offset: Any = None

    @property
    def in_features(self) -> int | None:
        own = 2 if self.function == "maxout" else 1  # dimensions of slopes for each feature
        return int(self.slope.shape[-1]) if self.slope is not None and len(self.slope.shape) == own else None


@dataclass(frozen=True, eq=False)
class HopMixture(Layer):
    r"""An activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,f_k(x)`.

    Attributes:
        operation: the function f of a neighbourhood.
        reads: ``"shifted"`` (graph-adaptive: the one-hop neighbours of :math:`S^k x`, k = 1..K), ``"unshifted"`` (the
            same from k = 0 on) or ``"hops"`` (localized: the k-hop neighbours of x, k = 1..K).
        closed: whether a node counts among its neighbours.
        constants: parameters of the operation that are not trained, by name.
        beta: scalar.
        weights: of the terms, ``(K,)``, or ``(K, F)`` with weights for each feature; K + 1 rows for ``"unshifted"``.
        log_parameters: logarithms of the trained parameters of the operation, by name.
    """

    kind = "hop-mixture"
    ARRAYS = ("beta", "weights", "log_parameters")

    operation: Operation
    reads: Reads
    closed: bool
    constants: Mapping[str, float]
    beta: Array
    weights: Array
    log_parameters: Mapping[str, Array]

    def arrays(self) -> dict[str, Array]:
        learned = {f"log_{name}": value for name, value in self.log_parameters.items()}
        return {"beta": self.beta, "weights": self.weights, **learned}

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        learned = {name: arrays[f"log_{name}"] for name in self.log_parameters}
        return replace(self, beta=arrays["beta"], weights=arrays["weights"], log_parameters=learned)

    def settings(self) -> dict[str, Any]:
        constants = dict(self.constants)
        return {"operation": self.operation.name, "reads": self.reads, "closed": self.closed, "constants": constants}

    @property
    def parameters(self) -> dict[str, Array | float]:
        """The parameters of the operation, trained or not."""
        learned = {name: namespace_of(value).exp(value) for name, value in self.log_parameters.items()}
        return {**self.constants, **learned}

    @property
    def hops(self) -> int:
        """The number of terms."""
        return len(self.weights)

    @property
    def shifts(self) -> tuple[int, ...]:
        """The number of shifts of the signal of each term; 0 in a localized activation."""
        if self.reads == "hops":
            return (0,) * self.hops
        first = 1 if self.reads == "shifted" else 0
        return tuple(range(first, first + self.hops))

    def is_shifted(self, term: int) -> bool:
        """Return whether the signal of a term is the shift of that of the term before it, or of the input."""
        return self.shifts[term] > (self.shifts[term - 1] if term else 0)

    @property
    def exchanges(self) -> int:
        """K + 1 for shifts up to K; one for each of K hops that are read by relaying."""
        return self.hops + 1 if self.reads == "shifted" else self.hops

    @property
    def in_features(self) -> int | None:
        return int(self.weights.shape[1]) if len(self.weights.shape) == 2 else None


@dataclass(frozen=True, eq=False)
class NamedLayer(Layer):
    """A layer that is described by its name and settings; interpreters that do not know the name refuse it."""

    ARRAYS = ("tensors",)

    function: str
    options: Mapping[str, Any]
    rounds: int
    tensors: Mapping[str, Array]

    def arrays(self) -> dict[str, Array]:
        return dict(self.tensors)

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        return replace(self, tensors={name: arrays[name] for name in self.tensors})

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "options": dict(self.options)}

    @property
    def exchanges(self) -> int:
        return self.rounds


@dataclass(frozen=True, eq=False)
class Convolution(NamedLayer):
    """A convolution other than a polynomial filter, by the name of its class, such as ``"EdgeNet"``.

    Attributes:
        function, options, rounds, tensors: as those of :class:`Activation`.
        inputs: features of the input.
        outputs: features of the output.
    """

    kind = "convolution"

    inputs: int
    outputs: int

    @property
    def in_features(self) -> int:
        return self.inputs

    @property
    def out_features(self) -> int:
        return self.outputs


@dataclass(frozen=True, eq=False)
class Activation(NamedLayer):
    """An activation of another kind, by its name in the registry; interpreters that do not know the name refuse it.

    Attributes:
        function: the name, such as ``"max-k"``.
        options: its settings, JSON values.
        rounds: number of exchanges between neighbours.
        tensors: its trained arrays, by name.
        features: number of features of the signal; None if any number will do.
        pools: whether it reads a mean over all nodes, which exchanges between neighbours do not give.
    """

    kind = "activation"

    features: int | None = None
    pools: bool = False

    @property
    def in_features(self) -> int | None:
        return self.features


@dataclass(frozen=True, eq=False)
class LayerNorm(Layer):
    """Layer normalization over the features of each node."""

    kind = "layer-norm"
    ARRAYS = ("weight", "bias")

    features: int
    epsilon: float
    weight: Array | None = None  # (F,)
    bias: Array | None = None  # (F,)

    @property
    def in_features(self) -> int:
        return self.features


@dataclass(frozen=True, eq=False)
class Nested(Layer):
    """Layers that hold others: branches of chains, whose arrays are named by branch and position."""

    branches: tuple[tuple[Layer, ...], ...]

    def arrays(self) -> dict[str, Array]:
        return {
            f"{branch}.{number}.{name}": array
            for branch, layers in enumerate(self.branches)
            for number, layer in enumerate(layers)
            for name, array in layer.arrays().items()
        }

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        def part(branch: int, number: int) -> dict[str, Array]:
            start = f"{branch}.{number}."
            return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}

        return replace(
            self,
            branches=tuple(
                tuple(layer.with_arrays(part(branch, number)) for number, layer in enumerate(layers))
                for branch, layers in enumerate(self.branches)
            ),
        )

    def settings(self) -> dict[str, Any]:
        return {"branches": [structure(layers) for layers in self.branches]}

    @property
    def exchanges(self) -> int:
        return sum(layer.exchanges for layers in self.branches for layer in layers)

    @property
    def in_features(self) -> int | None:
        return next((layer.in_features for layers in self.branches for layer in layers if layer.in_features), None)

    @property
    def out_features(self) -> int | None:
        ends = ([layer.out_features for layer in layers if layer.out_features] for layers in self.branches)
        return next((end[-1] for end in ends if end), None)


@dataclass(frozen=True, eq=False)
class Sum(Nested):
    """Parallel chains of layers, whose outputs are added; the empty chain is the identity, as in a residual block."""

    kind = "sum"


@dataclass(frozen=True, eq=False)
class OnGraph(Nested):
    """A chain on its own graph, such as the operator that a convolution builds from its edges."""

    kind = "on-graph"

    graph: Any

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.branches[0]
