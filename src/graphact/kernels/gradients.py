"""Differentiable passes over the neighbours.

Gradients are attached twice, from the same formulas: to the operators, the form that `torch.compile` traces, and as
`torch.autograd.Function` around them, the form that `torch.func.grad` and `vmap` of it can look into.
"""

import torch
from torch import Tensor

from graphact.graph import Graph, Neighborhoods
from graphact.kernels._gradient_hop import Hop
from graphact.kernels._gradient_select import Select
from graphact.kernels._gradient_shift import Shift
from graphact.kernels._gradient_spread import Spread
from graphact.kernels.reference import Lists

MOST_NODES = 2**31 - 1


def shift(x: Tensor, graph: Graph) -> Tensor:
    """The off-diagonal part of ``S x``."""
    run = torch.ops.graphact.shift if torch.compiler.is_compiling() else Shift.apply
    incoming, outgoing = list(Lists.of(graph.incoming)), list(Lists.of(graph.outgoing))
    return run(x, graph.weight, graph.outgoing_weight, incoming, outgoing)


def select(
    x: Tensor, labels: Tensor | None, neighborhoods: Neighborhoods, op: str, closed: bool
) -> tuple[Tensor, Tensor]:
    """See :func:`graphact.kernels.reference.select`."""
    run = torch.ops.graphact.select if torch.compiler.is_compiling() else Select.apply
    return run(x, labels, list(Lists.of(neighborhoods)), op, closed)


def spread(x: Tensor, incoming: Neighborhoods, outgoing: Neighborhoods) -> Tensor:
    """See :func:`graphact.kernels.reference.spread`."""
    run = torch.ops.graphact.spread if torch.compiler.is_compiling() else Spread.apply
    return run(x, list(Lists.of(incoming)), list(Lists.of(outgoing)))


def hop(x: Tensor, graph: Graph, op: str, closed: bool, shifting: bool) -> tuple[Tensor, Tensor]:
    """Values and shift of :func:`graphact.kernels.reference.hop`; edge weights get no gradient from it."""
    run = torch.ops.graphact.hop if torch.compiler.is_compiling() else Hop.apply
    incoming, outgoing = list(Lists.of(graph.incoming)), list(Lists.of(graph.outgoing))
    weights = graph.weight.detach(), graph.outgoing_weight.detach()
    # compiled code must not depend on a number that differs from graph to graph
    longest = MOST_NODES if torch.compiler.is_compiling() else graph.incoming.groups[-1][0]
    values, _, shifted = run(x, *weights, graph.places, incoming, outgoing, op, closed, shifting, longest)
    return values, shifted
