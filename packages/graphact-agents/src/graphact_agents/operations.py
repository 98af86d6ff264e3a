r"""Functions of a neighbourhood in NumPy, and their gradients.

A function takes ``own`` of shape ``(..., 1, F)``, ``neighbors`` of shape ``(..., d, F)`` with d at least 1, and its
parameters by name, and returns ``(..., F)``. A package adds one of its own under an entry point of the group
``graphact_agents.operations``: the entry point is named as the operation in the model file and gives such a function.
Two attributes of the function are optional: ``empty`` is the value over no neighbours (default: 0), and ``gradient``,
which learning needs, is a :data:`Gradient`.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np

from graphact_agents.messages import Array

ENTRY_POINTS = "graphact_agents.operations"
Gradients = tuple[Array, Array, Mapping[str, float]]
Gradient = Callable[..., Gradients]
"""Maps ``own, neighbors, value, grad, parameters`` to the gradients of own ``(..., F)``, of the neighbours, and of the
logarithm of each parameter by name; ``value`` is the result ``(..., F)`` and ``grad`` its gradient."""


@dataclass(frozen=True)
class NeighborhoodFunction:
    """A function of a neighbourhood, as the description of a model names it.

    Attributes:
        name: its name in model files.
        function: see :mod:`graphact_agents.operations`.
        parameters: the names of its parameters.
        empty: the value over no neighbours.
        gradient: needed for learning alone.
    """

    name: str
    function: Callable[..., Array]
    parameters: tuple[str, ...] = ()
    empty: float = 0.0
    gradient: Gradient | None = None

    def __call__(self, own: Array, neighbors: Array, parameters: Mapping[str, Any]) -> Array:
        """Evaluate for own ``(..., 1, F)`` and neighbours ``(..., d, F)``; d may be 0."""
        if neighbors.shape[-2] == 0:
            return np.full_like(own[..., 0, :], self.empty)
        return self.function(own, neighbors, **parameters)


def median(_own: Array, neighbors: Array) -> Array:
    """Return the lower median; NaN in, NaN out."""
    middle = np.sort(neighbors, -2)[..., (neighbors.shape[-2] - 1) // 2, :]
    return np.where(np.isnan(neighbors).any(-2), middle.dtype.type(np.nan), middle)


def kernel(own: Array, neighbors: Array, gamma: Any) -> Array:
    """Return the Gaussian kernel of the distances to the neighbours."""
    return np.asarray(np.exp(-np.square(own - neighbors).sum(-2) / (2 * gamma**2)))


def mean(_own: Array, neighbors: Array) -> Array:
    """Return the mean."""
    return np.asarray(neighbors.mean(-2))


def std(_own: Array, neighbors: Array) -> Array:
    """Return the population standard deviation, of differences to the first neighbour: equal values give exactly 0."""
    apart = neighbors - neighbors[..., :1, :]
    return np.asarray(np.sqrt(np.square(apart - apart.mean(-2, keepdims=True)).mean(-2)))


def log_mean_exp(_own: Array, neighbors: Array, temperature: Any) -> Array:
    """Return a soft maximum: near the maximum at low temperatures, near the mean at high ones; NaN in, NaN out."""
    top = neighbors.max(-2)
    top = np.where(np.isfinite(top), top, np.zeros_like(top))  # infinity minus infinity would be NaN
    return np.asarray(top + temperature * np.log(np.exp((neighbors - top[..., None, :]) / temperature).mean(-2)))


def count_trimmed(degree: int, trim: float) -> int:
    """Return how many of ``degree`` values are cut off at each end; at least one is left."""
    return min(int(degree * float(trim) + 1e-6), (degree - 1) // 2)  # 0.35 in float32 is still seven of twenty


def trimmed_mean(_own: Array, neighbors: Array, trim: Any) -> Array:
    """Return the mean without a share ``trim`` of the values at each end; NaN in, NaN out."""
    degree = neighbors.shape[-2]
    cut = count_trimmed(degree, trim)
    middle = np.sort(neighbors, -2)[..., cut : degree - cut, :].mean(-2)
    return np.where(np.isnan(neighbors).any(-2), middle.dtype.type(np.nan), middle)


def weighted_mean(own: Array, neighbors: Array, width: Any) -> Array:
    """Return the mean with a Gaussian of the difference to the node's own value as the weight of each neighbour."""
    log_weight = -np.square(own - neighbors) / (2 * width**2)
    weight = np.exp(log_weight - log_weight.max(-2, keepdims=True))
    return np.asarray((weight * neighbors).sum(-2) / weight.sum(-2))


