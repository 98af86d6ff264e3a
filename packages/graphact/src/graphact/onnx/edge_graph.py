"""A graph as a list of edges, whose passes use only gather, scatter and sort."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from graphact.functional.neighborhood import (
    Parameters,
    evaluate_function,
    functions_pass,
    gaussian,
    neighborhood_pass,
    shift_pass,
)
from graphact.graph import Neighborhoods
from graphact.graph.graph import check_values
from graphact.graph.protocol import Pass
from graphact.kernels.reference import own_term
from graphact.spec import UnsupportedModelError
from graphact.spec.reductions import MEAN, STD, Operation


class EdgeGraph:
    """A graph as its edges, evaluated edge by edge; answers :class:`~graphact.graph.protocol.GraphLike`.

    One edge that leads to no node is added, so that there is always one; loops lead to no node where neighbours are
    meant.

    Args:
        edge_index: ``(2, E)``, sources and targets, loops among them.
        edge_weight: ``(E,)``.
        num_nodes: the number N of nodes.
        edges_of: gives the edges of several hops, where they are known.
        lists_of: gives their neighbour lists, for users' functions.
    """

    whole = None
    holds_every_node = True

    def __init__(
        self, edge_index: Tensor, edge_weight: Tensor, num_nodes: int,
        edges_of: Callable[[int, bool], Tensor] | None = None,
        lists_of: Callable[[int, bool], Neighborhoods] | None = None,
    ) -> None:  # fmt: skip
        self.edge_index, self.edge_weight, self.num_nodes = edge_index, edge_weight, num_nodes
        self.edges_of, self.lists_of = edges_of, lists_of
        self.device, self.dtype = edge_weight.device, edge_weight.dtype

    def check_signal(self, x: Any) -> Tensor:
        return check_values(x, self)

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """PyG's ``(edge_index, edge_weight)``, for convolutions that take these."""
        return self.edge_index, self.edge_weight

    def one_hop(self, x: Tensor, pass_: Pass, *arguments: Any) -> tuple[Tensor, ...]:
        """See :meth:`GraphLike.one_hop <graphact.graph.protocol.GraphLike.one_hop>`."""
        if pass_ is shift_pass:
            return (self.shift(x),)
        if pass_ is neighborhood_pass:
            return (Walks(self, 1).evaluate(x, *arguments),)
        if pass_ is not functions_pass:
            raise UnsupportedModelError("", f"{pass_.__name__} over neighbours is not written for ONNX")
        functions, closed, shifting = arguments
        values = tuple(Walks(self, 1).evaluate(x, op, parameters, closed) for op, parameters in functions)
        return *values, self.shift(x) if shifting else x

    def k_hop(
        self, x: Tensor, hops: int, closed: bool, term: Callable[[Tensor, Any], Tensor], _: Any = None
    ) -> Sequence[Tensor]:
        """See :meth:`GraphLike.k_hop <graphact.graph.protocol.GraphLike.k_hop>`."""
        return [term(x, Walks(self, k, closed)) for k in range(1, hops + 1)]

    def shift(self, x: Tensor) -> Tensor:
        """Return ``S x``; as in a :class:`~graphact.Graph`, the own value of a node without a loop is ignored."""
        source, target = self.edge_index
        is_loop = source == target
        weight = torch.cat([self.edge_weight, self.edge_weight.new_zeros(1)]).to(x.dtype).unsqueeze(-1)
        source, receiver = self.neighbors(closed=False)
        shifted = scattered(weight * x.index_select(-2, source), receiver, self.num_nodes, "sum")
        loop_weight = torch.where(is_loop, self.edge_weight, 0.0).to(x.dtype).unsqueeze(-1)
        diagonal = scattered(loop_weight, target, self.num_nodes, "sum")
        return shifted + own_term(diagonal, x)

    def neighbors(self, closed: bool) -> tuple[Tensor, Tensor]:
        """Return sources and targets of the edges between a node and its neighbours."""
        source, target = self.edge_index
        target = torch.where(source == target, self.num_nodes, target)
        if closed:
            nodes = torch.arange(self.num_nodes, device=self.device)
            source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        return with_dummy_edge(source, target, self.num_nodes)


