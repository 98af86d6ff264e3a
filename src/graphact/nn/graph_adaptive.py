"""The paper's graph-adaptive activations as modules."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from graphact._deprecation import keyword_only_after
from graphact.functional import graph_adaptive
from graphact.nn.activation import HopMixture
from graphact.operations import KERNEL, MAX, MEDIAN, Operation, as_operation


class GraphAdaptive(HopMixture):
    """Graph-adaptive activation with any function of a neighbourhood.

    See :func:`graphact.functional.graph_adaptive` for the formula. A subclass with a class attribute ``operation``
    needs nothing else to be a module of its own (:func:`graphact.nn.register` gives it a name).

    Args:
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"``, an :class:`~graphact.operations.Operation`, or a function
            of ``(neighbors)`` or of ``(own, neighbors)`` as :func:`graphact.functional.neighborhood_apply` takes it;
            subclasses with an operation of their own have no such argument.
        features: number F of features to give each its own weights; None shares them among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        options: parameters of the operation, such as ``gamma=0.5, learn_gamma=True`` of the kernel.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.9, 0.2)
        >>> span = graphact.nn.GraphAdaptive(lambda neighbors: neighbors.amax(-2) - neighbors.amin(-2), hops=2)
        >>> span(torch.randn(4, 10, 3), graph).shape
        torch.Size([4, 10, 3])
    """

    reads = "shifted"
    function = staticmethod(graph_adaptive)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "operation" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = HopMixture.__init__  # type: ignore[method-assign, assignment]

    @keyword_only_after(1, "hops", "features", "closed")
    def __init__(
        self,
        op: str | Operation | Callable[..., Tensor],
        features: int | None = None,
        *,
        hops: int = 1,
        closed: bool = False,
        **options: float | bool,
    ) -> None:
        vars(self)["operation"] = as_operation(op)
        super().__init__(features=features, hops=hops, closed=closed, **options)

    def config(self) -> dict[str, Any]:
        is_given = "operation" in vars(self)
        return {**({"op": self.op} if is_given else {}), **super().config()}


class GraphAdaptiveMax(GraphAdaptive):
    """Graph-adaptive max activation; the arguments are those of :class:`GraphAdaptive` without ``op``."""

    operation = MAX


class GraphAdaptiveMedian(GraphAdaptive):
    """Graph-adaptive median activation; the arguments are those of :class:`GraphAdaptive` without ``op``."""

    operation = MEDIAN


class GraphAdaptiveKernel(GraphAdaptive):
    """Graph-adaptive Gaussian kernel activation.

    Args:
        features: number F of features to give each its own weights; None shares them among all.
        hops: number K of shifts.
        closed: accepted like everywhere; a node does not differ from itself, so it changes nothing.
        gamma: width of the Gaussian, above 0.
        learn_gamma: train gamma, through its logarithm, so that it stays above 0.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    operation = KERNEL

    @keyword_only_after(0, "hops", "features", "closed", "gamma", "learn_gamma")
    def __init__(
        self,
        features: int | None = None,
        *,
        hops: int = 1,
        closed: bool = False,
        gamma: float = 0.1,
        learn_gamma: bool = False,
    ) -> None:
        HopMixture.__init__(self, features=features, hops=hops, closed=closed, gamma=gamma, learn_gamma=learn_gamma)

    @property
    def gamma(self) -> float | Tensor:
        """The width of the Gaussian as it is now: a number, or a tensor when it is trained."""
        return self.parameter_of_operation("gamma")