def grad_selection(own: Array, neighbors: Array, value: Array, grad: Array, _: object) -> Gradients:
    """Return the gradients of max, min and median: the chosen neighbour's, among equal ones the first."""
    matches = (neighbors == value[..., None, :]) | np.isnan(neighbors)
    chosen = np.argmax(matches, axis=-2)[..., None, :] == np.arange(neighbors.shape[-2])[:, None]
    return np.zeros_like(own[..., 0, :]), np.where(chosen, grad[..., None, :], grad.dtype.type(0)), {}


def grad_kernel(own: Array, neighbors: Array, value: Array, grad: Array, parameters: Mapping[str, Any]) -> Gradients:
    r"""Return the gradients of :math:`g = \exp(-\sum_j (x_i - x_j)^2 / 2\gamma^2)`.

    .. math:: \partial g / \partial x_j = g\,(x_i - x_j) / \gamma^2, \qquad
        \partial g / \partial x_i = -\textstyle\sum_j \partial g / \partial x_j, \qquad
        \partial g / \partial \log\gamma = g \textstyle\sum_j (x_i - x_j)^2 / \gamma^2
    """
    gamma, differences = parameters["gamma"], own - neighbors
    pulls = (grad * value)[..., None, :] * differences / gamma**2
    width = float((grad * value * np.square(differences).sum(-2)).sum() / float(gamma) ** 2)
    return -pulls.sum(-2), pulls, {"gamma": width}


def grad_mean(_own: Array, neighbors: Array, _value: Array, grad: Array, _: object) -> Gradients:
    """Return the gradients of the mean: the same share for all."""
    shares = np.full_like(neighbors, 1 / neighbors.shape[-2])
    return np.zeros_like(grad), shares * grad[..., None, :], {}


def grad_std(_own: Array, neighbors: Array, value: Array, grad: Array, _: object) -> Gradients:
    """Return the gradients of the standard deviation; 0 where it is 0."""
    apart = neighbors - neighbors.mean(-2, keepdims=True)
    scale = np.divide(grad, value * neighbors.shape[-2], out=np.zeros_like(grad), where=value != 0)
    return np.zeros_like(grad), apart * scale[..., None, :], {}


def grad_log_mean_exp(
    _own: Array, neighbors: Array, value: Array, grad: Array, parameters: Mapping[str, Any]
) -> Gradients:
    r"""Return :math:`p_j = e^{(y_j - f) / t} / d` and, for log t, :math:`f - \sum_j p_j y_j`."""
    shares = np.exp((neighbors - value[..., None, :]) / parameters["temperature"]) / neighbors.shape[-2]
    spread = float((grad * (value - (shares * neighbors).sum(-2))).sum())
    return np.zeros_like(grad), shares * grad[..., None, :], {"temperature": spread}


def grad_trimmed_mean(
    _own: Array, neighbors: Array, _value: Array, grad: Array, parameters: Mapping[str, Any]
) -> Gradients:
    """Return the gradients of the trimmed mean: the same share for all that are left."""
    degree = neighbors.shape[-2]
    cut = count_trimmed(degree, parameters["trim"])
    place = np.argsort(np.argsort(neighbors, -2, kind="stable"), -2, kind="stable")
    kept = (place >= cut) & (place < degree - cut)
    return np.zeros_like(grad), kept * grad[..., None, :] / grad.dtype.type(degree - 2 * cut), {"trim": 0.0}


