"""Functions of a node's features whose coefficients depend on the features: MaxK and GReLU."""

import torch
from torch import Tensor

from graphact._checks import check_integer, check_tensor


def max_k(x: Tensor, k: int) -> Tensor:
    r"""Keep the k largest features of each node and set the others to 0 (MaxK-GNN, Peng et al., ASPLOS 2024).

    Among equal features the first are kept; NaN counts as the largest. With k of at least F, x stays as it is.

    Args:
        x: signal.
        k: how many features are kept.

    Shapes:
        x: ``(..., F)``; result: the same.

    Example:
        >>> import torch, graphact
        >>> graphact.functional.max_k(torch.tensor([[3.0, -1.0, 2.0], [-3.0, -1.0, -2.0]]), 2)
        tensor([[ 3.,  0.,  2.],
                [ 0., -1., -2.]])
    """
    k, features = check_integer("k", k, minimum=1), check_tensor("x", x).size(-1)
    if k >= features:
        return x
    kept = x.detach().sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return x.masked_fill(torch.ones_like(x, dtype=torch.bool).scatter(-1, kept, False), 0.0)


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
