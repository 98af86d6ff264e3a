"""Activations of many models side by side, at all nodes or only where it counts. Shapes as in ``stacked.py``."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphact.functional.neighborhood import evaluate_kernel
from graphact.graph import Graph
from graphact.kernels import autograd
from graphact.training.stacked import StackedGraphs
from graphact.training.stacked_signal import StackedSignal
from graphact.training.stars import Stars


def stacked_activation(
    signal: StackedSignal,
    where: "Everywhere | AtOneNode",
    op: str,
    shifted: bool,
    beta: Tensor,
    weights: Tensor,
    gamma: Tensor | None,
    closed: bool,
) -> Tensor:
    """Localized (one hop) or graph-adaptive activation of each replica.

    Args:
        signal: what the activation is applied to.
        where: the nodes whose values are wanted.
        op: "max", "min", "median" or "kernel".
        shifted: graph-adaptive (the signal is shifted before each hop) rather than localized.
        beta: ``(R,)``.
        weights: ``(R, K)`` or ``(R, K, F)``.
        gamma: widths of the kernel, ``(R,)``; None for other functions.
        closed: count nodes among their neighbours.
    """
    hops = range(1, weights.size(1) + 1) if shifted else [0]
    own, values = where.hops(signal, hops, op, closed, gamma)
    return autograd.mix(own, values, beta, weights)


class Everywhere:
    """All nodes of all replicas."""

    def __init__(self, graphs: StackedGraphs) -> None:
        self.graphs = graphs

    def own(self, signal: StackedSignal) -> Tensor:
        """The values of the nodes themselves, ``(R, N, B, F)``."""
        return signal.everywhere(0)

    def hops(
        self, signal: StackedSignal, hops: Sequence[int], op: str, closed: bool, gamma: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The values of the nodes themselves, and the function over their neighbourhoods after so many shifts."""
        values = []
        for hop in hops:
            z = signal.everywhere(hop)
            rows = (z if gamma is None else z / gamma.view(-1, 1, 1, 1)).flatten(0, 1).flatten(1)
            values.append(evaluate(rows, self.graphs.union, op, closed).view(z.shape))
        return self.own(signal), values


class AtOneNode:
    """One node of each replica."""

    def __init__(self, graphs: StackedGraphs, nodes: Tensor) -> None:
        self.stars = Stars(graphs, nodes)

    def own(self, signal: StackedSignal) -> Tensor:
        """The values of the nodes themselves, ``(R, 1, B, F)``."""
        return signal.around(self.stars, [])

    def hops(
        self, signal: StackedSignal, hops: Sequence[int], op: str, closed: bool, gamma: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """The value of the node itself, and the function over its neighbourhood after so many shifts."""
        own, around = _LastRow.apply(signal.around(self.stars, hops))
        values = around if gamma is None else around / gamma.view(-1, 1, 1, 1)
        stars, centers = self.stars.union(len(hops))
        chosen = evaluate(values.flatten(0, 1).flatten(1), stars, op, closed).index_select(0, centers)
        return own, [term.unsqueeze(1) for term in chosen.view(len(around), len(hops), *around.shape[2:]).unbind(1)]


class _LastRow(torch.autograd.Function):
    """The last row of each replica beside all of them, of which the rest of the work leaves the last alone.

    Autograd would make two gradients as large as the signal and add them; here that of the row is added in place to
    the other, which nobody else holds.
    """

    @staticmethod
    def forward(ctx: Any, signal: Tensor) -> tuple[Tensor, Tensor]:
        return signal[:, -1:].clone(), signal.view_as(signal)

    @staticmethod
    def backward(ctx: Any, grad_row: Tensor, grad_all: Tensor) -> Tensor:
        grad_all[:, -1:] += grad_row
        return grad_all


def evaluate(rows: Tensor, graph: Graph, op: str, closed: bool) -> Tensor:
    """A neighbourhood function by name; the kernel has the width 1."""
    if op == "kernel":
        return evaluate_kernel(rows, graph.incoming, graph.outgoing, 1.0)
    return autograd.fused_neighbor_pass(rows, graph, op, closed, shifting=False)[0]
