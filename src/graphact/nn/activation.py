"""The trained coefficients that localized and graph-adaptive activations share, and the pointwise activation."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphact._checks import check_integer, check_positive
from graphact._deprecation import keyword_only_after
from graphact.graph.protocol import GraphLike
from graphact.layers import HopMixture as HopMixtureLayer
from graphact.layers import Layer, Pointwise, Reads
from graphact.nn.base import GraphModule, check_features, resolve_graph
from graphact.operations import OPERATIONS, Operation, register_operation


class ReLU(GraphModule):
    """The pointwise activation, called like the others; it does not look at the graph."""

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        return torch.relu(x)

    def describe(self) -> tuple[Layer, ...]:
        return (Pointwise("relu"),)

    def config(self) -> dict[str, Any]:
        return {}


class HopMixture(GraphModule):
    r"""An activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,f_k(x)` with trained coefficients.

    ``beta`` starts at 1, so that an activation that replaces a ReLU begins near it; the weights h start uniform within
    :math:`\pm 1/\sqrt{K}`. A parameter of the operation, such as the kernel's ``gamma``, is a constant, or with
    ``learn_gamma=True`` trained through its logarithm, so that it stays above 0.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all. Give
            it by keyword: until version 0.3 a first positional argument means ``hops``, as in 0.1, and warns.
        hops: number K of terms, k = 1..K.
        closed: count a node among its neighbours.
        options: for each parameter of the operation its value, and ``learn_NAME`` to train it.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    operation: Operation
    reads: ClassVar[Reads]
    function: ClassVar[Callable[..., Tensor]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(vars(cls).get("operation"), Operation):
            register_operation(cls.operation)

    @keyword_only_after(0, "hops", "features", "closed")
    def __init__(
        self, features: int | None = None, *, hops: int = 1, closed: bool = False, **options: float | bool
    ) -> None:
        super().__init__()
        self.hops = check_integer("hops", hops, minimum=1)
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.closed = bool(closed)
        self.beta = nn.Parameter(torch.empty(()))
        shape = (self.hops,) if self.features is None else (self.hops, self.features)
        self.weights = nn.Parameter(torch.empty(shape))
        known = OPERATIONS.get(self.operation.name) is self.operation
        self.op = self.operation.name if known else self.operation.function  # a module is registered, and trained
        self.initial = check_options(self.operation, options)
        self.learned = tuple(name for name in self.initial if options.get(f"learn_{name}"))
        for name in self.initial:
            value = nn.Parameter(torch.empty(())) if name in self.learned else None
            self.register_parameter(f"log_{name}", value)
        HopMixture.reset_parameters(self)

    def reset_parameters(self) -> None:
        """Set beta to 1, draw new weights, and set trained parameters of the operation to where they started."""
        bound = 1 / math.sqrt(self.hops)
        nn.init.ones_(self.beta)
        nn.init.uniform_(self.weights, -bound, bound)
        for name in self.learned:
            nn.init.constant_(getattr(self, f"log_{name}"), math.log(self.initial[name]))

    def parameter_of_operation(self, name: str) -> float | Tensor:
        """A parameter of the operation as it is now: a number, or a tensor when it is trained."""
        return getattr(self, f"log_{name}").exp() if name in self.learned else self.initial[name]

    def forward(self, x: Tensor, graph: GraphLike | Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight)
        parameters = {name: self.parameter_of_operation(name) for name in self.initial}
        return type(self).function(
            x, graph, self.beta, self.weights, self.operation, closed=self.closed, parameters=parameters
        )

    def describe(self) -> tuple[Layer, ...]:
        constants = {name: value for name, value in self.initial.items() if name not in self.learned}
        learned = {name: getattr(self, f"log_{name}") for name in self.learned}
        return (HopMixtureLayer(self.operation, self.reads, self.closed, constants, self.beta, self.weights, learned),)

    def config(self) -> dict[str, Any]:
        options: dict[str, Any] = {}
        for name, value in self.initial.items():
            options |= {name: value, f"learn_{name}": name in self.learned}
        return {"hops": self.hops, "features": self.features, "closed": self.closed, **options}


def check_options(operation: Operation, options: Mapping[str, Any]) -> dict[str, float]:
    """The values from which the parameters of an operation start."""
    for name in options:
        if name.removeprefix("learn_") not in operation.parameters:
            known = ", ".join(operation.parameters) or "none"
            raise TypeError(f"{name} is no parameter of the operation {operation.name!r}, which has {known}")
    return {name: check_positive(name, options.get(name, start)) for name, start in operation.parameters.items()}


MixedActivation = HopMixture  # its name in version 0.1
