"""The activations by the names that tables, files and commands use."""

from graphact._checks import check_choice
from graphact.nn.activation import ReLU
from graphact.nn.base import GraphModule
from graphact.nn.graph_adaptive import GraphAdaptiveKernel, GraphAdaptiveMax, GraphAdaptiveMedian
from graphact.nn.localized import LocalizedMax, LocalizedMedian

ACTIVATIONS: dict[str, type[GraphModule]] = {
    "relu": ReLU,
    "max-l": LocalizedMax,
    "median-l": LocalizedMedian,
    "max-ga": GraphAdaptiveMax,
    "median-ga": GraphAdaptiveMedian,
    "kernel-ga": GraphAdaptiveKernel,
}


def make_activation(
    name: str,
    *,
    hops: int = 1,
    features: int | None = None,
    closed: bool = False,
    gamma: float = 0.1,
    learn_gamma: bool = False,
) -> GraphModule:
    """Build an activation from its name; ``gamma`` and ``learn_gamma`` concern the kernel alone, and ReLU needs none.

    Example:
        >>> import graphact
        >>> graphact.nn.make_activation("median-ga", hops=2)
        GraphAdaptiveMedian(hops=2, features=None, closed=False)
    """
    check_choice("activation", name, tuple(ACTIVATIONS))
    if name == "relu":
        return ReLU()
    if name == "kernel-ga":
        return GraphAdaptiveKernel(hops, features, closed, gamma, learn_gamma)
    return ACTIVATIONS[name](hops, features, closed)
