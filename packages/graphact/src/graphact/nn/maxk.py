"""MaxK: the k largest features of each node."""

from torch import Tensor

from graphact._checks import check_integer
from graphact.functional import max_k
from graphact.nn.named_activation import GraphInput, NamedActivation
from graphact.spec import Layer


class MaxK(NamedActivation):
    r"""Keep the k largest features of each node and set the others to 0 (MaxK-GNN, Peng et al., ASPLOS 2024).

    .. math:: [\sigma(x)]_{if} = x_{if} \;\text{if}\; x_{if} \;\text{is among the}\; k \;\text{largest of}\; x_i,
        \quad \text{else}\; 0

    Args:
        k: number of features to keep; None for a quarter of them, rounded up.

    Shapes:
        x: ``(..., N, F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.nn.MaxK(k=2)(torch.tensor([[1.0, -2.0, 4.0, 3.0]]))
        tensor([[0., 0., 4., 3.]])
    """

    name = "max-k"

    def __init__(self, k: int | None = None) -> None:
        super().__init__()
        self.k = None if k is None else check_integer("k", k, minimum=1)

    def forward(self, x: Tensor, graph: GraphInput = None, edge_weight: Tensor | None = None) -> Tensor:
        return max_k(x, max(1, -(-x.size(-1) // 4)) if self.k is None else self.k)

    def describe(self) -> tuple[Layer, ...]:
        return self.described(0)
