"""Several functions of each neighbourhood in one activation."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_integer
from graphact.functional import graph_adaptive_mixture
from graphact.graph.normalize import Normalization, check_normalize
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.module import STARTS, Start, init_uniform
from graphact.nn.named_activation import GraphInput, NamedActivation
from graphact.nn.neighborhood_activation import check_hops
from graphact.spec import Layer
from graphact.spec.reductions import OPERATIONS, find_operation


class GraphAdaptiveMixture(NamedActivation):
    r"""Several functions of each neighbourhood at once, mixed for every hop.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{m=1}^{M} \sum_{k=1}^{K} h_{mk}\, f_m(\{[S^k x]_j : j \in \mathcal{N}_i\})

    Args:
        features: number F of features to give each its own weights, ``(M, K, F)``; None shares ``(M, K)`` among all.
        hops: number K of shifts; 0 only with ``unshifted``.
        ops: names of the M functions, built in or registered, each with the parameters that it starts from.
        unshifted: add the terms k = 0, over the neighbours' own values; the weights then have K + 1 for each function.
        closed: count a node among its neighbours.
        normalize: normalization of a graph built from an edge_index, see :meth:`graphact.Graph.normalize`.
        start: where the weights start: ``"zero"``, ``"small"`` or ``"uniform"``, as in :class:`GraphAdaptive`.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0], [3.0]])
        >>> activation = graphact.nn.GraphAdaptiveMixture(ops=["max", "min"])
        >>> _ = activation.weights.data.fill_(1.0)
        >>> activation(x, path).detach().squeeze()
        tensor([11., -1., 13.,  5.])
    """

    name = "mixture-ga"

    def __init__(
        self,
        features: int | None = None,
        *,
        hops: int = 1,
        ops: Sequence[str] = ("max", "median", "min", "mean"),
        unshifted: bool = False,
        closed: bool = False,
        normalize: Normalization | None = "symmetric",
        start: Start = "zero",
    ) -> None:
        super().__init__()
        if not isinstance(ops, list | tuple) or not ops:
            raise ValueError(f"ops must list at least one name of an operation, got {ops!r}")
        self.ops = tuple(find_operation(op).name for op in ops)
        self.unshifted = bool(unshifted)
        self.hops = check_hops(hops, "unshifted" if self.unshifted else "shifted")
        self.features = None if features is None else check_integer("features", features, minimum=1)
        self.closed, self.normalize = bool(closed), check_normalize(normalize)
        self.start = check_choice("start", start, tuple(STARTS))
        self.beta = nn.Parameter(torch.empty(()))
        terms = self.hops + 1 if self.unshifted else self.hops
        shape = (len(self.ops), terms, *(() if self.features is None else (self.features,)))
        self.weights = nn.Parameter(torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set beta to 1 and the weights as ``start`` says."""
        nn.init.ones_(self.beta)
        init_uniform(self.weights, self.start, self.weights.size(0) * self.weights.size(1))

    def forward(self, x: Tensor, graph: GraphInput = None, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        ops = [OPERATIONS.get(op, op) for op in self.ops]
        options = {"closed": self.closed, "unshifted": self.unshifted}
        return graph_adaptive_mixture(x, graph, self.beta, self.weights, ops, **options)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(self.hops + 1)

    def config(self) -> dict[str, Any]:
        names = ("features", "hops", "closed", "normalize", "start")
        config = {"ops": list(self.ops), **{name: getattr(self, name) for name in names}}
        return {**config, **({"unshifted": True} if self.unshifted else {})}
