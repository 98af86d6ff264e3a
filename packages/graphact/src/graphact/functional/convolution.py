"""Edge-varying filters: every edge has coefficients of its own."""

from torch import Tensor

from graphact._checks import check_companion
from graphact.functional.segments import Segments
from graphact.graph import Graph
from graphact.graph.graph import check_signal
from graphact.kernels.reference import accumulation_dtype


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
        edge: the off-diagonal entries of the last K matrices.

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
