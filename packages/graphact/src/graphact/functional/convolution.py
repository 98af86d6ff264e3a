"""Convolutions besides the polynomial filter: Chebyshev, ARMA, attention, and edge-varying filters."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphact._checks import check_companion, check_integer, check_tensor
from graphact.functional.neighborhood import shift_pass
from graphact.functional.segments import Segments
from graphact.graph import Graph
from graphact.graph.graph import check_signal
from graphact.graph.protocol import GraphLike
from graphact.kernels.reference import accumulation_dtype


def chebyshev(x: Tensor, graph: GraphLike, taps: Tensor) -> Tensor:
    r"""A filter bank in the basis of Chebyshev polynomials (Defferrard et al. 2016).

    .. math:: y = \sum_{k=0}^{K} T_k(S)\, x\, H_k, \qquad T_k(S) x = 2 S\, T_{k-1}(S) x - T_{k-2}(S) x

    from :math:`T_0(S) x = x` and :math:`T_1(S) x = S x`. S should have its eigenvalues in [-1, 1], as after the
    normalisations ``symmetric`` and ``spectral``; with ``symmetric``, S is minus the rescaled Laplacian of that paper.

    Shapes:
        x: ``(..., N, F_in)``; taps: ``(K + 1, F_in, F_out)``; result: ``(..., N, F_out)``.
    """
    x = check_signal(x, graph)
    taps = check_taps("taps", taps, x)
    basis = [x]
    for k in range(1, taps.size(0)):
        (shifted,) = graph.one_hop(basis[-1], shift_pass)
        basis.append(shifted if k == 1 else 2 * shifted - basis[-2])
    return torch.cat(basis, dim=-1) @ taps.flatten(0, 1)


def arma(x: Tensor, graph: GraphLike, first: Tensor, recurrent: Tensor, direct: Tensor, steps: int) -> Tensor:
    r"""A bank of rational filters: the mean of P recursions (Isufi et al. 2017, Bianchi et al. 2021).

    .. math:: z^p_1 = S x A^p_1 + x B^p, \qquad z^p_{t+1} = S z^p_t A^p + x B^p, \qquad
        y = \frac{1}{P} \sum_p z^p_T

    Shapes:
        x: ``(..., N, F_in)``; first, direct: ``(P, F_in, F_out)``; recurrent: ``(P, F_out, F_out)``; result: ``(..., N,
        F_out)``.
    """
    x, steps = check_signal(x, graph), check_integer("steps", steps, minimum=1)
    first = check_taps("first", first, x)
    direct = check_shape("direct", direct, x, first.shape)
    stacks, width = first.size(0), first.size(2)
    recurrent = check_shape("recurrent", recurrent, x, (stacks, width, width))
    skip = torch.einsum("...ng,pgf->...npf", x, direct)
    state = torch.einsum("...ng,pgf->...npf", x, first)
    for step in range(steps):
        if step > 0:
            state = torch.einsum("...npg,pgf->...npf", state, recurrent)
        state = graph.one_hop(state.flatten(-2), shift_pass)[0].unflatten(-1, (stacks, -1)) + skip
    return state.mean(-2)


def attention(x: Tensor, graph: GraphLike, weight: Tensor, to: Tensor, of: Tensor, slope: float = 0.2) -> Tensor:
    r"""Graph attention (Veličković et al. 2018): each of H heads weights the neighbours and the node itself.

    .. math:: y^h_i = \sum_{j \in \mathcal{N}_i \cup \{i\}} \alpha^h_{ij} W^h x_j, \qquad
        \alpha^h_{ij} = \mathrm{softmax}_j\, \mathrm{LeakyReLU}(a^h \cdot W^h x_i + b^h \cdot W^h x_j)

    Edge weights play no part.

    Shapes:
        x: ``(..., N, F_in)``; weight: ``(H, F_in, F)``; to (a), of (b): ``(H, F)``; result: ``(..., N, H, F)``.
    """
    x = check_signal(x, graph)
    weight = check_taps("weight", weight, x)
    to, of = (check_shape(name, part, x, weight.shape[::2]) for name, part in (("to", to), ("of", of)))
    (out,) = graph.one_hop(x, attention_pass, weight, to, of, slope)
    return out.unflatten(-1, (weight.size(0), -1))


def attention_pass(
    x: Tensor, graph: Graph, weight: Tensor, to: Tensor, of: Tensor, slope: float
) -> tuple[Tensor]:  # fmt: skip
    """One hop of :func:`attention`, heads and features flat, over segments of edges."""
    return (attend(torch.einsum("...ng,hgf->...nhf", x, weight), graph, to, of, slope).flatten(-2),)


def attend(mapped: Tensor, graph: Graph, to: Tensor, of: Tensor, slope: float = 0.2) -> Tensor:
    """:func:`attention` of values ``(..., N, H, F)`` that the heads have mapped already; sums are taken in float32."""
    segments = Segments.of(graph.incoming, closed=True)
    heads = mapped.to(accumulation_dtype(mapped.dtype))
    score = segments.at_rows((heads * to).sum(-1)) + segments.at_cols((heads * of).sum(-1))
    score = torch.nn.functional.leaky_relu(score, slope)
    powers = (score - segments.at_rows(segments.extreme(score.detach(), "amax"))).exp()
    values = segments.at_cols(heads.flatten(-2)).unflatten(-1, heads.shape[-2:])
    total = segments.sum((powers.unsqueeze(-1) * values).flatten(-2)).unflatten(-1, heads.shape[-2:])
    return (total / segments.sum(powers).unsqueeze(-1)).to(mapped.dtype)


def edge_varying(x: Tensor, graph: Graph, own: Tensor, edge: Tensor) -> Tensor:
    r"""An edge-varying filter bank: every edge and node has coefficients of its own (Isufi, Gama, Ribeiro 2021).

    .. math:: y^f = \sum_g \sum_{k=0}^{K} z^{fg}_k, \qquad z^{fg}_0 = \Phi^{fg}_0 x^g, \qquad
        z^{fg}_k = \Phi^{fg}_k z^{fg}_{k-1}

    :math:`\Phi_0` is diagonal; the others have the pattern of the graph and the diagonal. A polynomial filter is the
    case :math:`\Phi_0 = h_0 I` and :math:`\Phi_k = (h_k / h_{k-1}) S`. Edge weights play no part. It takes K exchanges,
    each of F_in F_out features.

    Args:
        x: signal.
        graph: the graph whose nodes and edges the coefficients belong to, in the order of ``graph.incoming``.
        own: the diagonals of all K + 1 matrices.
        edge: the other entries of the K matrices behind the first.

    Shapes:
        x: ``(..., N, F_in)``; own: ``(K + 1, N, F_in, F_out)``; edge: ``(K, E, F_in, F_out)``; result: ``(..., N,
        F_out)``.
    """
    x = check_signal(x, graph)
    expected = (len(own) - 1, graph.incoming.col.numel(), *own.shape[2:])
    if own.dim() != 4 or own.shape[1:3] != x.shape[-2:] or tuple(edge.shape) != expected:
        raise ValueError(
            f"own and edge must have the shapes (K + 1, {x.size(-2)}, {x.size(-1)}, F_out) and "
            f"(K, {graph.incoming.col.numel()}, {x.size(-1)}, F_out), got {tuple(own.shape)} and {tuple(edge.shape)}"
        )
    own, edge = (check_companion(name, part, x).flatten(2) for name, part in (("own", own), ("edge", edge)))
    segments, out_features = Segments.of(graph.incoming, closed=False), expected[-1]
    z = x.to(accumulation_dtype(x.dtype)).repeat_interleave(out_features, dim=-1) * own[0]
    total = z
    for diagonal, entries in zip(own[1:], edge, strict=True):
        z = diagonal * z + segments.sum(entries * segments.at_cols(z))
        total = total + z
    return total.unflatten(-1, (x.size(-1), out_features)).sum(-2).to(x.dtype)


def check_taps(name: str, taps: Tensor, x: Tensor) -> Tensor:
    """Coefficients in the precision of a signal; raise if they do not fit its features."""
    if check_tensor(name, taps).dim() != 3 or taps.size(1) != x.size(-1) or taps.size(0) == 0:
        raise ValueError(f"{name} must have the shape (.., {x.size(-1)}, F_out), got {tuple(taps.shape)}")
    return check_companion(name, taps, x)


def check_shape(name: str, values: Tensor, x: Tensor, shape: Sequence[int]) -> Tensor:
    """Coefficients in the precision of a signal; raise if others than these would be broadcast."""
    if check_tensor(name, values).shape != torch.Size(shape):
        raise ValueError(f"{name} must have the shape {tuple(shape)}, got {tuple(values.shape)}")
    return check_companion(name, values, x)
