"""The base class of graph-adaptive and localized activations: a ReLU and functions of neighbourhoods, mixed."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_positive, did_you_mean
from graphact.functional import graph_adaptive, localized
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.module import STARTS, GraphModule, Start, init_uniform
from graphact.spec import HopMixture, Layer
from graphact.spec.kinds import Reads
from graphact.spec.reductions import OPERATIONS, Operation, register_operation

SETTINGS = ("features", "hops", "closed", "normalize", "start")  # of all of them


class NeighborhoodActivation(GraphModule):
    r"""An activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,f_k(x)` with trained coefficients.

    ``beta`` starts at 1 and the weights h at 0, so that an activation begins as the ReLU that it replaces, unless
    ``start`` says otherwise. A parameter of the operation, such as the kernel's ``gamma``, is a constant, or with
    ``learn_gamma=True`` trained through its logarithm, so that it stays above 0.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of terms, k = 1..K.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)), ``"uniform"`` within
            1 / sqrt(K).
        options: for each parameter of the operation its value, and ``learn_NAME`` to train it.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    operation: Operation
    reads: Reads
    trains: ClassVar[tuple[str, ...]] = ()  # parameters of the operation that are trained unless learn_NAME=False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(vars(cls).get("operation"), Operation):
            register_operation(cls.operation)

    def __init__(
        self,
        features: int | None = None,
        *,
        hops: int = 1,
        closed: bool = False,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
        **options: float | bool,
    ) -> None:
        super().__init__()
        self.hops = check_hops(hops, self.reads)
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.closed, self.normalize = bool(closed), check_normalize(normalize)
        self.start = check_choice("start", start, tuple(STARTS))
        self.beta = nn.Parameter(torch.empty(()))
        terms = self.hops + 1 if self.reads == "unshifted" else self.hops
        self.weights = nn.Parameter(torch.empty((terms,) if self.features is None else (terms, self.features)))
        known = OPERATIONS.get(self.operation.name) is self.operation
        self.op = self.operation.name if known else self.operation.function  # a module is registered, and trained
        self.initial = initial_values(self.operation, options)
        self.learned = tuple(name for name in self.initial if options.get(f"learn_{name}", name in self.trains))
        for name in self.initial:
            value = nn.Parameter(torch.empty(())) if name in self.learned else None
            self.register_parameter(f"log_{name}", value)
        NeighborhoodActivation.reset_parameters(self)

    def reset_parameters(self) -> None:
        """Set beta to 1, the weights as ``start`` says, and trained parameters of the operation to their options."""
        nn.init.ones_(self.beta)
        init_uniform(self.weights, self.start, len(self.weights))
        for name in self.learned:
            nn.init.constant_(getattr(self, f"log_{name}"), math.log(self.initial[name]))

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        parameters = {name: parameter_value(self, name) for name in self.initial}
        options: dict[str, Any] = {"closed": self.closed, "parameters": parameters}
        if self.reads == "hops":
            return localized(x, graph, self.beta, self.weights, self.resolve_operation(), **options)
        options["unshifted"] = self.reads == "unshifted"
        return graph_adaptive(x, graph, self.beta, self.weights, self.resolve_operation(), **options)

    def describe(self) -> tuple[Layer, ...]:
        constants = {name: value for name, value in self.initial.items() if name not in self.learned}
        learned = {name: getattr(self, f"log_{name}") for name in self.learned}
        operation = self.resolve_operation()
        return (HopMixture(operation, self.reads, self.closed, constants, self.beta, self.weights, learned),)

    def resolve_operation(self) -> Operation:
        """Return the operation; if its function is a module, with the one that this module holds now.

        A replica of ``DataParallel`` holds its own, and so does a module whose part was exchanged.
        """
        if not isinstance(self.op, nn.Module) or self.op is self.operation.function:
            return self.operation
        return replace(self.operation, function=self.op)

    def config(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("normalize", "start") if accepts_keyword(type(self), name)}
        for name, value in self.initial.items():
            options |= {name: value, f"learn_{name}": name in self.learned}
        return {"hops": self.hops, "features": self.features, "closed": self.closed, **options}


def check_hops(hops: int, reads: Reads) -> int:
    """Return a number of hops; raise unless it is at least 1, or 0 with the unshifted term."""
    if reads == "shifted" and hops == 0:
        raise ValueError("hops must be at least 1, or 0 with unshifted=True, got 0")
    return check_integer("hops", hops, minimum=0 if reads == "unshifted" else 1)


def initial_values(operation: Operation, options: Mapping[str, Any]) -> dict[str, float]:
    """Return the initial values of the parameters of an operation; raise for options that it does not have."""
    for name in options:
        if name.removeprefix("learn_") not in operation.parameters:
            known = ", ".join(operation.parameters) or "none"
            meant = did_you_mean(
                name, [*SETTINGS, *operation.parameters, *(f"learn_{p}" for p in operation.parameters)]
            )
            raise TypeError(f"{name} is not a parameter of the operation {operation.name!r}, which has {known}{meant}")
    return {name: check_positive(name, options.get(name, start)) for name, start in operation.parameters.items()}


def accepts_keyword(module: type[NeighborhoodActivation], keyword: str) -> bool:
    """Return whether a class, which may be a user's with its own ``__init__``, is constructed with a keyword."""
    parameters = inspect.signature(module).parameters
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def parameter_value(activation: NeighborhoodActivation, name: str) -> float | Tensor:
    """Return the current value of a parameter of the operation: a number, or a tensor if it is trained."""
    is_learned = name in activation.learned
    return getattr(activation, f"log_{name}").exp() if is_learned else activation.initial[name]
