"""The same activations as a user of PyG would compose them: gather messages along edges, aggregate them at targets."""

from collections.abc import Callable

import torch
from torch import Tensor

from graphact.graph import Graph

Activation = Callable[[Tensor, Tensor, Tensor], Tensor]


def is_installed() -> bool:
    """Whether PyG is there."""
    import importlib.util

    return importlib.util.find_spec("torch_geometric") is not None


def composed(graph: Graph, op: str, gamma: float) -> Activation:
    """A graph-adaptive activation of (signal, beta, weights) made of PyG's aggregations."""
    from torch_geometric import nn
    from torch_geometric.utils import scatter

    (source, target), weight = graph.to_edge_index()
    nodes = graph.num_nodes
    between = source != target  # a loop takes part in the shift and is not a neighbour
    heard, hearer = (source, target) if bool(between.all()) else (source[between], target[between])
    aggregate = {"max": nn.MaxAggregation, "median": nn.MedianAggregation}.get(op, nn.SumAggregation)()

    def shift(x: Tensor) -> Tensor:
        return scatter(x[source] * weight.unsqueeze(-1), target, dim=0, dim_size=nodes, reduce="sum")

    def over_neighbors(x: Tensor) -> Tensor:
        if op == "kernel":
            apart = (x[hearer] - x[heard]).square()
            return torch.exp(-aggregate(apart, hearer, dim_size=nodes) / (2 * gamma**2))
        return aggregate(x[heard], hearer, dim_size=nodes)

    def activation(x: Tensor, beta: Tensor, weights: Tensor) -> Tensor:
        out, shifted = beta * torch.relu(x), x
        for h in weights:
            shifted = shift(shifted)
            out = out + h * over_neighbors(shifted)
        return out

    return activation
