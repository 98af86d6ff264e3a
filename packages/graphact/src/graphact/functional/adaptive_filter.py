"""Graph-adaptive filter banks: an exchange between neighbours gives the shift and functions of the neighbourhood."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_companion, check_positive, check_tensor, did_you_mean
from graphact.functional.neighborhood import AnyOperation, check_operation, functions_pass
from graphact.graph.graph import check_signal
from graphact.graph.protocol import GraphLike
from graphact.spec.reductions import Operation

BankFunction = AnyOperation | tuple[AnyOperation, Mapping[str, float]]
"""A function of a neighbourhood, alone or with its parameters by name."""
BankFunctions = tuple[tuple[Operation, Mapping[str, float]], ...]


def adaptive_filter(
    x: Tensor,
    graph: GraphLike,
    taps: Tensor,
    function_taps: Tensor,
    ops: Sequence[BankFunction] = ("max",),
    *,
    closed: bool = False,
) -> Tensor:
    r"""Filter a signal and functions of its neighbourhoods, all formed from the same exchanges.

    .. math:: y = \sum_{k=0}^{K} S^k x H_k + \sum_{m=1}^{M} \sum_{k=0}^{K-1} f_m(S^k x, \mathcal{N}) G_{mk}

    This is the shifted localized graph filter, definition 2 of the paper, as a bank beside the linear one. When the
    neighbours send :math:`S^k x`, a node forms :math:`S^{k+1} x` and every :math:`f_m` of the same values, so that it
    takes K exchanges, as many as :func:`graph_filter` of order K.

    Args:
        x: signal.
        graph: the graph.
        taps: H, the coefficients of the linear part.
        function_taps: G, those of each function for the shifts 0..K - 1.
        ops: the M functions, as :func:`graph_adaptive` takes them, or pairs of one and its parameters by name.
        closed: count the node itself among its neighbours.

    Shapes:
        x: ``(..., N, F_in)``; taps: ``(K + 1, F_in, F_out)``; function_taps: ``(M, K, F_in, F_out)``; result: ``(...,
        N, F_out)``.

    Raises:
        ValueError: coefficients do not have these shapes, or an operation is unknown.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x, taps = torch.tensor([[1.0], [-2.0], [4.0]]), torch.tensor([1.0, 10.0]).view(2, 1, 1)
        >>> graphact.functional.adaptive_filter(x, path, taps, torch.full((1, 1, 1, 1), 100.0), ["max"]).squeeze()
        tensor([-219.,  448., -216.])
    """
    x, functions = check_signal(x, graph), check_functions(ops)
    taps = check_companion("taps", check_tensor("taps", taps), x)
    function_taps = check_companion("function_taps", check_tensor("function_taps", function_taps), x)
    if taps.dim() != 3 or taps.size(0) < 2 or taps.size(1) != x.size(-1):
        raise ValueError(
            f"taps must have the shape (K + 1, F_in, F_out) with K at least 1 and F_in = {x.size(-1)}, the features of "
            f"x, got {tuple(taps.shape)}"
        )
    expected = (len(functions), taps.size(0) - 1, *taps.shape[1:])
    if function_taps.shape != expected:
        raise ValueError(
            f"function_taps must have the shape (M, K, F_in, F_out) = {expected} for {len(functions)} ops and these "
            f"taps, got {tuple(function_taps.shape)}"
        )
    shifts, values = [x], []
    for _ in range(taps.size(0) - 1):
        *found, x = graph.one_hop(x, functions_pass, functions, closed, True)
        shifts.append(x)
        values.append(found)
    return torch.cat(columns_of(shifts, values), dim=-1) @ stack_taps(taps, function_taps)


def columns_of(shifts: list[Tensor], values: list[list[Tensor]]) -> list[Tensor]:
    """Return the columns of the matrix of a bank: shifts 0..K, then each function of the shifts 0..K - 1."""
    return [*shifts, *(value for shifted in zip(*values, strict=True) for value in shifted)]


def stack_taps(taps: Tensor, function_taps: Tensor) -> Tensor:
    """Return H and G as one matrix; a leading dimension of replicas, in both, stays."""
    return torch.cat([taps.flatten(-3, -2), function_taps.flatten(-4, -2)], dim=-2)


def check_functions(ops: Sequence[BankFunction]) -> BankFunctions:
    """Return the operations of a bank, each with its parameters; raise for unknown ones and for none."""
    if isinstance(ops, str) or not isinstance(ops, Sequence) or len(ops) == 0:
        raise ValueError(f"ops must list at least one operation, such as ['max'], got {ops!r}")
    functions: list[tuple[Operation, Mapping[str, float]]] = []
    for entry in ops:
        op: Any = entry
        given: Mapping[str, float] = {}
        if isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[1], Mapping):
            op, given = entry
        operation, parameters = check_operation(op, 0.1)
        for name in given:
            if name not in parameters:
                known = ", ".join(parameters) or "none"
                meant = did_you_mean(name, list(parameters))
                raise TypeError(f"{name} is not a parameter of {operation.name!r}, which has {known}{meant}")
        functions.append((operation, {n: check_positive(n, given.get(n, value)) for n, value in parameters.items()}))
    return tuple(functions)