class Walks:
    """The k-hop neighbours of all nodes, which evaluate an operation over themselves."""

    def __init__(self, graph: EdgeGraph, hops: int, closed: bool = False) -> None:
        self.graph, self.hops, self.closed = graph, hops, closed

    def evaluate(self, x: Tensor, op: Operation, parameters: Parameters, closed: bool = False) -> Tensor:
        """See :func:`graphact.functional.neighborhood.evaluate`."""
        graph = self.graph
        if self.hops == 1 and op in (MEAN, STD):
            return moments(x, *graph.neighbors(self.closed or closed), graph.num_nodes)[op is STD]
        if not op.is_built_in:
            if graph.lists_of is None:
                raise UnsupportedModelError("", f'the function {op.name!r} of neighbours needs edges="constant"')
            return evaluate_function(x, graph.lists_of(self.hops, self.closed), op, parameters, closed)
        steps = 1
        if self.hops == 1:
            edges = graph.neighbors(self.closed or (closed and op.name != "kernel"))
        elif graph.edges_of is not None:
            source, target = graph.edges_of(self.hops, self.closed)
            edges = with_dummy_edge(source, target, graph.num_nodes)
        elif op.name in ("max", "min"):
            edges, steps = graph.neighbors(self.closed), self.hops
        else:
            raise UnsupportedModelError("", f'a localized {op.name} over {self.hops} hops needs edges="constant"')
        if op.name == "kernel":
            source, target = edges
            own = torch.cat([x, x[..., :1, :]], dim=-2)  # the node that does not exist has a value, too
            squares = (own.index_select(-2, target) - x.index_select(-2, source)).square()
            return gaussian(scattered(squares, target, graph.num_nodes, "sum"), parameters["gamma"], x)
        if op.name == "median":
            return median(x, *edges, graph.num_nodes)
        sign = 1 if op.name == "max" else -1
        return sign * largest(sign * x, *edges, graph.num_nodes, steps)


def with_dummy_edge(source: Tensor, target: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return sources and targets with one more edge, to a node that does not exist."""
    return torch.cat([source, source.new_zeros(1)]), torch.cat([target, target.new_full((1,), num_nodes)])


def scattered(values: Tensor, target: Tensor, num_nodes: int, reduce: str) -> Tensor:
    """Reduce values ``(..., E, F)`` of edges at their targets ``0..N``; drop N.

    Over no values, the sum is 0 and the maximum minus infinity.
    """
    start = 0 if reduce == "sum" else float("-inf")
    shape = (*values.shape[:-2], num_nodes + 1, values.size(-1))
    total = torch.full(shape, start, dtype=values.dtype, device=values.device)
    index = target.unsqueeze(-1).expand(values.shape)
    return total.scatter_reduce(-2, index, values, reduce)[..., :num_nodes, :]


def degrees(target: Tensor, num_nodes: int) -> Tensor:
    """Return the in-degrees, ``(N, 1)``."""
    return scattered(torch.ones_like(target).unsqueeze(-1), target, num_nodes, "sum")


def has_nan(values: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Return where a neighbour is NaN, which runtimes compare differently."""
    return scattered(values.isnan().to(values.dtype), target, num_nodes, "sum") > 0


def largest(x: Tensor, source: Tensor, target: Tensor, num_nodes: int, steps: int) -> Tensor:
    """Return maxima over neighbours, repeated for walks of several steps; 0 where there is no walk."""
    found = torch.ones_like(x[..., :1])  # whether there is a value at a node
    for _ in range(steps):
        values = x.index_select(-2, source)
        is_nan = has_nan(values, target, num_nodes)
        x = scattered(torch.where(values.isnan(), 0.0, values), target, num_nodes, "amax")
        x = torch.where(is_nan, torch.nan, x)
        found = scattered(found.index_select(-2, source), target, num_nodes, "sum").clamp(max=1)
    return torch.where(found > 0, x, 0.0)


def median(x: Tensor, source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Return lower medians: edges are sorted by value, then by target, so that the values of a node are adjacent."""
    values = x.index_select(-2, source)
    is_nan = has_nan(values, target, num_nodes)
    count = target.numel()
    values, order = ascending(torch.where(values.isnan(), 0.0, values), count)
    places = torch.arange(count, device=x.device).unsqueeze(-1)
    keys = target[order] * count + places  # no two are equal, so that sorting them keeps the order of values
    values = values.gather(-2, ascending(keys, count)[1])
    degree = degrees(target, num_nodes)
    middle = degree.cumsum(0) - degree + (degree - 1).clamp(min=0) // 2
    middle = middle.clamp(max=count - 1).expand(x.shape)
    out = torch.where(degree > 0, values.gather(-2, middle), 0.0)
    return torch.where(is_nan, torch.nan, out)


def moments(x: Tensor, source: Tensor, target: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Return means and standard deviations, of differences to one of the values; 0 where there are none."""
    values, degree = x.index_select(-2, source), degrees(target, num_nodes).clamp(min=1)

    def at_target(y: Tensor) -> Tensor:
        return torch.cat([y, y[..., :1, :]], dim=-2).index_select(-2, target)  # the node that does not exist, too

    mean = scattered(values, target, num_nodes, "sum") / degree
    apart = values - at_target(largest(x, source, target, num_nodes, 1))
    apart = apart - at_target(scattered(apart, target, num_nodes, "sum") / degree)
    return mean, (scattered(apart.square(), target, num_nodes, "sum") / degree).sqrt()


def ascending(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sort over edges with TopK, the operator that ONNX has for it."""
    return torch.topk(values, count, dim=-2, largest=False, sorted=True)
