"""One look at the neighbours: a function of their values and, from the same pass, the next shift."""

from torch import Tensor

from graphact._checks import HALF_PRECISION
from graphact.functional.neighborhood import Operation, gaussian, neighborhood
from graphact.functional.shift import shift
from graphact.graph.graph import Graph
from graphact.kernels import autograd


def hop(
    x: Tensor, graph: Graph, op: Operation, gamma: float | Tensor, closed: bool, shifting: bool
) -> tuple[Tensor, ...]:
    """``(f(x),)`` or ``(f(x), S x)``.

    One pass gives both, except where they are better apart: for a user's own function, where edge weights are trained,
    and where a diagonal joins a shift in half precision, which then takes place in float32.
    """
    halved = graph.diagonal is not None and x.dtype in HALF_PRECISION
    if callable(op) or graph.weight.requires_grad or (shifting and halved):
        value = neighborhood(x, graph, op, gamma=gamma, closed=closed)
        return (value, shift(x, graph)) if shifting else (value,)
    value, shifted = autograd.fused_neighbor_pass(x, graph, op, closed, shifting)
    if op == "kernel":
        value = gaussian(value, gamma, x)
    if not shifting:
        return (value,)
    return value, shifted if graph.diagonal is None else shifted + graph.diagonal.unsqueeze(-1) * x
