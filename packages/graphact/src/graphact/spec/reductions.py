"""Reductions of a node's neighbourhood to one value, each stated once for torch tensors and NumPy arrays.

An operation maps the values of a node and of its d neighbours to one value for each feature. Kernels, fleets
and guarantees look operations up here by name; torch is imported only when a tensor is given.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from graphact.registry import home_of

Array = Any
"""A torch tensor or a NumPy array."""

NUMPY_TYPES = (np.ndarray, np.generic, float)
GIVEN = ("own", "neighbors", "xp")  # what every operation may ask for by name, besides its parameters


def namespace_of(array: Array) -> Any:
    """The module, torch or numpy, whose functions take this array."""
    if isinstance(array, NUMPY_TYPES):
        return np
    import torch

    return torch


@dataclass(frozen=True, eq=False)
class Operation:
    """A function of a neighbourhood.

    Args:
        name: what files, messages and tables call it.
        function: asks by name for what it needs: ``neighbors`` of shape ``(..., d, F)`` with d at least 1, ``own`` of
            shape ``(..., 1, F)``, ``xp`` (the module torch or numpy) and its parameters; it returns ``(..., F)``. A
            function whose arguments have other names is called as ``function(neighbors)`` or ``function(own,
            neighbors)``.
        parameters: positive scalars that the function asks for, with the values they start from.
        empty: the value over an empty neighbourhood.

    Raises:
        TypeError: the function does not take one or two arguments or those named above.

    Example:
        >>> import numpy as np
        >>> from graphact.spec.reductions import Operation
        >>> def soft_max(neighbors, xp, t):
        ...     return t * xp.log(xp.mean(xp.exp(neighbors / t), -2))
        >>> soft = Operation("soft-max", soft_max, {"t": 1.0})
        >>> soft(np.zeros((1, 2)), np.array([[0.0, 1.0], [0.0, 3.0]])).round(4)
        array([0.    , 2.4338])
    """

    name: str
    function: Callable[..., Array]
    parameters: Mapping[str, float] = field(default_factory=dict)
    empty: float = 0.0
    arguments: tuple[str, ...] = field(init=False, repr=False)
    is_built_in: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))
        object.__setattr__(self, "arguments", argument_names(self.function, self.parameters))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Operation":
        if OPERATIONS.get(self.name) is self:
            return self  # interpreters find an operation by identity, so copies of a module share it
        function = copy.deepcopy(self.function, memo)  # a module is copied, a plain function is itself
        return self if function is self.function else replace(self, function=function)

    def __reduce__(self) -> tuple[Any, ...]:
        if OPERATIONS.get(self.name) is self:
            return find_operation, (self.name,)
        return Operation, (self.name, self.function, dict(self.parameters), self.empty)

    def __call__(self, own: Array, neighbors: Array, values: Mapping[str, Array | float] | None = None) -> Array:
        """Evaluate for own ``(..., 1, F)``, neighbors ``(..., d, F)`` and parameters; those it starts from if None."""
        xp = namespace_of(neighbors)
        if neighbors.shape[-2] == 0:
            at_own = own[..., 0, :]  # keeps the result connected to the signal for autograd
            return xp.where(xp.ones_like(at_own, dtype=bool), self.empty, at_own)
        given = {"own": own, "neighbors": neighbors, "xp": xp, **(self.parameters if values is None else values)}
        if self.arguments and self.arguments[0] in given:
            return self.function(**{name: given[name] for name in self.arguments})
        return self.function(neighbors) if len(self.arguments) < 2 else self.function(own, neighbors)


def argument_names(function: Callable[..., Array], parameters: Mapping[str, float]) -> tuple[str, ...]:
    """The arguments an operation asks for by name, or ``("", "")`` and ``("",)`` for functions of two and of one."""
    try:
        declared = inspect.signature(getattr(function, "forward", function)).parameters.values()
    except ValueError:
        return ("",)  # built-in functions take the neighbours
    positional = [p for p in declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    required = [p.name for p in positional if p.default is p.empty]
    if required and {*required} <= {*GIVEN, *parameters} and "neighbors" in required:
        return tuple(required)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in declared)
    if len(required) > 2 or not (positional or takes_any):
        raise TypeError(
            f"op must be a function of (neighbors) or of (own, neighbors), got {len(required)} required arguments"
        )
    return ("", "") if len(required) == 2 else ("",)


def median(neighbors: Array, xp: Any) -> Array:
    """The lower median; NaN in, NaN out."""
    ordered = xp.sort(neighbors, -2)
    ordered = ordered if isinstance(ordered, np.ndarray) else ordered.values
    middle = ordered[..., (neighbors.shape[-2] - 1) // 2, :]
    return xp.where(xp.any(xp.isnan(neighbors), -2), xp.full_like(middle, float("nan")), middle)


def kernel(own: Array, neighbors: Array, xp: Any, gamma: Array | float) -> Array:
    """The Gaussian kernel of the distances to the neighbours, equation (11) of the paper."""
    return xp.exp(-xp.sum((own - neighbors) ** 2, -2) / (2 * gamma**2))


def std(neighbors: Array, xp: Any) -> Array:
    """The population standard deviation, of differences to the first neighbour: equal values give exactly 0."""
    apart = neighbors - neighbors[..., :1, :]
    variance = xp.mean((apart - xp.mean(apart, -2)[..., None, :]) ** 2, -2)
    is_zero = variance == 0  # where the square root has no derivative; the one taken is 0
    return xp.where(is_zero, variance, xp.sqrt(xp.where(is_zero, xp.ones_like(variance), variance)))


def log_mean_exp(neighbors: Array, xp: Any, temperature: Array | float) -> Array:
    """A soft maximum: near the maximum at low temperatures, near the mean at high ones; NaN in, NaN out."""
    top = xp.amax(neighbors, -2)
    top = xp.where(xp.isfinite(top), top, xp.zeros_like(top))  # infinite values less themselves would be NaN
    scaled = (neighbors - top[..., None, :]) / temperature
    return top + temperature * xp.log(xp.mean(xp.exp(scaled), -2))


def mean(neighbors: Array, xp: Any) -> Array:
    """The plain mean."""
    return xp.mean(neighbors, -2)


def count_trimmed(degree: Any, trim: float) -> Any:
    """Return how many of ``degree`` values, a number or a tensor, are trimmed at each end; at least one remains."""
    if not isinstance(trim, float | int | np.generic):
        raise TypeError("trim must be a number: it counts neighbours and cannot be trained")
    cut = degree * float(trim) + 1e-6  # 0.35 in float32 is still seven of twenty
    if isinstance(degree, int):
        return min(int(cut), (degree - 1) // 2)
    return cut.long().minimum((degree - 1) // 2).clamp_min(0)


def trimmed_mean(neighbors: Array, xp: Any, trim: float) -> Array:
    """The mean without a share ``trim`` of the values at each end; the median's neighbours at 0.5. NaN in, NaN out."""
    ordered = xp.sort(neighbors, -2)
    ordered = ordered if isinstance(ordered, np.ndarray) else ordered.values
    cut = count_trimmed(neighbors.shape[-2], trim)
    middle = xp.mean(ordered[..., cut : neighbors.shape[-2] - cut, :], -2)
    return xp.where(xp.any(xp.isnan(neighbors), -2), xp.full_like(middle, float("nan")), middle)


