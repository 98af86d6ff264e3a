"""Ablations of DiGRAF's comparison: functions of neighbours without a shift (Mantri et al., NeurIPS 2024)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from graphact._checks import check_integer
from graphact.functional.neighborhood import neighborhood
from graphact.graph.normalize import Normalization, check_normalize
from graphact.nn.call import check_features, resolve_graph
from graphact.nn.named_activation import GraphInput, NamedActivation, check_width
from graphact.spec import Layer


class Shiftless(NamedActivation):
    r"""A function of neighbours without a shift, and a dense map for each term: "Max" and "Median" of DiGRAF's paper.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{k=1}^{K} \big(H_k f(\{x_j : j \in \mathcal{N}_i\}) + b_k\big)

    All K terms read the same values, so that they are one dense map in K pieces; the graph-adaptive activations read
    shifted signals and weight each feature on its own. As in that code, beta starts at 0.5, and the median counts a
    node among its neighbours.

    Args:
        features: number F of features.
        hops: number K of terms.
        normalize: without effect, as only the pattern of the graph is read.

    Shapes:
        x: ``(..., N, F)``; result: the same.
    """

    op: ClassVar[str]
    weight: Tensor
    bias: Tensor

    def __init__(self, features: int, *, hops: int = 1, normalize: Normalization | None = "symmetric") -> None:
        super().__init__()
        self.features = check_width(self.name, features)
        self.hops, self.normalize = check_integer("hops", hops, minimum=1), check_normalize(normalize)
        self.add_uniform("weight", features, self.hops, features, features)
        self.add_uniform("bias", features, self.hops, features)
        self.beta = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the maps as :class:`torch.nn.Linear` does, and set beta to 0.5."""
        super().reset_parameters()
        nn.init.constant_(self.beta, 0.5)

    def forward(self, x: Tensor, graph: GraphInput = None, edge_weight: Tensor | None = None) -> Tensor:
        graph = resolve_graph(check_features(x, "features", self.features), graph, edge_weight, self.normalize)
        read = neighborhood(x, graph, self.op, closed=self.op == "median")
        weight, bias = self.weight.sum(0).to(x.dtype), self.bias.sum(0).to(x.dtype)  # float32 meets half precision
        return self.beta * torch.relu(x) + nn.functional.linear(read, weight, bias)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(1)


class ShiftlessMax(Shiftless):
    r"""The maximum of the neighbours without a shift, "Max" in DiGRAF's comparison: an ablation.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{k=1}^{K} \big(H_k \max_{j \in \mathcal{N}_i} x_j + b_k\big)

    All K terms read the same values; beta starts at 0.5.

    Args:
        features: number F of features.
        hops: number K of terms.
        normalize: without effect, as only the pattern of the graph is read.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x, activation = torch.tensor([[1.0], [-2.0], [4.0], [3.0]]), graphact.nn.ShiftlessMax(1)
        >>> _ = activation.weight.data.fill_(1.0), activation.bias.data.zero_()
        >>> activation(x, path).detach().squeeze()
        tensor([-1.5000,  4.0000,  5.0000,  5.5000])
    """

    name, op = "shiftless-max", "max"


class ShiftlessMedian(Shiftless):
    r"""The lower median of the neighbours and the node, "Median" in DiGRAF's comparison: an ablation.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{k=1}^{K} \big(H_k \operatorname*{med}_{j \in \mathcal{N}_i \cup \{i\}} x_j + b_k\big)

    All K terms read the same values; beta starts at 0.5.

    Args:
        features: number F of features.
        hops: number K of terms.
        normalize: without effect, as only the pattern of the graph is read.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> x, activation = torch.tensor([[1.0], [-2.0], [4.0], [3.0]]), graphact.nn.ShiftlessMedian(1)
        >>> _ = activation.weight.data.fill_(1.0), activation.bias.data.zero_()
        >>> activation(x, path).detach().squeeze()
        tensor([-1.5000,  1.0000,  5.0000,  4.5000])
    """

    name, op = "shiftless-median", "median"
