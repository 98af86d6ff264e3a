"""Adaptive filter banks under PyG's names."""

from collections.abc import Sequence
from typing import Any

from graphact.functional.adaptive_filter import BankFunction
from graphact.nn import AdaptiveFilterBank


class GraphAdaptiveConv(AdaptiveFilterBank):
    r"""A convolution that forms shifts and functions of neighbourhoods from the same messages.

    .. math:: x'_i = \sum_{k=0}^{K} H_k^\top [S^k x]_i + \sum_{m} \sum_{k=0}^{K-1} G_{mk}^\top
        f_m(\{[S^k x]_j : j \in \mathcal{N}_i\}) + b

    It is :class:`graphact.nn.AdaptiveFilterBank` with PyG's arguments. S has the edge weights, divided by the square
    roots of two sums of magnitudes: of the weights into the target (a row) and out of the source (a column). On
    undirected graphs without negative weights that is :class:`~torch_geometric.nn.conv.GCNConv` without its self-loops.
    A self-loop of the graph takes part in the shift, but the functions ignore it, unlike SAGEConv and PNAConv. With
    ``K=1`` the convolution takes one round of messages, as those do, which have no weighted shift.

    Args:
        in_channels: features of the input.
        out_channels: features of the output.
        K: number of rounds of messages.
        aggr: the functions f: a name (``"max"``, ``"min"``, ``"median"``, ``"std"``, ``"mean"``, ``"kernel"`` or a
            registered one) or several.
        normalize: divide edge weights by these square roots; False leaves them unchanged.
        bias: add a trained constant to each output feature.

    Shapes:
        x: ``(..., N, in_channels)``; edge_index: ``(2, E)``, or a :class:`~graphact.Graph`; edge_weight: ``(E,)``;
        result: ``(..., N, out_channels)``.

    Example:
        >>> import torch
        >>> from graphact.pyg import GraphAdaptiveConv
        >>> conv = GraphAdaptiveConv(16, 32, aggr=["max", "std"])
        >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> conv(torch.randn(3, 16), edge_index).shape
        torch.Size([3, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        K: int = 1,  # noqa: N803
        aggr: str | Sequence[BankFunction] = ("max",),
        *,
        normalize: bool = True,
        bias: bool = True,
    ) -> None:
        ops = (aggr,) if isinstance(aggr, str) else aggr
        super().__init__(in_channels, out_channels, K, ops=ops, bias=bias, normalize="symmetric" if normalize else None)

    @property
    def in_channels(self) -> int:
        return self.in_features

    @property
    def out_channels(self) -> int:
        return self.out_features

    def config(self) -> dict[str, Any]:
        widths = {"in_channels": self.in_channels, "out_channels": self.out_channels, "K": self.order, "aggr": self.ops}
        return {**widths, "normalize": self.normalize is not None, "bias": self.bias is not None}