def weighted_mean(own: Array, neighbors: Array, xp: Any, width: Array | float) -> Array:
    """The mean with a Gaussian of the difference to the node's own value as the weight of each neighbour."""
    log_weight = -((own - neighbors) ** 2) / (2 * width**2)
    weight = xp.exp(log_weight - xp.amax(log_weight, -2)[..., None, :])
    return xp.sum(weight * neighbors, -2) / xp.sum(weight, -2)


MAX = Operation("max", lambda neighbors, xp: xp.amax(neighbors, -2))
MIN = Operation("min", lambda neighbors, xp: xp.amin(neighbors, -2))
MEDIAN = Operation("median", median)
KERNEL = Operation("kernel", kernel, {"gamma": 0.1}, empty=1.0)
for operation in (MAX, MIN, MEDIAN, KERNEL):
    object.__setattr__(operation, "is_built_in", True)  # whole activations have a plan for it

# evaluated pass by pass: mean and std by fused kernels, the others over segments of edges (functional/segments.py)
MEAN = Operation("mean", mean)
STD = Operation("std", std)
LOG_MEAN_EXP = Operation("log-mean-exp", log_mean_exp, {"temperature": 1.0})
TRIMMED_MEAN = Operation("trimmed-mean", trimmed_mean, {"trim": 0.25})
WEIGHTED_MEAN = Operation("weighted-mean", weighted_mean, {"width": 1.0})

OURS = (MAX, MIN, MEDIAN, KERNEL, MEAN, STD, LOG_MEAN_EXP, TRIMMED_MEAN, WEIGHTED_MEAN)
OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in OURS}
"""Operations by name; :func:`register_operation` adds to them."""

ENTRY_POINTS = "graphact.operations"


def register_operation(operation: Operation) -> Operation:
    """Make an operation known by its name, so that files can refer to it.

    Raises:
        ValueError: a function defined elsewhere has that name; one that is defined again replaces itself.
    """
    known = OPERATIONS.get(operation.name, operation)
    if (known.is_built_in and known is not operation) or home_of(known.function) != home_of(operation.function):
        raise ValueError(f"operation names must be unique, and {operation.name!r} names another operation already")
    OPERATIONS[operation.name] = operation
    return operation


def unregister_operation(operation: Operation) -> None:
    """Forget an operation that :func:`register_operation` made known, so that its name is free again."""
    if OPERATIONS.get(operation.name) is operation and all(operation is not ours for ours in OURS):
        del OPERATIONS[operation.name]


def find_operation(name: str) -> Operation:
    """The operation of a name: built in, registered, or an entry point ``graphact.operations`` of a package."""
    if isinstance(name, str) and name not in OPERATIONS:
        from importlib.metadata import entry_points

        for entry in entry_points(group=ENTRY_POINTS, name=name):
            register_operation(entry.load())
    if not isinstance(name, str) or name not in OPERATIONS:
        listed = ", ".join(repr(known) for known in OPERATIONS)
        raise ValueError(f"op must be one of {listed}, or a function, got {name!r}")
    return OPERATIONS[name]


def as_operation(op: "str | Operation | Callable[..., Array]") -> Operation:
    """The operation that a name or a function stands for."""
    if isinstance(op, Operation):
        return op
    if callable(op):
        return Operation(getattr(op, "__name__", type(op).__name__), op)
    return find_operation(op)
