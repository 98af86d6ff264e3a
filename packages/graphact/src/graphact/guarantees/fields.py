"""A classifier at a given signal: what each layer reads, how far that can move, and the field of a single node."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from graphact._checks import check_choice
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal
from graphact.guarantees.description import (
    Block,
    Blocks,
    FilterOn,
    Hop,
    HopMixtureOn,
    branches_of,
    graph_of,
    read_signals,
)
from graphact.guarantees.lipschitz import norms_within
from graphact.guarantees.magnitudes import count_nonlinear, error_of_differences, magnitude_behind, shift_by
from graphact.guarantees.models import evaluate, read_model
from graphact.guarantees.powers import MAX_NORM_WORK, limit_work, matrix_of
from graphact.guarantees.zonotope import Zonotope, with_errors
from graphact.spec import Filter, HopMixture, Linear, Sum

NEGLIGIBLE = 0.003  # of a norm: rows that make up less together are bounded by their magnitudes
IN_CACHE = 1 << 19  # numbers
Moving = Literal["all", "node"]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Step:
    """A layer at a given signal: what it reads there, and how far that moves when the input does by 1."""

    layer: Block
    value: Tensor  # (N, F)
    reach: Tensor | None  # (N, F), or (N, 1) for all features alike; None until it is known which inputs move
    graph: Graph  # the whole one that the layer acts on
    front: "Front | None" = None  # where everything in front of it is linear
    branches: tuple[tuple["Step", ...], ...] = ()


@dataclass(frozen=True, eq=False)
class Front:
    """Linear layers from the input on that factorize: a matrix over nodes, and the norms of columns of weights."""

    matrix: Any  # (N, N), sparse
    weight: Tensor | None  # (F_in, F); None for the identity

    def behind(self, layer: Block, graph: Graph) -> "Front | None":
        match layer:
            case Linear():
                return Front(self.matrix, self.times(layer.weight.T))
            case Filter():
                used = [number for number, tap in enumerate(layer.taps) if tap.any()]
                if len(used) > 1:
                    return None
                matrix = self.matrix
                for _ in range(used[0] if used else 0):
                    matrix = matrix_of(graph_of(layer, graph)) @ matrix
                return Front(matrix, self.times(layer.taps[used[0] if used else 0]))
        return None

    def times(self, weight: Tensor) -> Tensor:
        return weight if self.weight is None else self.weight @ weight

    def column_norms(self, features: int) -> Tensor:
        return torch.ones(features, dtype=torch.float64) if self.weight is None else self.weight.abs().sum(0)


class Network:
    """A classifier at a given signal, on the whole graph."""

    def __init__(self, model: nn.Module, graph: Graph, x: Tensor, moving: Moving) -> None:
        self.moving = check_choice("moving", moving, ("all", "node"))
        shape = check_signal(x, check_graph("graph", graph)).shape
        if len(shape) != 2:
            raise ValueError(f"x must be one signal of the shape (N, F), got {tuple(shape)}")
        layers, features = read_model(model, graph, x.size(-1))
        self.layers: Blocks = layers or (Linear(torch.eye(features, dtype=torch.float64)),)
        self.graph = graph.to("cpu", torch.float64)
        x = read_signals(x)[0]
        reach = torch.ones(len(x), 1, dtype=torch.float64) if moving == "all" else None
        unit = Front(scipy.sparse.eye_array(len(x), format="csr"), None)
        self.steps, self.outputs = self.walk(self.layers, x, reach, unit)
        # Lines around the values of a layer are off by no more than those are on their way to the outputs, on both
        # sides and for both signals; the outputs are off as well.
        self.sides = 4 * (count_nonlinear(self.layers) + 1)
        self.lost = self.sides * with_errors(Zonotope.point(x[None]), self.layers, self.graph)[1][0]
        self.lost_for_each = error_of_differences(self.layers, torch.ones_like(x), self.graph)
        if self.outputs.size(-1) < 2:
            raise ValueError("model must have at least two outputs a node, of which the largest is its class, got 1")
        self.patterns: dict[int, Any] = {}
        self.reads: dict[tuple[int, int, int], Any] = {}
        self.distances: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    def check_nodes(self, nodes: Tensor | Sequence[int] | None) -> Tensor:
        chosen = torch.arange(self.graph.num_nodes) if nodes is None else torch.as_tensor(nodes).cpu()
        if chosen.dim() != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.numel() == 0:
            raise ValueError(f"nodes must be a list of numbers of nodes, got {nodes!r}")
        if chosen.min() < 0 or chosen.max() >= self.graph.num_nodes:
            raise ValueError(f"nodes must be from 0 to {self.graph.num_nodes - 1}, got {chosen.tolist()}")
        return chosen

    def walk(
        self, layers: Blocks, value: Tensor, reach: Tensor | None, front: Front | None
    ) -> tuple[tuple[Step, ...], Tensor]:
        """The steps through layers, and what is behind them."""
        steps = []
        for layer in layers:
            branches = (
                [self.walk(b, value, reach, front)[0] for b in branches_of(layer)] if isinstance(layer, Sum) else []
            )
            steps.append(Step(layer, value, reach, graph_of(layer, self.graph), front, tuple(branches)))
            value = evaluate((layer,), value, self.graph)
            reach = None if reach is None else reach_behind(layer, reach, self.graph, value.size(-1))
            front = None if front is None else front.behind(layer, self.graph)
        return tuple(steps), value

    def pattern(self, graph: Graph) -> Any:
        """The matrix of a graph, made once."""
        if id(graph) not in self.patterns:
            self.patterns[id(graph)] = matrix_of(graph)
        return self.patterns[id(graph)]

    def field(self, layers: Blocks, nodes: Array) -> Array:
        """The nodes whose inputs the outputs of some nodes depend on, in order."""
        for layer in reversed(layers):
            if isinstance(layer, Sum):
                nodes = np.unique(np.concatenate([self.field(branch, nodes) for branch in branches_of(layer)]))
                continue
            hops = layer.exchanges if isinstance(layer, Filter | HopMixture) else 0
            matrix = self.pattern(graph_of(layer, self.graph))
            for _ in range(hops):
                nodes = np.union1d(nodes, matrix[nodes].indices)
        return nodes

    def around(self, node: int) -> "Neighborhood":
        """The same network on the part of the graph that a node depends on."""
        nodes = self.field(self.layers, np.array([node]))
        index, graphs, matrices = torch.from_numpy(nodes), dict[int, Graph](), dict[int, Any]()

        def part(graph: Graph) -> Graph:
            if id(graph) not in graphs:
                matrix = self.pattern(graph)[nodes][:, nodes]
                graphs[id(graph)] = own = Graph.from_scipy(matrix).to(torch.float64)
                matrices[id(own)] = matrix
            return graphs[id(graph)]

        def restrict(layer: Block) -> Block:
            match layer:
                case FilterOn() | HopMixtureOn():
                    return replace(layer, graph=part(graph_of(layer, self.graph)))
                case Sum():
                    return Sum(tuple(tuple(map(restrict, branch)) for branch in branches_of(layer)))
            return layer

        def local(step: Step) -> Step:
            branches = tuple(tuple(map(local, branch)) for branch in step.branches)
            reach = None if step.reach is None else step.reach[index]
            return replace(step, layer=restrict(step.layer), value=step.value[index], reach=reach, branches=branches)

        centre = int(np.searchsorted(nodes, node))
        return Neighborhood(self, nodes, centre, part(self.graph), tuple(map(local, self.steps)), matrices)

    def apart(self, step: Step, hop: Hop, nodes: Array, near: Array) -> Iterator[Tensor]:
        """For each node the 1-norms of differences between rows of what it reads, ``(d, d)``; of the whole graph."""
        assert step.front is not None
        assert isinstance(step.layer, HopMixture)
        for node, row in zip(nodes, near, strict=True):
            key = (id(self.rows(step, hop)), hop.number, int(node))
            ids = torch.from_numpy(row)
            if key not in self.distances or not torch.equal(self.distances[key][0], ids):
                rows = self.rows(step, hop)[row].toarray()
                rows = torch.from_numpy(rows[:, np.flatnonzero(rows.any(0))])
                self.distances[key] = ids, torch.cdist(rows, rows, p=1)
            yield self.distances[key][1]

    def rows(self, step: Step, hop: Hop) -> Any:
        """What a hop reads, as a matrix of the inputs."""
        assert step.front is not None
        shifts = hop.number + 1 if isinstance(step.layer, HopMixture) and step.layer.reads == "shifted" else 0
        key = (id(step.front), id(step.graph), shifts)
        if key not in self.reads:
            matrix = step.front.matrix
            for _ in range(shifts):
                matrix = self.pattern(step.graph) @ matrix
            self.reads[key] = scipy.sparse.csr_array(matrix)
        return self.reads[key]


def reach_behind(layer: Block, reach: Tensor, graph: Graph, width: int) -> Tensor:
    """How far outputs of a layer move, from its inputs node by node, and from the farthest of them."""
    behind = magnitude_behind(layer, reach, graph)[0]
    if isinstance(layer, Filter) and len(layer.taps) > 1 and layer.taps[:-1].any():  # where signs may cancel
        behind = behind.minimum(norms_within(limit_work(MAX_NORM_WORK), layer, width, graph) * reach.max())
    return behind


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """A classifier at a given signal, for one of its nodes."""

    network: Network
    nodes: Array  # of the whole graph
    centre: int  # the place of the node among them
    graph: Graph
    steps: tuple[Step, ...]
    matrices: dict[int, Any]  # sparse, by the id of their graph

    def matrix(self, layer: Block) -> Any:
        """The shift operator of a layer."""
        return self.matrices[id(graph_of(layer, self.graph))]

    @cached_property
    def is_moving(self) -> Tensor:
        """Which nodes' features move, (N,)."""
        if self.network.moving == "all":
            return torch.ones(len(self.nodes), dtype=torch.bool)
        return torch.arange(len(self.nodes)) == self.centre

    @property
    def outputs(self) -> Tensor:
        return self.network.outputs[self.nodes[self.centre]]

    def lost_by_rounding(self, decision: Tensor) -> tuple[Tensor, Tensor]:
        """More than float64 can lose of margins, ``(O,)``: at the signal, and for each unit of the radius."""
        node = self.nodes[self.centre]
        fixed, each = self.network.lost[node], self.network.lost_for_each[node]
        if self.network.moving == "node":  # 0 where the outputs do not depend on what moves
            size = self.is_moving.double().unsqueeze(-1).expand(-1, self.steps[0].value.size(-1))
            each = error_of_differences(tuple(step.layer for step in self.steps), size, self.graph)[self.centre]
        each = self.network.sides * each
        return fixed + fixed[decision], each + each[decision]

    def with_reach(self, steps: tuple[Step, ...], start: Tensor | None = None) -> tuple[Step, ...]:
        """Steps with how far everything moves, where only the node itself does."""
        if self.network.moving == "all":
            return steps
        reach = self.is_moving.double().unsqueeze(-1) if start is None else start
        found = []
        for step in steps:
            branches = tuple(self.with_reach(branch, reach) for branch in step.branches)
            found.append(replace(step, reach=reach, branches=branches))
            reach = magnitude_behind(step.layer, reach, self.graph)[0]
        return tuple(found)

    def norms_behind(self, layer: Block, rows: Tensor) -> Tensor:
        """The 1-norms of rows ``(P, N, F)`` in front of a linear layer with many inputs, where these move."""
        if isinstance(layer, Linear):
            shifts, weights = [rows], [layer.weight]
        else:
            assert isinstance(layer, Filter)
            shifts, weights, matrix = [], [], self.matrix(layer).T
            for number, tap in enumerate(layer.taps):
                rows = shift_by(matrix, rows) if number else rows
                if tap.any():
                    shifts.append(rows)
                    weights.append(tap.T)
        if not shifts:
            return rows.new_zeros(len(rows))
        joined, weight = torch.cat(shifts, -1)[:, self.is_moving], torch.cat(weights)
        total = joined.abs() @ weight.abs().sum(1)  # at least the norms
        exact = total > 0
        if int(exact.sum()) * weight.size(1) > IN_CACHE:  # of many inputs, the smallest rows are left at that
            ordered, order = total.sort(1)
            is_small = ordered.cumsum(1) <= NEGLIGIBLE * ordered.sum(1, keepdim=True)
            exact &= ~torch.zeros_like(exact).scatter(1, order, is_small)
        norms = [(part @ weight).abs_().sum(-1) for part in joined[exact].split(1 + IN_CACHE // weight.size(1))]
        total[exact] = torch.cat(norms)
        return total.sum(1)

    def push(self, layer: Filter | Linear, moved: Tensor) -> Tensor:
        """How a linear layer moves, ``(N, F)``, when the features that may move do by ``moved`` ``(n, F_in)``."""
        taps = layer.taps if isinstance(layer, Filter) else layer.weight.T.unsqueeze(0)
        total = moved.new_zeros(len(self.nodes), taps.size(2))
        for number, tap in reversed([*enumerate(taps)]):
            if tap.any():
                total[self.is_moving] += moved @ tap
            total = shift_by(self.matrix(layer), total) if number else total
        return total

    def pull(self, layer: Filter | Linear, rows: Tensor) -> Tensor:
        """The transpose of :meth:`push`, ``(N, F)`` to ``(n, F_in)``."""
        taps = layer.taps if isinstance(layer, Filter) else layer.weight.T.unsqueeze(0)
        total = rows.new_zeros(int(self.is_moving.sum()), taps.size(1))
        for number, tap in enumerate(taps):
            rows = shift_by(self.matrix(layer).T, rows) if number else rows
            total = total + rows[self.is_moving] @ tap.T if tap.any() else total
        return total
