"""Activations as modules: mixtures over hops, graph-adaptive (the paper) or localized (Ruiz et al.)."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer, check_positive, did_you_mean
from graphact.functional import graph_adaptive, localized
from graphact.graph.normalize import Normalization, check_normalize
from graphact.graph.protocol import GraphLike
from graphact.nn.base import GraphModule, check_features, resolve_graph
from graphact.spec import HopMixture, Layer
from graphact.spec.kinds import Reads
from graphact.spec.operations import (
    KERNEL,
    LOG_MEAN_EXP,
    MAX,
    MEAN,
    MEDIAN,
    OPERATIONS,
    TRIMMED_MEAN,
    WEIGHTED_MEAN,
    Operation,
    as_operation,
    register_operation,
)

# no attribute of a class, which a subclass could change without changing the description
FUNCTIONS: dict[Reads, Callable[..., Tensor]] = {"shifted": graph_adaptive, "hops": localized}
Start = Literal["zero", "small", "uniform"]
STARTS: dict[str, float] = {"zero": 0.0, "small": 0.1, "uniform": 1.0}  # the bound of h, as a part of 1 / sqrt(K)
SETTINGS = ("features", "hops", "closed", "normalize", "start")  # what all of them take


class NeighborhoodActivation(GraphModule):
    r"""An activation :math:`\beta\,\mathrm{ReLU}(x) + \sum_k h_k\,f_k(x)` with trained coefficients.

    ``beta`` starts at 1 and the weights h at 0, so that an activation begins as the ReLU that it replaces, unless
    ``start`` says otherwise. A parameter of the operation, such as the kernel's ``gamma``, is a constant, or with
    ``learn_gamma=True`` trained through its logarithm, so that it stays above 0.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of terms, k = 1..K.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)), ``"uniform"`` within
            1 / sqrt(K).
        options: for each parameter of the operation its value, and ``learn_NAME`` to train it.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    operation: Operation
    reads: ClassVar[Reads]
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
        self.hops = check_integer("hops", hops, minimum=1)
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.closed, self.normalize = bool(closed), check_normalize(normalize)
        self.start = check_choice("start", start, tuple(STARTS))
        self.beta = nn.Parameter(torch.empty(()))
        shape = (self.hops,) if self.features is None else (self.hops, self.features)
        self.weights = nn.Parameter(torch.empty(shape))
        known = OPERATIONS.get(self.operation.name) is self.operation
        self.op = self.operation.name if known else self.operation.function  # a module is registered, and trained
        self.initial = check_options(self.operation, options)
        self.learned = tuple(name for name in self.initial if options.get(f"learn_{name}", name in self.trains))
        for name in self.initial:
            value = nn.Parameter(torch.empty(())) if name in self.learned else None
            self.register_parameter(f"log_{name}", value)
        NeighborhoodActivation.reset_parameters(self)

    def reset_parameters(self) -> None:
        """Set beta to 1, the weights as ``start`` says, and trained parameters of the operation as they were given."""
        bound = STARTS[self.start] / math.sqrt(self.hops)
        nn.init.ones_(self.beta)
        if bound == 0:
            nn.init.zeros_(self.weights)
        else:
            nn.init.uniform_(self.weights, -bound, bound)
        for name in self.learned:
            nn.init.constant_(getattr(self, f"log_{name}"), math.log(self.initial[name]))

    def forward(self, x: Tensor, graph: GraphLike | Tensor | None = None, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        parameters = {name: parameter_of_operation(self, name) for name in self.initial}
        return FUNCTIONS[self.reads](
            x, graph, self.beta, self.weights, self.own_operation(), closed=self.closed, parameters=parameters
        )

    def describe(self) -> tuple[Layer, ...]:
        constants = {name: value for name, value in self.initial.items() if name not in self.learned}
        learned = {name: getattr(self, f"log_{name}") for name in self.learned}
        operation = self.own_operation()
        return (HopMixture(operation, self.reads, self.closed, constants, self.beta, self.weights, learned),)

    def own_operation(self) -> Operation:
        """The operation; where its function is a module, with the one that this module holds now.

        A replica of ``DataParallel`` holds one of its own, and so does a module whose part was exchanged.
        """
        if not isinstance(self.op, nn.Module) or self.op is self.operation.function:
            return self.operation
        return replace(self.operation, function=self.op)

    def config(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in ("normalize", "start") if takes(type(self), name)}
        for name, value in self.initial.items():
            options |= {name: value, f"learn_{name}": name in self.learned}
        return {"hops": self.hops, "features": self.features, "closed": self.closed, **options}


def check_options(operation: Operation, options: Mapping[str, Any]) -> dict[str, float]:
    """The values from which the parameters of an operation start."""
    for name in options:
        if name.removeprefix("learn_") not in operation.parameters:
            known = ", ".join(operation.parameters) or "none"
            meant = did_you_mean(
                name, [*SETTINGS, *operation.parameters, *(f"learn_{p}" for p in operation.parameters)]
            )
            raise TypeError(f"{name} is no parameter of the operation {operation.name!r}, which has {known}{meant}")
    return {name: check_positive(name, options.get(name, start)) for name, start in operation.parameters.items()}


def takes(module: type[NeighborhoodActivation], keyword: str) -> bool:
    """Whether a class, which may be a user's with an ``__init__`` of its own, is constructed with a keyword."""
    parameters = inspect.signature(module).parameters
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def parameter_of_operation(activation: NeighborhoodActivation, name: str) -> float | Tensor:
    """A parameter of the operation as it is now: a number, or a tensor when it is trained."""
    is_learned = name in activation.learned
    return getattr(activation, f"log_{name}").exp() if is_learned else activation.initial[name]


class GraphAdaptive(NeighborhoodActivation):
    r"""Graph-adaptive activation with any function f of a neighbourhood.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{[S^k x]_j : j \in \mathcal{N}_i\})

    A subclass with a class attribute ``operation`` needs nothing else to be a module of its own;
    :func:`graphact.nn.register` gives it a name.

    Args:
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"``, an :class:`~graphact.spec.operations.Operation`, or a
            function of ``(neighbors)`` or of ``(own, neighbors)`` as
            :func:`graphact.functional.neighborhood_apply` takes it; subclasses with an operation of their own have no such argument.
        features: number F of features to give each its own weights; None shares them among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)), ``"uniform"`` within
            1 / sqrt(K).
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

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "operation" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = NeighborhoodActivation.__init__  # type: ignore[method-assign, assignment]

    def __init__(
        self,
        op: str | Operation | Callable[..., Tensor],
        features: int | None = None,
        *,
        hops: int = 1,
        closed: bool = False,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
        **options: float | bool,
    ) -> None:
        vars(self)["operation"] = as_operation(op)
        super().__init__(features=features, hops=hops, closed=closed, normalize=normalize, start=start, **options)

    def config(self) -> dict[str, Any]:
        is_given = "operation" in vars(self)
        return {**({"op": self.op} if is_given else {}), **super().config()}


class GraphAdaptiveMax(GraphAdaptive):
    r"""Graph-adaptive max activation: the maximum over the neighbours of each shift.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \max_{j \in \mathcal{N}_i} [S^k x]_j

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveMax()
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([6., 1., 9., 4.])
    """

    operation = MAX


class GraphAdaptiveMedian(GraphAdaptive):
    r"""Graph-adaptive median activation: the lower median over the neighbours of each shift.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \operatorname*{med}_{j \in \mathcal{N}_i} [S^k x]_j

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveMedian()
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([ 6., -2.,  8.,  4.])
    """

    operation = MEDIAN


class GraphAdaptiveKernel(GraphAdaptive):
    r"""Graph-adaptive Gaussian kernel activation: how near the neighbours' values of each shift are to the node's own.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \exp\Big(-\sum_{j \in \mathcal{N}_i}
        \frac{([S^k x]_i - [S^k x]_j)^2}{2 \gamma^2}\Big)

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: without effect, as a node does not differ from itself.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).
        gamma: width of the Gaussian, above 0.
        learn_gamma: train gamma, through its logarithm, so that it stays above 0.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveKernel(gamma=10.0)
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([1.7827, 0.7225, 4.8825, 3.9560])
    """

    operation = KERNEL

    def __init__(
        self,
        features: int | None = None,
        *,
        hops: int = 1,
        closed: bool = False,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
        gamma: float = 0.1,
        learn_gamma: bool = False,
    ) -> None:
        options: dict[str, Any] = {"normalize": normalize, "start": start, "gamma": gamma, "learn_gamma": learn_gamma}
        NeighborhoodActivation.__init__(self, features=features, hops=hops, closed=closed, **options)

    @property
    def gamma(self) -> float | Tensor:
        """The width of the Gaussian as it is now: a number, or a tensor when it is trained."""
        return parameter_of_operation(self, "gamma")


class GraphAdaptiveMean(GraphAdaptive):
    r"""Graph-adaptive mean of the d neighbours' values of each shift: a linear control for the others.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \frac{1}{d_i} \sum_{j \in \mathcal{N}_i} [S^k x]_j

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveMean()
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([ 6.0000, -0.5000,  8.5000,  4.0000])
    """

    operation = MEAN


class GraphAdaptiveSoftMaximum(GraphAdaptive):
    r"""Graph-adaptive soft maximum: the logarithm of the mean exponential over the d neighbours of each shift.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        t \log \frac{1}{d_i} \sum_{j \in \mathcal{N}_i} e^{[S^k x]_j / t}

    It lies between the mean (t large) and the maximum (t small); its gradient reaches every neighbour.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).
        temperature: t, above 0.
        learn_temperature: train t, through its logarithm; it is trained unless this is False.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveSoftMaximum(temperature=0.5)
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([6.0000, 0.6547, 8.7169, 4.0000])
    """

    operation, trains = LOG_MEAN_EXP, ("temperature",)


class GraphAdaptiveTrimmedMean(GraphAdaptive):
    r"""Graph-adaptive trimmed mean: the mean of the neighbours' values without the lowest and the highest.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \frac{1}{|T_i^k|} \sum_{j \in T_i^k} [S^k x]_j

    Of the d neighbours of node i, :math:`T_i^k` leaves out the ``floor(trim * d)`` with the lowest and as many with the
    highest values. The result lies between the mean (``trim`` near 0) and the median (0.5).

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).
        trim: share of the neighbours that is left out at each end.
        learn_trim: must be False: ``trim`` counts neighbours and cannot be trained.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> all_pairs = graphact.Graph.from_dense(torch.ones(4, 4) - torch.eye(4))
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveTrimmedMean(trim=0.4)
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, all_pairs).detach().squeeze()
        tensor([4., 3., 9., 8.])
    """

    operation = TRIMMED_MEAN


class GraphAdaptiveWeightedMean(GraphAdaptive):
    r"""Graph-adaptive weighted mean: neighbours count the more, the nearer their values are to the node's own.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \frac{\sum_{j \in \mathcal{N}_i} w_{ij}\, y_j}{\sum_{j \in \mathcal{N}_i} w_{ij}},
        \qquad w_{ij} = e^{-(y_i - y_j)^2 / 2 w^2}, \quad y = S^k x

    These are the weights of a bilateral filter.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts.
        closed: count a node among its neighbours.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).
        width: w, above 0.
        learn_width: train w, through its logarithm; it is trained unless this is False.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveWeightedMean(width=3.0)
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([6.0000, 0.5865, 8.4040, 4.0000])
    """

    operation, trains = WEIGHTED_MEAN, ("width",)


class Localized(NeighborhoodActivation):
    r"""Localized activation of Ruiz et al.: any operation f over the k-hop neighbours; subclasses set ``operation``.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{x_j : j \in \mathcal{N}_i^k\})

    :math:`\mathcal{N}_i^k` are the nodes that walks of exactly k edges lead to. Beyond one hop a node needs values of
    nodes that it does not hear.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of hops.
        closed: let walks rest: :math:`\mathcal{N}_i^k` are then all nodes within k hops.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).
        options: for each parameter of the operation its value, and ``learn_NAME`` to train it.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> class LocalizedMin(graphact.nn.Localized):
        ...     operation = graphact.spec.operations.MIN
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> activation = LocalizedMin(hops=2)  # or a ready one, such as LocalizedMax(hops=2)
        >>> activation(torch.randn(3, 1), path).shape
        torch.Size([3, 1])
    """

    reads = "hops"


class LocalizedMax(Localized):
    r"""Localized max activation: the maximum over the k-hop neighbours.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k \max_{j \in \mathcal{N}_i^k} x_j

    :math:`\mathcal{N}_i^k` are the nodes that walks of exactly k edges lead to.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of hops.
        closed: let walks rest: :math:`\mathcal{N}_i^k` are then all nodes within k hops.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.LocalizedMax()
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([-1.,  4.,  7.,  7.])
    """

    operation = MAX


class LocalizedMedian(Localized):
    r"""Localized median activation: the lower median over the k-hop neighbours.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \operatorname*{med}_{j \in \mathcal{N}_i^k} x_j

    :math:`\mathcal{N}_i^k` are the nodes that walks of exactly k edges lead to.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of hops.
        closed: let walks rest: :math:`\mathcal{N}_i^k` are then all nodes within k hops.
        normalize: how the graph made from an edge_index is normalised, as in :meth:`graphact.Graph.normalize`; None
            takes the weights as they are. A ``Graph`` is never changed.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.LocalizedMedian()
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([-1.,  1.,  2.,  7.])
    """

    operation = MEDIAN
