"""Functions of a node's features whose coefficients depend on the features: MaxK and GReLU."""

import torch
from torch import Tensor

from graphact._checks import check_integer, check_tensor


def max_k(x: Tensor, k: int) -> Tensor:
    r"""Keep the k largest features of each node and set the others to 0 (MaxK-GNN, Peng et al., ASPLOS 2024).

    Among equal features the first are kept; NaN counts as the largest. With k of at least F, x stays as it is.

    Args:
        x: signal.
        k: number of features to keep.

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.functional.max_k(torch.tensor([[3.0, -1.0, 2.0], [-3.0, -1.0, -2.0]]), 2)
        tensor([[ 3.,  0.,  2.],
                [ 0., -1., -2.]])
    """
    k = check_integer("k", k, minimum=1)
    if check_tensor("x", x).dim() == 0:
        raise ValueError("x must have the shape (..., F), got a single number")
    if k >= x.size(-1):
        return x
    return x.masked_fill(~largest_features(x.detach(), k), 0.0)


def largest_features(x: Tensor, k: int) -> Tensor:
    """Return a mask of the k largest features of each node, without sorting NaN, on whose order runtimes differ."""
    is_nan = x.isnan()
    ordered = torch.where(is_nan, torch.inf, x)
    smallest = ordered.topk(k, dim=-1).values[..., -1:]
    enough = is_nan.sum(-1, keepdim=True) >= k
    above = ((ordered > smallest) | is_nan) & ~enough
    level = (is_nan & enough) | ((ordered == smallest) & ~is_nan & ~enough)
    room = k - above.sum(-1, keepdim=True)
    return above | (level & (level.long().cumsum(-1) <= room))


def grelu(x: Tensor, node: Tensor, slopes: Tensor, offsets: Tensor) -> Tensor:
    r"""A maximum of affine functions with coefficients for each node n and channel c (GReLU, Zhang et al., WWW 2022).

    .. math:: \sigma(x_{nc}) = \max_{1 \le p \le P}\; (\alpha^p_{nc} x_{nc} + \beta^p_{nc}), \qquad
        \alpha^p_{nc} = [p = 1] + \gamma_n a^p_c, \quad \beta^p_{nc} = \gamma_n b^p_c

    The coefficients are factored into one of the node and one of the channel. Where both a and b are 0, it is the ReLU.

    Args:
        x: signal.
        node: the factors of the nodes.
        slopes: a, for each piece and channel; the same for all nodes of a graph.
        offsets: b, likewise.

    Shapes:
        x: ``(..., N, F)``; node: ``(..., N, 1)``; slopes, offsets: ``(..., N or 1, P, F)``; result: that of x.
    """
    plain = torch.zeros(slopes.size(-2), 1, dtype=x.dtype, device=x.device)
    plain[0] = 1
    factor = node.unsqueeze(-2)
    return ((plain + factor * slopes) * x.unsqueeze(-2) + factor * offsets).amax(-2)