def grad_weighted_mean(
    own: Array, neighbors: Array, value: Array, grad: Array, parameters: Mapping[str, Any]
) -> Gradients:
    r"""Return the gradients of the weighted mean.

    With the normalised weights p and :math:`q_j = p_j (y_j - f) (y_i - y_j) / w^2`:

    .. math:: \partial f / \partial y_j = p_j + q_j, \qquad \partial f / \partial y_i = -\textstyle\sum_j q_j, \qquad
        \partial f / \partial \log w = \textstyle\sum_j p_j (y_j - f) (y_i - y_j)^2 / w^2
    """
    width, differences = parameters["width"], own - neighbors
    log_weight = -np.square(differences) / (2 * width**2)
    weight = np.exp(log_weight - log_weight.max(-2, keepdims=True))
    shares = weight / weight.sum(-2, keepdims=True)
    pulls = shares * (neighbors - value[..., None, :]) * differences / width**2
    grad_width = float((grad * (pulls * differences).sum(-2)).sum())
    return -grad * pulls.sum(-2), grad[..., None, :] * (shares + pulls), {"width": grad_width}


BUILT_IN = (
    NeighborhoodFunction("max", lambda _, neighbors: neighbors.max(-2), gradient=grad_selection),
    NeighborhoodFunction("min", lambda _, neighbors: neighbors.min(-2), gradient=grad_selection),
    NeighborhoodFunction("median", median, gradient=grad_selection),
    NeighborhoodFunction("kernel", kernel, ("gamma",), 1.0, grad_kernel),
    NeighborhoodFunction("mean", mean, gradient=grad_mean),
    NeighborhoodFunction("std", std, gradient=grad_std),
    NeighborhoodFunction("log-mean-exp", log_mean_exp, ("temperature",), gradient=grad_log_mean_exp),
    NeighborhoodFunction("trimmed-mean", trimmed_mean, ("trim",), gradient=grad_trimmed_mean),
    NeighborhoodFunction("weighted-mean", weighted_mean, ("width",), gradient=grad_weighted_mean),
)
OPERATIONS: dict[str, NeighborhoodFunction] = {operation.name: operation for operation in BUILT_IN}
"""Known operations by name."""


def register_operation(name: str, function: Callable[..., Array]) -> NeighborhoodFunction:
    """Make a function known under a name, as an entry point does; the module's docstring says what it takes.

    Raises:
        ValueError: the name is that of a built-in operation, or the arguments are not own, neighbors and parameters.
    """
    if any(name == operation.name for operation in BUILT_IN):
        raise ValueError(f"operation {name!r} is built in; give yours another name")
    arguments = list(inspect.signature(function).parameters)
    if len(arguments) < 2:
        raise ValueError(f"operation {name!r} must take (own, neighbors, parameters by name), got {arguments}")
    empty, gradient = getattr(function, "empty", 0.0), getattr(function, "gradient", None)
    OPERATIONS[name] = NeighborhoodFunction(name, function, tuple(arguments[2:]), float(empty), gradient)
    return OPERATIONS[name]


def find_operation(name: str) -> NeighborhoodFunction:
    """Return the operation of a name: built in, registered, or that of an entry point."""
    if name not in OPERATIONS:
        for entry in entry_points(group=ENTRY_POINTS, name=str(name)):
            register_operation(name, entry.load())
    if name not in OPERATIONS:
        advice = f"a package can add it under the entry points {ENTRY_POINTS!r}"
        raise ValueError(f"operation must be one of {', '.join(map(repr, OPERATIONS))}, got {name!r}; {advice}")
    return OPERATIONS[name]


def check_runs(operation: NeighborhoodFunction, parameters: Mapping[str, Any], dtype: Any) -> None:
    """Raise ValueError if a function does not map arrays as it should; built-in ones do."""
    if operation in BUILT_IN:
        return
    values = np.linspace(-1, 1, 24, dtype=dtype).reshape(4, 2, 3)
    for count in (1, 3):
        try:
            result = operation(values[3, :, None], np.moveaxis(values[:count], 0, -2), parameters)
        except Exception as error:
            raise ValueError(
                f"operation {operation.name!r} does not run on NumPy arrays: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(result, np.ndarray) or result.shape != (2, 3):
            came = getattr(result, "shape", type(result).__name__)
            raise ValueError(f"operation {operation.name!r} must map arrays (2, {count}, 3) to (2, 3), got {came}")
