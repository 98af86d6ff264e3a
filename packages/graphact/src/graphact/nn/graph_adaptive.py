"""Graph-adaptive activations: functions of the one-hop neighbours of each shift of the signal (the paper)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from graphact.graph.normalize import Normalization
from graphact.nn.module import Start
from graphact.nn.neighborhood_activation import NeighborhoodActivation, parameter_value
from graphact.spec.kinds import Reads
from graphact.spec.reductions import (
    KERNEL,
    LOG_MEAN_EXP,
    MAX,
    MEAN,
    MEDIAN,
    TRIMMED_MEAN,
    WEIGHTED_MEAN,
    Operation,
    as_operation,
)


class GraphAdaptive(NeighborhoodActivation):
    r"""Graph-adaptive activation with any function f of a neighbourhood.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{[S^k x]_j : j \in \mathcal{N}_i\})

    It takes K + 1 exchanges between neighbours. The first one brings the neighbours' own values, which the sum, as the
    paper defines it, does not use: with ``unshifted`` it begins at k = 0, for no further exchange.

    A subclass with a class attribute ``operation`` needs nothing else to be a module of its own;
    :func:`graphact.nn.register` gives it a name.

    Args:
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"``, an :class:`~graphact.spec.reductions.Operation`, or a
            function of ``(neighbors)`` or of ``(own, neighbors)`` as :func:`graphact.functional.neighborhood_apply`
            takes it; subclasses with an ``operation`` have no such argument.
        features: number F of features to give each its own weights; None shares them among all.
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
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

    reads: Reads

    @property
    def unshifted(self) -> bool:
        return self.reads == "unshifted"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "operation" in vars(cls) and "__init__" not in vars(cls):
            cls.__init__ = init_named  # type: ignore[method-assign, assignment]

    def __init__(
        self,
        op: str | Operation | Callable[..., Tensor],
        features: int | None = None,
        *,
        hops: int = 1,
        unshifted: bool = False,
        closed: bool = False,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
        **options: float | bool,
    ) -> None:
        vars(self).update(operation=as_operation(op), reads="unshifted" if unshifted else "shifted")
        super().__init__(features=features, hops=hops, closed=closed, normalize=normalize, start=start, **options)

    def config(self) -> dict[str, Any]:
        given = {"op": self.op} if "operation" in vars(self) else {}
        return {**given, **super().config(), **({"unshifted": True} if self.unshifted else {})}


def init_named(
    self: GraphAdaptive,
    features: int | None = None,
    *,
    hops: int = 1,
    unshifted: bool = False,
    closed: bool = False,
    normalize: Normalization | None = "symmetric",
    start: Start = "zero",
    **options: float | bool,
) -> None:
    """Initialize an activation whose class has an operation."""
    vars(self)["reads"] = "unshifted" if unshifted else "shifted"
    arguments: dict[str, Any] = {"hops": hops, "closed": closed, "normalize": normalize, "start": start, **options}
    NeighborhoodActivation.__init__(self, features, **arguments)


class GraphAdaptiveMax(GraphAdaptive):
    r"""Graph-adaptive max activation: the maximum over the neighbours of each shift.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \max_{j \in \mathcal{N}_i} [S^k x]_j

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.

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
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.

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
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: without effect, as a node does not differ from itself.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.
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

    @property
    def gamma(self) -> float | Tensor:
        """Return the current width of the Gaussian: a number, or a tensor if it is trained."""
        return parameter_value(self, "gamma")


class GraphAdaptiveMean(GraphAdaptive):
    r"""Graph-adaptive mean of the d neighbours' values of each shift: a linear control for the others.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k
        \frac{1}{d_i} \sum_{j \in \mathcal{N}_i} [S^k x]_j

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.

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
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.
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
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.
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
        hops: number K of shifts; 0 only with ``unshifted``.
        unshifted: add the term k = 0, over the neighbours' own values; the weights then have K + 1 rows.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`GraphAdaptive`.
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
