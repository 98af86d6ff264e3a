"""Polynomial graph filters and banks of them."""

import torch
from torch import Tensor

from graphact._checks import check_companion, check_tensor
from graphact.functional.neighborhood import shift_pass
from graphact.graph.graph import check_signal
from graphact.graph.protocol import GraphLike


def graph_filter(x: Tensor, graph: GraphLike, taps: Tensor) -> Tensor:
    r"""Filter a signal with a polynomial of the shift operator, equations (1) and (2) of the paper.

    .. math:: y = \sum_{k=0}^{K} h_k S^k x
        \qquad\text{or}\qquad y^f = \sum_g \sum_{k=0}^{K} h_k^{fg} S^k x^g

    A filter of order K takes K exchanges between neighbours.

    Args:
        x: signal.
        graph: the graph.
        taps: the K + 1 coefficients of one filter for every feature, or of a bank that mixes features.

    Shapes:
        x: ``(..., N, F_in)``; taps: ``(K + 1,)`` or ``(K + 1, F_in, F_out)``; result: ``(..., N, F_out)``.

    Raises:
        ValueError: taps do not have one of the two shapes.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [2.0], [4.0]])
        >>> graphact.functional.graph_filter(x, path, torch.tensor([1.0, 10.0])).squeeze()
        tensor([21., 52., 24.])
    """
    x = check_signal(x, graph)
    taps = check_companion("taps", check_tensor("taps", taps), x)
    if taps.dim() == 1 and taps.size(0) > 0:
        return _one_filter(x, graph, taps)
    if taps.dim() != 3 or taps.size(0) == 0 or taps.size(1) != x.size(-1):
        raise ValueError(
            f"taps must have the shape (K + 1,) or (K + 1, F_in, F_out) with F_in = {x.size(-1)}, "
            f"the features of x, got {tuple(taps.shape)}"
        )
    if taps.size(1) <= taps.size(2):
        return _shift_then_mix(x, graph, taps)
    return _mix_then_shift(x, graph, taps)


def _one_filter(x: Tensor, graph: GraphLike, taps: Tensor) -> Tensor:
    out = taps[0] * x
    for tap in taps[1:]:
        (x,) = graph.one_hop(x, shift_pass)
        out = out + tap * x
    return out


def _shift_then_mix(x: Tensor, graph: GraphLike, taps: Tensor) -> Tensor:
    """All shifts of the few input features, then one matrix product."""
    shifts = [x]
    for _ in range(taps.size(0) - 1):
        shifts += graph.one_hop(shifts[-1], shift_pass)
    return torch.cat(shifts, dim=-1) @ taps.flatten(0, 1)


def _mix_then_shift(x: Tensor, graph: GraphLike, taps: Tensor) -> Tensor:
    """One matrix product, then Horner's scheme on the few output features."""
    *lower, out = (x @ taps.transpose(0, 1).flatten(1, 2)).split(taps.size(2), dim=-1)
    for term in reversed(lower):
        out = term + graph.one_hop(out, shift_pass)[0]
    return out
