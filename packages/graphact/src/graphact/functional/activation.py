"""Activations that mix a pointwise term with a function of the neighbours 1..K hops away."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_companion, check_tensor
from graphact.functional.neighborhood import (
    AnyOperation,
    Functions,
    Parameters,
    check_gamma,
    check_operation,
    evaluate,
    functions_pass,
    shift_pass,
)
from graphact.graph import Graph
from graphact.graph.graph import check_signal
from graphact.graph.protocol import GraphLike
from graphact.kernels import activation_op, activation_plan, autograd
from graphact.kernels.dispatch import is_inlined
from graphact.spec.kinds import Reads
from graphact.spec.reductions import KERNEL, MAX, MEDIAN, MIN, Operation


def graph_adaptive(
    x: Tensor,
    graph: GraphLike,
    beta: Tensor | float,
    weights: Tensor,
    op: AnyOperation = "max",
    *,
    gamma: float | Tensor = 0.1,
    parameters: Parameters | None = None,
    closed: bool = False,
    unshifted: bool = False,
) -> Tensor:
    r"""Graph-adaptive activation, definitions 3 and 6 of the paper.

    The signal is shifted k = 1..K times, a nonlinear function is taken over each node's neighbours, and the results
    are mixed:

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{[S^k x]_j : j \in \mathcal{N}_i\})

    Every term needs values of direct neighbours only. With ``unshifted`` the sum begins at k = 0: the first exchange,
    from which a node forms its shift, also gives a function of the neighbours' own values.

    Args:
        x: signal.
        graph: the graph.
        beta: weight of the pointwise term.
        weights: the weights h of the K hops, shared by all features or one for each.
        op: ``"max"``, ``"min"``, ``"median"``, ``"kernel"`` (see :func:`neighborhood_max` and its kin), or a function
            as :func:`neighborhood_apply` takes it.
        gamma: width of the Gaussian, for ``op="kernel"``.
        parameters: the parameters of an :class:`~graphact.spec.reductions.Operation`, by name; its initial ones if
            left out.
        closed: count the node itself among its neighbours.
        unshifted: add the term k = 0; the weights then have K + 1 rows.

    Shapes:
        x: ``(..., N, F)``; weights: ``(K,)`` or ``(K, F)``; result: ``(..., N, F)``.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, shape, dtype or device, or op is unknown.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0]])
        >>> graphact.functional.graph_adaptive(x, path, beta=1.0, weights=torch.tensor([0.5]), op="max").squeeze()
        tensor([ 3.5000, -1.0000,  6.5000])
    """
    x = check_signal(x, graph)
    beta, weights = check_coefficients(beta, weights, x)
    operation, parameters = check_operation(op, gamma, parameters)
    reads: Reads = "unshifted" if unshifted else "shifted"
    return evaluate_whole(x, graph, beta, weights, operation, parameters, closed, reads)


def localized(
    x: Tensor,
    graph: GraphLike,
    beta: Tensor | float,
    weights: Tensor,
    op: AnyOperation = "max",
    *,
    gamma: float | Tensor = 0.1,
    parameters: Parameters | None = None,
    closed: bool = False,
) -> Tensor:
    r"""Localized activation of Ruiz et al., equation (6) of the paper.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i) + \sum_{k=1}^{K} h_k\, f(\{x_j : j \in \mathcal{N}_i^k\})

    The k-hop neighbours :math:`\mathcal{N}_i^k` are the pattern of the k-th power of the adjacency: the nodes that
    walks of exactly k edges lead to (for k = 2 usually the node itself, too). Edge weights are ignored, and beyond
    one hop a node needs values of nodes that are not its neighbours.

    Args:
        x, graph, beta, weights, op, gamma, parameters: as for :func:`graph_adaptive`.
        closed: let walks stay at a node, so that the k-hop neighbours are all nodes within k hops.

    Shapes:
        x: ``(..., N, F)``; weights: ``(K,)`` or ``(K, F)``; result: ``(..., N, F)``.

    Raises:
        TypeError, ValueError: an argument is of the wrong type, shape, dtype or device, or op is unknown.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.tensor([[1.0], [-2.0], [4.0]])
        >>> graphact.functional.localized(x, path, beta=1.0, weights=torch.tensor([1.0, 10.0]), op="max").squeeze()
        tensor([ 39., -16.,  42.])
    """
    x = check_signal(x, graph)
    beta, weights = check_coefficients(beta, weights, x)
    operation, parameters = check_operation(op, gamma, parameters)
    return evaluate_whole(x, graph, beta, weights, operation, parameters, closed, "hops")


def graph_adaptive_mixture(
    x: Tensor,
    graph: GraphLike,
    beta: Tensor | float,
    weights: Tensor,
    ops: Sequence[AnyOperation] = ("max", "median", "min", "mean"),
    *,
    closed: bool = False,
    unshifted: bool = False,
) -> Tensor:
    r"""Several functions of each neighbourhood at once, mixed for every hop.

    .. math:: [\sigma(x)]_i = \beta\,\mathrm{ReLU}(x_i)
        + \sum_{m=1}^{M} \sum_{k=1}^{K} h_{mk}\, f_m(\{[S^k x]_j : j \in \mathcal{N}_i\})

    The functions share the K + 1 exchanges of one.

    Args:
        x: signal.
        graph: the graph.
        beta: weight of the pointwise term.
        weights: the weights h of the M functions and K hops, shared by all features or one for each.
        ops: the functions, as :func:`graph_adaptive` takes them, each with the parameters that it starts from.
        closed: count the node itself among its neighbours.
        unshifted: add the terms k = 0; the weights then have K + 1 columns.

    Shapes:
        x: ``(..., N, F)``; weights: ``(M, K)`` or ``(M, K, F)``; result: ``(..., N, F)``.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x, weights = torch.tensor([[1.0], [-2.0], [4.0]]), torch.tensor([[1.0], [10.0]])
        >>> graphact.functional.graph_adaptive_mixture(x, path, 1.0, weights, ["max", "min"]).squeeze()
        tensor([ 56., -22.,  59.])
    """
    x = check_signal(x, graph)
    if isinstance(ops, str) or not isinstance(ops, Sequence):
        raise TypeError(f"ops must list operations, such as ['max', 'min'], got {ops!r:.60}")
    fits = isinstance(weights, Tensor) and weights.dim() in (2, 3) and len(weights) == len(ops) > 0
    if not fits:
        shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise ValueError(f"weights must have the shape (M, K) or (M, K, F) for M = {len(ops)} ops, got {shape}")
    beta, flat = check_coefficients(beta, weights.flatten(0, 1), x)
    functions = tuple(check_operation(op, 0.1) for op in ops)
    return mix_hops(x, graph, beta, flat, functions, closed, unshifted)


def mix_hops(
    x: Tensor, graph: GraphLike, beta: Tensor, weights: Tensor, functions: Functions, closed: bool, unshifted: bool
) -> Tensor:
    """Mix M functions of several shifts pass by pass, on any graph.

    The weights are ``(M * shifts, ...)``; arguments are checked.
    """
    count, terms = len(weights) // len(functions), []
    signal = x if unshifted else graph.one_hop(x, shift_pass)[0]
    for number in range(1, count + 1):  # one pass over the neighbours of a signal also gives its shift
        *values, signal = graph.one_hop(signal, functions_pass, functions, closed, number < count)
        terms.append(values)
    return autograd.mix(x, [values[m] for m in range(len(functions)) for values in terms], beta, weights)


def compose(
    x: Tensor, graph: GraphLike, beta: Tensor, weights: Tensor, op: Operation, parameters: Parameters, closed: bool,
    reads: Reads,
) -> Tensor:  # fmt: skip
    """Evaluate an activation pass by pass, on any graph; arguments are checked."""
    if reads != "hops":
        return mix_hops(x, graph, beta, weights, ((op, parameters),), closed, reads == "unshifted")
    term = partial(evaluate, op=op, parameters=parameters)
    walk = partial(iterated_extremes, op=op.name) if op in (MAX, MIN) else None
    return autograd.mix(x, graph.k_hop(x, len(weights), closed, term, walk), beta, weights)


def evaluate_whole(
    x: Tensor, graph: GraphLike, beta: Tensor, weights: Tensor, op: Operation, parameters: Parameters, closed: bool,
    reads: Reads,
) -> Tensor:  # fmt: skip
    """Evaluate an activation by the first of these that applies.

    1. Passes whose kernels Inductor inlines: compiled code on a GPU.
    2. One opaque operator: other compiled code.
    3. One function of autograd with a cached plan: eager code.
    4. Pass by pass: everything else.

    The first three are for maximum, minimum, median and Gaussian kernel over one-hop neighbours of a graph that this
    process holds as a whole; the first is not for medians.
    """
    count, plan = weights.size(0), None
    if graph.whole is not None and op.is_built_in and (reads != "hops" or count == 1):
        if op is not MEDIAN and is_inlined(x, graph.whole):
            return mix_hops(x, graph, beta, weights, ((op, parameters),), closed, reads != "shifted")
        if torch.compiler.is_compiling() and activation_op.is_compiled_whole(x, graph.whole, op.name):
            width = check_gamma(parameters["gamma"], x) if op is KERNEL else None
            options = (op.name, closed, reads == "shifted")
            return activation_op.compiled_activation(x, graph.whole, beta, weights, width, *options)
        plan = activation_plan.select_plan(x, graph.whole, op.name, count, closed, reads == "shifted")
    if plan is None:
        return compose(x, graph, beta, weights, op, parameters, closed, reads)

    def composed(x: Tensor, beta: Tensor, weights: Tensor, gamma: float | Tensor | None) -> Tensor:
        return compose(x, graph, beta, weights, op, {} if gamma is None else {"gamma": gamma}, closed, reads)

    gamma = check_gamma(parameters["gamma"], x) if op is KERNEL else None
    return activation_plan.hop_mixture(x, plan, beta, weights, gamma, composed)


def iterated_extremes(x: Tensor, graph: Graph, hops: int, closed: bool, op: str) -> list[Tensor]:
    """Return the maxima (minima) over 1..hops hops by repeated one-hop maxima.

    The selected node is passed on, so that ties go to the lowest index, and a neighbour without neighbours is left out
    rather than counted as zero.
    """
    selected, terms = None, []
    for _ in range(hops):
        values, selected = autograd.select(x, selected, graph.incoming, op, closed)
        terms.append(values)
    return terms


def check_coefficients(beta: Any, weights: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return beta as a scalar and weights as ``(K,)`` or ``(K, F)``, both in the precision of ``x``."""
    if isinstance(beta, Tensor):
        if beta.numel() != 1:
            raise ValueError(f"beta must be a scalar, got the shape {tuple(beta.shape)}")
        if beta.dim() > 0:
            beta = beta.reshape(())
        if beta.dtype != x.dtype or beta.device != x.device:
            beta = check_companion("beta", beta, x)
    elif isinstance(beta, bool) or not isinstance(beta, (int, float)):
        raise TypeError(f"beta must be a number or a scalar tensor, got {type(beta).__name__}")
    else:
        beta = torch.tensor(beta, dtype=x.dtype, device=x.device)
    if not isinstance(weights, Tensor) or weights.dtype != x.dtype or weights.device != x.device:
        weights = check_companion("weights", check_tensor("weights", weights), x)
    fits = weights.dim() == 1 or (weights.dim() == 2 and weights.size(1) == x.size(-1))
    if not fits or weights.size(0) == 0:
        raise ValueError(
            f"weights must have the shape (K,) or (K, F) with K at least 1 and F = {x.size(-1)}, "
            f"the features of x, got {tuple(weights.shape)}"
        )
    return beta, weights
