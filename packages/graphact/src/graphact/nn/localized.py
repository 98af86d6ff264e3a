"""Localized activations: functions of the k-hop neighbours (Ruiz et al.)."""

from graphact.nn.neighborhood_activation import NeighborhoodActivation
from graphact.spec.reductions import MAX, MEDIAN


class Localized(NeighborhoodActivation):
    r"""Localized activation of Ruiz et al.: any operation f over the k-hop neighbours; subclasses set ``operation``.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{x_j : j \in \mathcal{N}_i^k\})

    :math:`\mathcal{N}_i^k` are the nodes that walks of exactly k edges lead to. Beyond one hop a node needs values of
    nodes that are not its neighbours.

    Args:
        features: number F of features to give each its own weights, ``(K, F)``; None shares ``(K,)`` among all.
        hops: number K of hops.
        closed: let walks stay at a node: :math:`\mathcal{N}_i^k` are then all nodes within k hops.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` (uniform within 0.1 / sqrt(K)) or ``"uniform"``
            (within 1 / sqrt(K)).
        options: for each parameter of the operation its value, and ``learn_NAME`` to train it.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> class LocalizedMin(graphact.nn.Localized):
        ...     operation = graphact.spec.reductions.MIN
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
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`Localized`.

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
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights h start: ``"zero"``, ``"small"`` or ``"uniform"``, see :class:`Localized`.

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
