"""The description of a network: frozen specifications of its layers, in the order in which a signal passes them.

Modules describe themselves (``module.layers()``); files, fleets, guarantees, agents and cost models interpret the
description and never look at classes or attributes of a module. Parameters are arrays, torch tensors or NumPy arrays
alike, and nothing here imports torch.

A description is true or refused: what is not known raises :class:`UnsupportedModelError`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

from graphact.operations import Array, Operation, find_operation, namespace_of

Reads = Literal["shifted", "hops"]


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
        """The same error as seen from the module that holds the part under this name."""
        return UnsupportedModelError(f"{parent}.{self.part}" if self.part else parent, self.reason)


@dataclass(frozen=True, eq=False)
class Layer:
    """One step of a network. Subclasses name the fields that hold arrays in ``ARRAYS``."""

    kind: ClassVar[str]
    ARRAYS: ClassVar[tuple[str, ...]] = ()

    def arrays(self) -> dict[str, Array]:
        """The arrays that training changes, by name, in a fixed order."""
        return {name: getattr(self, name) for name in self.ARRAYS if getattr(self, name) is not None}

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        """The same layer with other arrays, of which all must be given."""
        return replace(self, **dict(arrays))

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The layer of :meth:`settings` and :meth:`arrays`; KeyError, TypeError or ValueError if they do not fit."""
        return cls(**settings, **arrays)

    def settings(self) -> dict[str, Any]:
        """All that is no array, as JSON values."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name not in self.ARRAYS}

    @property
    def exchanges(self) -> int:
        """How many exchanges between neighbours an evaluation takes."""
        return 0

    @property
    def in_features(self) -> int | None:
        """The features of the input; None where any number will do."""
        return None

    @property
    def out_features(self) -> int | None:
        """The features of the output; None where it has those of the input."""
        return self.in_features


@dataclass(frozen=True, eq=False)
class Filter(Layer):
    r"""A bank of graph filters, :math:`\sum_k S^k x H_k + b`."""

    kind = "filter"
    ARRAYS = ("taps", "bias")

    taps: Array  # (K + 1, F_in, F_out)
    bias: Array | None = None  # (F_out,)

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
class Linear(Layer):
    """One linear map that all nodes share, such as a readout."""

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
    r"""An activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_{k=1}^{K} h_k\,f_k(x)`.

    Attributes:
        operation: the function f of a neighbourhood.
        reads: ``"shifted"`` (graph-adaptive: the one-hop neighbours of :math:`S^k x`) or ``"hops"`` (localized: the
            k-hop neighbours of x).
        closed: whether a node counts among its neighbours.
        constants: parameters of the operation that are not trained, by name.
        beta: scalar.
        weights: ``(K,)``, or ``(K, F)`` with weights for each feature.
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

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        operation = find_operation(settings["operation"])
        learned = [name for name in operation.parameters if f"log_{name}" in arrays]  # not in the order of a file
        logs = {name: arrays[f"log_{name}"] for name in learned}
        others = {name: array for name, array in arrays.items() if name not in {f"log_{name}" for name in learned}}
        return cls(**{**settings, "operation": operation}, **others, log_parameters=logs)

    def settings(self) -> dict[str, Any]:
        constants = dict(self.constants)
        return {"operation": self.operation.name, "reads": self.reads, "closed": self.closed, "constants": constants}

    @property
    def parameters(self) -> dict[str, Array | float]:
        """The parameters of the operation as it takes them, trained or not."""
        learned = {name: namespace_of(value).exp(value) for name, value in self.log_parameters.items()}
        return {**self.constants, **learned}

    @property
    def hops(self) -> int:
        return len(self.weights)

    @property
    def exchanges(self) -> int:
        """K + 1 for K shifted hops; one for each of K hops that are read by relaying."""
        return self.hops + 1 if self.reads == "shifted" else self.hops

    @property
    def in_features(self) -> int | None:
        return int(self.weights.shape[1]) if len(self.weights.shape) == 2 else None


@dataclass(frozen=True, eq=False)
class NamedLayer(Layer):
    """A layer that is known by its name and settings; interpreters that do not know the name refuse it."""

    ARRAYS = ("tensors",)

    function: str
    options: Mapping[str, Any]
    rounds: int
    tensors: Mapping[str, Array]

    def arrays(self) -> dict[str, Array]:
        return dict(self.tensors)

    def with_arrays(self, arrays: Mapping[str, Array]) -> Self:
        return replace(self, tensors={name: arrays[name] for name in self.tensors})

    @classmethod
    def from_parts(cls, settings: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        return cls(**settings, tensors=dict(arrays))

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "options": dict(self.options)}

    @property
    def exchanges(self) -> int:
        return self.rounds


@dataclass(frozen=True, eq=False)
class Convolution(NamedLayer):
    """A convolution that is no polynomial filter, by the name of its class, such as ``"EdgeNet"``.

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
        rounds: how many exchanges between neighbours it takes.
        tensors: its trained arrays, by name.
        features: features of the signal; None where any number will do.
        pools: whether it reads a mean over all nodes, which no number of exchanges between neighbours gives.
    """

    kind = "activation"

    features: int | None = None
    pools: bool = False

    @property
    def in_features(self) -> int | None:
        return self.features


@dataclass(frozen=True, eq=False)
class LayerNorm(Layer):
    """The features of each node less their mean, divided by the root of their variance plus epsilon, scaled, moved."""

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
    """Layers that hold others: branches of chains, whose arrays are named by their places."""

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
    """Chains of layers side by side, whose results are added; the empty chain is the input, as in a residual block."""

    kind = "sum"


@dataclass(frozen=True, eq=False)
class OnGraph(Nested):
    """One chain on a graph of its own, such as the operator that a convolution makes of the edges it is given."""

    kind = "on-graph"

    graph: Any

    @property
    def layers(self) -> tuple[Layer, ...]:
        return self.branches[0]


KINDS: dict[str, type[Layer]] = {
    layer.kind: layer for layer in (Filter, Linear, Pointwise, HopMixture, Activation, Convolution)
}


def map_arrays(layers: Iterable[Layer], function: Callable[[Array], Array]) -> tuple[Layer, ...]:
    """The same layers with a function applied to every array, such as a copy to NumPy."""
    return tuple(
        layer.with_arrays({name: function(array) for name, array in layer.arrays().items()}) for layer in layers
    )


def structure(layers: Iterable[Layer]) -> list[dict[str, Any]]:
    """What tells one network from another apart from the values of its arrays; JSON values."""
    return [
        {
            "kind": layer.kind,
            **layer.settings(),
            "shapes": {name: list(array.shape) for name, array in layer.arrays().items()},
        }
        for layer in layers
    ]


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
                    "graphact.analysis.release(model) for a limit of the Lipschitz constant, "
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
