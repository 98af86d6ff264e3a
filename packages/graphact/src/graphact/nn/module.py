"""The base class of all modules, and the description of what an unchanged module computes."""

import inspect
import math
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from graphact.graph.normalize import Normalization
from graphact.nn.unchanged import check_untouched, original_class
from graphact.spec import Layer, Linear, Pointwise, UnsupportedModelError

Start = Literal["zero", "small", "uniform"]
STARTS: dict[str, float] = {"zero": 0.0, "small": 0.1, "uniform": 1.0}  # the bound of weights, times sqrt(terms)


class GraphModule(nn.Module):
    """A module called as ``module(x, graph)`` or, as in PyG, ``module(x, edge_index, edge_weight)``.

    A sparse tensor in the place of the edge_index is a shift operator (:meth:`Graph.from_sparse
    <graphact.Graph.from_sparse>`).

    A :class:`~graphact.Graph` is sorted and checked once, when it is built. From an edge_index a graph is built on the
    first call, and again when its values have changed; modules that are called with the same tensors share it. Its
    weights are normalised as the module's ``normalize`` says, or used unchanged if it is None; a ``Graph`` or a sparse
    tensor is always used unchanged.

    Changes of an edge_index that torch does not count, through ``edge_index.data`` or a NumPy array that shares its
    memory, go unnoticed: call :func:`clear_graph_cache` after them, or pass a new tensor. The values of an edge_weight
    are compared in every call; on a CUDA device this waits for the work queued before, which a ``Graph`` avoids.

    Several graphs side by side matter to activations that take means over a graph (``grelu``, ``digraf``). A
    :meth:`graphact.Graph.union` knows them; with an edge_index, networks and chains take ``batch``, the graph of each
    node, as in PyG: ``network(x, edge_index, edge_weight, batch)``.

    A subclass describes what its ``forward`` computes by overriding ``describe``. A class that overrides ``forward``
    alone has no description, and whatever interprets descriptions (files, fleets, guarantees, agents) refuses it.
    """

    normalize: Normalization | None = "symmetric"
    repr_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"normalize": "symmetric", "start": "zero"})
    """Settings that a repr leaves out where they have these values."""
    _described_forward: ClassVar[Callable[..., Tensor] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "describe" in vars(cls):
            cls._described_forward = cls.forward

    def layers(self) -> tuple[Layer, ...]:
        """Return what this module computes: the frozen specifications of its layers, in order, with its parameters.

        Raises:
            UnsupportedModelError: there is no description, or it would not be true of the module as it is now.
        """
        return describe(self)

    def describe(self) -> tuple[Layer, ...]:
        """Return the layers of an unchanged module of this class; called by :meth:`layers`."""
        raise UnsupportedModelError("", f"{type(self).__name__} does not describe what it computes")

    def reset_parameters(self) -> None:
        """Initialize all parameters again."""

    def config(self) -> dict[str, Any]:
        """Return the arguments that construct a module like this one, as JSON values: its attributes of their names."""
        kind = type(self)
        arguments = () if kind.__init__ is nn.Module.__init__ else inspect.signature(kind).parameters.values()
        for argument in arguments:
            if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD) or not hasattr(self, argument.name):
                reason = f"its argument {argument.name!r} is not kept as an attribute: define config()"
                raise TypeError(f"{kind.__name__} has no configuration, {reason}")
        return {argument.name: getattr(self, argument.name) for argument in arguments}

    def extra_repr(self) -> str:
        try:
            config = self.config()
        except TypeError:
            config = {}
        shown = {name: value for name, value in config.items() if self.repr_defaults.get(name, ...) != value}
        return ", ".join(
            f"{name}={getattr(value, '__qualname__', None) or repr(value)}"
            for name, value in shown.items()
            if not (isinstance(value, list) and any(isinstance(one, dict) for one in value))  # parts show themselves
        )


class UniformModule(GraphModule):
    """A module whose parameters start uniform around 0."""

    initial: dict[str, tuple[str, float]] = {}  # noqa: RUF012, each module has its own; start and terms by name

    def add_uniform(self, name: str, terms: float, *shape: int, start: str = "uniform") -> None:
        """Register a parameter that starts uniform within ``STARTS[start] / sqrt(terms)``, terms those of its sum."""
        self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.initial = {**self.initial, name: (start, terms)}

    def add_bias(self, bias: bool, terms: float, features: int) -> None:
        """Register a constant of each feature, which is None unless it is asked for."""
        self.register_parameter("bias", None)
        if bias:
            self.add_uniform("bias", terms, features)

    def reset_parameters(self) -> None:
        for name, (start, terms) in self.initial.items():
            init_uniform(getattr(self, name), start, terms)


def init_uniform(parameter: Tensor, start: str, terms: float) -> None:
    """Initialize a parameter within ``STARTS[start] / sqrt(terms)``; ``"zero"`` leaves the random generator alone."""
    bound = STARTS[start] / math.sqrt(terms)
    if bound == 0:
        nn.init.zeros_(parameter)
    else:
        nn.init.uniform_(parameter, -bound, bound)


Describer = Callable[[Any], tuple[Layer, ...]]
TORCH_LAYERS: dict[type[nn.Module], Describer] = {
    nn.Identity: lambda _: (),
    nn.Linear: lambda module: (Linear(module.weight, module.bias),),
    nn.ReLU: lambda _: (Pointwise("relu"),),
    nn.LeakyReLU: lambda module: (Pointwise(f"leaky_relu({float(module.negative_slope)!r})"),),
    nn.ELU: lambda module: (Pointwise(f"elu({float(module.alpha)!r})"),),
    nn.Tanh: lambda _: (Pointwise("tanh"),),
    nn.Sigmoid: lambda _: (Pointwise("sigmoid"),),
    nn.SiLU: lambda _: (Pointwise("silu"),),
    nn.GELU: lambda module: (Pointwise("gelu" if module.approximate == "none" else "gelu approximated by tanh"),),
}
"""Torch's modules whose description holds their own parameters, so that it may be trained."""


def describe(
    module: nn.Module, part: str = "", known: Mapping[type[nn.Module], Describer] = TORCH_LAYERS
) -> tuple[Layer, ...]:
    """Return the layers of a module of graphact, or of a known class, under the name ``part``.

    Raises:
        UnsupportedModelError: its class is unknown, its ``forward`` was overridden, or it carries hooks.
    """
    try:
        check_unchanged(module, known)
        if isinstance(module, GraphModule):
            return module.describe()
        return known[original_class(module)](module)
    except UnsupportedModelError as error:
        raise (error.inside(part) if part else error) from None


def check_unchanged(module: nn.Module, known: Container[type[nn.Module]] = TORCH_LAYERS) -> None:
    """Raise if a call of the module computes something other than its class describes."""
    kind = original_class(module)
    if isinstance(module, GraphModule):
        described = type(module)._described_forward
        if described is None or type(module).forward is not described:
            raise UnsupportedModelError("", f"{kind.__name__} does not describe the forward that it defines")
    elif kind not in known:
        reason = f"nothing is known about what a {kind.__name__} computes (a GraphModule may describe itself)"
        raise UnsupportedModelError("", reason)
    check_untouched(module)
