r"""Certified radii: how far features can move before the class of a node changes, and upper bounds from attacks.

Write :math:`\Delta` for the difference to the given signal. Backward through the layers, the margin between two
classes of one node is bounded below by a linear function of the input of each layer,
:math:`\Delta m \ge \langle A, \Delta z \rangle - c`: linear layers are exact, and a nonlinearity lies between lines
that hold for :math:`|\Delta z| \le r \rho`, the reach of an input that moves by r. At the input
:math:`\langle A, \Delta x \rangle \ge -r \|A\|_1`. The proofs are in docs/guarantees.md.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from graphact._checks import check_choice
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal
from graphact.guarantees.layers import (
    Block,
    Blocks,
    FilterOn,
    Hop,
    HopMixtureOn,
    evaluate,
    evaluate_with_error,
    get_branches,
    iterate_hops,
    propagate_magnitude,
    read_model,
    read_signals,
    resolve_graph,
    shift_by,
    to_scipy,
    walk_errors,
)
from graphact.guarantees.lipschitz import MAX_NORM_WORK, limit_work, norms_or_magnitudes
from graphact.guarantees.rules import (
    OPERATIONS,
    LinearMean,
    MonotoneMean,
    OrderStatistic,
    find_rule,
    gather,
    layer_norm_box,
)
from graphact.progress import live_bars
from graphact.spec import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum

Progress = Callable[[float], None]  # called with the share of the nodes that is done
Moving = Literal["all", "node"]
Lines = Literal["tangent", "parallel", "everywhere"]
Array = np.ndarray[Any, Any]
ROUNDING = 1e-9  # of outputs and losses, by which margins must be above 0 beside the bounds of rounding errors
PRECISION = 0.01  # the largest radius that can be certified is found up to this part of it
MAX_TRIALS = 30
CLOSE = 1.5  # rivals that are tried together: radii from their constants, in units of the smallest
NEGLIGIBLE = 0.003  # of a norm: rows that make up less together are bounded by their magnitudes
IN_CACHE = 1 << 19  # numbers


@dataclass(frozen=True, eq=False)
class CertifiedRadius:
    """Largest certified change of each feature that does not change the class of a node.

    Attributes:
        nodes: ``(n,)``, the nodes that were asked for.
        decisions: ``(n,)``, their classes.
        radius: ``(n,)``, certified: no change of the moving features by up to this much changes the class.
        rivals: ``(n,)``, the class that limits the radius.
        constants: ``(n, O)``, the certified Lipschitz constants of the margins to each class, for all signals.
        margins: ``(n, O)``, the margins at the given signal; infinite for the class itself.
        moving: the features that move: ``"all"`` features of all nodes, or those of the ``"node"`` itself.
    """

    nodes: Tensor
    decisions: Tensor
    radius: Tensor
    rivals: Tensor
    constants: Tensor
    margins: Tensor
    moving: Moving

    @property
    def from_constants(self) -> Tensor:
        """``(n,)``: the radius from the margins and constants of each node and pair of classes alone."""
        return (self.margins / self.constants).nan_to_num(nan=torch.inf).amin(-1)

    @property
    def from_one_constant(self) -> Tensor:
        """``(n,)``: the radius from the margin and the largest constant of all these nodes and pairs."""
        return self.margins.amin(-1) / self.constants.max()


@torch.no_grad()
def certified_radius(
    model: nn.Module,
    graph: Graph,
    x: Tensor,
    nodes: Tensor | Sequence[int] | None = None,
    *,
    moving: Moving = "all",
    progress: Progress | bool | None = None,
) -> CertifiedRadius:
    r"""Certify for each node how far features can move before its class changes, in the infinity norm.

    A radius r holds for all :math:`x'` with :math:`|x'_{jf} - x_{jf}| \le r` for all features f of all nodes j
    (``moving="all"``, which are those that the node depends on), or of the node itself (``moving="node"``), all others
    as they are. Every radius uses constants of this node and of each pair of classes, and lines around the given
    signal; the largest that can be certified is found to one percent.

    Time grows with the nodes asked for times the size of the part of the graph that each depends on.

    Args:
        model: any model that :func:`certify` accepts, with at least two outputs at every node.
        graph: the graph.
        x: one signal.
        nodes: which nodes; None for all.
        moving: which features move.
        progress: called with the share that is done, or True for a bar.

    Shapes:
        x: ``(N, F)``.

    Raises:
        UnsupportedModelError: nothing is known about a part of the model.
        ValueError: x is not one signal, the model has one output, or a node is not one of the graph.

    Example:
        >>> import torch, graphact
        >>> _ = torch.manual_seed(0)
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2).normalize("spectral")
        >>> model = graphact.nn.GCNN([2, 4], activation="max-ga", out_features=3)
        >>> x = torch.randn(10, 2)
        >>> radius = graphact.guarantees.certified_radius(model, graph, x).radius
        >>> alone = graphact.guarantees.certified_radius(model, graph, x, moving="node").radius
        >>> bool((radius > 0).all() and (alone >= radius).all())
        True
    """
    network = ClassifierAtSignal(model, graph, x, moving)
    chosen = network.check_nodes(nodes)
    found = []
    with watch(progress) as show:
        for number, node in enumerate(chosen.tolist()):
            found.append(certify_node(network.around(node)))
            show((number + 1) / len(chosen))
    columns = [torch.stack(column) for column in zip(*found, strict=True)]
    radius, rivals, constants, margins = columns
    return CertifiedRadius(chosen, network.outputs[chosen].argmax(-1), radius, rivals, constants, margins, moving)


@contextmanager
def watch(progress: Progress | bool | None) -> Iterator[Progress]:
    """Yield a function that shows the share of the work that is done: on a bar, by the caller's function, or not."""
    if progress is not True:
        yield progress or (lambda _: None)
        return
    from rich.console import Console

    with live_bars(console=Console(stderr=True)) as bars:
        task = bars.add_task("nodes", total=100, note="")
        yield lambda share: bars.update(task, completed=round(100 * share))


@dataclass(frozen=True, eq=False)
class LayerState:
    """A layer at a given signal: its input there, and the reach of that input when the network's input moves by 1."""

    layer: Block
    value: Tensor  # (N, F)
    reach: Tensor | None  # (N, F), or (N, 1) for all features alike; None until it is known which inputs move
    graph: Graph  # the whole one that the layer acts on
    front: "LinearPrefix | None" = None  # where everything in front of it is linear
    branches: tuple[tuple["LayerState", ...], ...] = ()


@dataclass(frozen=True, eq=False)
class LinearPrefix:
    """Linear layers in front of all others that factorize into a matrix over nodes and weights over features."""

    matrix: Any  # (N, N), sparse
    weight: Tensor | None  # (F_in, F); None for the identity

    def after(self, layer: Block, graph: Graph) -> "LinearPrefix | None":
        match layer:
            case Linear():
                return LinearPrefix(self.matrix, self.times(layer.weight.T))
            case Filter():
                used = [number for number, tap in enumerate(layer.taps) if tap.any()]
                if len(used) > 1:
                    return None
                matrix = self.matrix
                for _ in range(used[0] if used else 0):
                    matrix = to_scipy(resolve_graph(layer, graph)) @ matrix
                return LinearPrefix(matrix, self.times(layer.taps[used[0] if used else 0]))
        return None

    def times(self, weight: Tensor) -> Tensor:
        return weight if self.weight is None else self.weight @ weight

    def column_norms(self, features: int) -> Tensor:
        return torch.ones(features, dtype=torch.float64) if self.weight is None else self.weight.abs().sum(0)


class ClassifierAtSignal:
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
        unit = LinearPrefix(scipy.sparse.eye_array(len(x), format="csr"), None)
        self.steps, self.outputs = self.walk(self.layers, x, reach, unit)
        # Lines around the values of a layer are off by no more than those are on their way to the outputs, on both
        # sides and for both signals; the outputs are off as well.
        self.sides = 4 * (count_nonlinear(self.layers) + 1)
        self.rounding_error = self.sides * evaluate_with_error(self.layers, x, self.graph)[1]
        self.error_per_radius = walk_errors(
            self.layers, torch.ones_like(x), torch.zeros_like(x), self.graph, is_difference=True
        )[1]
        if self.outputs.size(-1) < 2:
            raise ValueError("model must have at least two outputs a node, of which the largest is its class, got 1")
        self.pattern = cache(to_scipy)  # the matrix of a graph
        self.rows, self.distances_of = cache(self._rows), cache(self._distances)

    def check_nodes(self, nodes: Any) -> Tensor:
        nodes = range(self.graph.num_nodes) if nodes is None else nodes
        chosen = torch.as_tensor([] if isinstance(nodes, str) else nodes).cpu()
        if chosen.dim() != 1 or chosen.is_floating_point() or chosen.dtype == torch.bool or chosen.numel() == 0:
            raise ValueError(f"nodes must be a list of numbers of nodes, got {nodes!r}")
        if chosen.min() < 0 or chosen.max() >= self.graph.num_nodes:
            raise ValueError(f"nodes must be from 0 to {self.graph.num_nodes - 1}, got {chosen.tolist()}")
        return chosen

    def walk(
        self, layers: Blocks, value: Tensor, reach: Tensor | None, front: LinearPrefix | None
    ) -> tuple[tuple[LayerState, ...], Tensor]:
        """Return the states of layers, and the output of the last one."""
        steps = []
        for layer in layers:
            branches = (
                [self.walk(b, value, reach, front)[0] for b in get_branches(layer)] if isinstance(layer, Sum) else []
            )
            steps.append(LayerState(layer, value, reach, resolve_graph(layer, self.graph), front, tuple(branches)))
            value = evaluate((layer,), value, self.graph)
            reach = None if reach is None else propagate_reach(layer, reach, self.graph, value.size(-1))
            front = None if front is None else front.after(layer, self.graph)
        return tuple(steps), value

    def field(self, layers: Blocks, nodes: Array) -> Array:
        """Return the nodes, in ascending order, whose inputs the outputs of the given nodes depend on."""
        for layer in reversed(layers):
            if isinstance(layer, Sum):
                nodes = np.unique(np.concatenate([self.field(branch, nodes) for branch in get_branches(layer)]))
                continue
            hops = layer.exchanges if isinstance(layer, Filter | HopMixture) else 0
            matrix = self.pattern(resolve_graph(layer, self.graph))
            for _ in range(hops):
                nodes = np.union1d(nodes, matrix[nodes].indices)
        return nodes

    def around(self, node: int) -> "ReceptiveField":
        """Restrict the network to the part of the graph that a node depends on."""
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
                    return replace(layer, graph=part(resolve_graph(layer, self.graph)))
                case Sum():
                    return Sum(tuple(tuple(map(restrict, branch)) for branch in get_branches(layer)))
            return layer

        def local(step: LayerState) -> LayerState:
            branches = tuple(tuple(map(local, branch)) for branch in step.branches)
            reach = None if step.reach is None else step.reach[index]
            return replace(step, layer=restrict(step.layer), value=step.value[index], reach=reach, branches=branches)

        centre = int(np.searchsorted(nodes, node))
        return ReceptiveField(self, nodes, centre, part(self.graph), tuple(map(local, self.steps)), matrices)

    def distances(self, step: LayerState, hop: Hop, near: Array) -> Tensor:
        """Return the 1-norm distances ``(n, d, d)`` between the rows that nodes read, over all nodes of the graph."""
        key = step.front, step.graph, count_shifts(step.layer, hop)
        return torch.stack([self.distances_of(*key, tuple(row)) for row in near.tolist()])

    def _rows(self, front: LinearPrefix, graph: Graph, shifts: int) -> Any:
        """Return what a hop reads as a sparse matrix over the inputs of the network."""
        matrix = front.matrix
        for _ in range(shifts):
            matrix = self.pattern(graph) @ matrix
        return scipy.sparse.csr_array(matrix)

    def _distances(self, front: LinearPrefix, graph: Graph, shifts: int, near: tuple[int, ...]) -> Tensor:
        rows = self.rows(front, graph, shifts)[list(near)].toarray()
        rows = torch.from_numpy(rows[:, np.flatnonzero(rows.any(0))])
        return torch.cdist(rows, rows, p=1)


def count_shifts(layer: Block, hop: Hop) -> int:
    """Return how often the values that a hop reads were shifted in its layer."""
    return layer.shifts[hop.number] if isinstance(layer, HopMixture) else 0


def count_nonlinear(layers: Blocks) -> int:
    """Count the layers that are not linear maps, including those inside of sums."""
    return sum(
        sum(map(count_nonlinear, get_branches(layer)))
        if isinstance(layer, Sum)
        else isinstance(layer, Pointwise | HopMixture | LayerNorm)
        for layer in layers
    )


def propagate_reach(layer: Block, reach: Tensor, graph: Graph, width: int) -> Tensor:
    """Return the reach of a layer's outputs, from that of its inputs node by node and from the largest of them."""
    after = propagate_magnitude(layer, reach, graph)[0]
    if isinstance(layer, Filter) and len(layer.taps) > 1 and layer.taps[:-1].any():  # where signs may cancel
        after = after.minimum(norms_or_magnitudes(limit_work(MAX_NORM_WORK), layer, width, graph) * reach.max())
    return after


@dataclass(frozen=True, eq=False)
class ReceptiveField:
    """A classifier at a given signal, on the part of the graph that one node depends on."""

    network: ClassifierAtSignal
    nodes: Array  # of the whole graph
    centre: int  # the place of the node among them
    graph: Graph
    steps: tuple[LayerState, ...]
    matrices: dict[int, Any]  # sparse, by the id of their graph

    def matrix(self, layer: Block) -> Any:
        """Return the shift operator of a layer."""
        return self.matrices[id(resolve_graph(layer, self.graph))]

    @cached_property
    def is_moving(self) -> Tensor:
        """A mask of the nodes whose features move, ``(N,)``."""
        if self.network.moving == "all":
            return torch.ones(len(self.nodes), dtype=torch.bool)
        return torch.arange(len(self.nodes)) == self.centre

    @property
    def outputs(self) -> Tensor:
        return self.network.outputs[self.nodes[self.centre]]

    def rounding_error(self, decision: Tensor) -> tuple[Tensor, Tensor]:
        """Bound the rounding errors of margins, ``(O,)``: at the signal, and for each unit of the radius."""
        node = self.nodes[self.centre]
        fixed, each = self.network.rounding_error[node], self.network.error_per_radius[node]
        if self.network.moving == "node":  # 0 where the outputs do not depend on what moves
            size = self.is_moving.double().unsqueeze(-1).expand(-1, self.steps[0].value.size(-1))
            own = tuple(step.layer for step in self.steps)
            each = walk_errors(own, size, torch.zeros_like(size), self.graph, is_difference=True)[1][self.centre]
        each = self.network.sides * each
        return fixed + fixed[decision], each + each[decision]

    def with_reach(self, steps: tuple[LayerState, ...], start: Tensor | None = None) -> tuple[LayerState, ...]:
        """Return the states of layers with their reach, where only the features of the node itself move."""
        if self.network.moving == "all":
            return steps
        reach = self.is_moving.double().unsqueeze(-1) if start is None else start
        found = []
        for step in steps:
            branches = tuple(self.with_reach(branch, reach) for branch in step.branches)
            found.append(replace(step, reach=reach, branches=branches))
            reach = propagate_magnitude(step.layer, reach, self.graph)[0]
        return tuple(found)

    def norms_before(self, layer: Block, rows: Tensor) -> Tensor:
        """Return the 1-norms of rows ``(P, N, F)`` pulled back through a linear layer with many inputs that move."""
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


@dataclass(frozen=True, eq=False)
class Backward:
    """Rows ``(P, N, F)`` of a linear bound, propagated backward through layers, and the constants lost, ``(P,)``.

    ``lines`` around a nonlinearity: those that touch it at the signal (``"tangent"``) or that run on both sides of it
    in the same direction (``"parallel"``), for inputs within the radius; or for any two signals (``"everywhere"``).
    """

    around: ReceptiveField
    radius: float
    lines: Lines

    def through(self, steps: tuple[LayerState, ...], rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        for step in reversed(steps):
            rows, lost = self.pull_back(step, rows, lost)
        return rows, lost

    def pull_back(self, step: LayerState, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        """Propagate a bound from the output of a layer to its input."""
        assert step.reach is not None
        match step.layer:
            case Filter() as layer:
                matrix, total = self.around.matrix(layer).T, rows @ layer.taps[-1].T
                for tap in reversed(layer.taps[:-1]):
                    total = shift_by(matrix, total)
                    total = total + rows @ tap.T if tap.any() else total
                return total, lost
            case Linear() as layer:
                return rows @ layer.weight, lost
            case Pointwise() as layer:
                return self.pointwise(layer, step, rows, lost)
            case LayerNorm() as layer:
                if self.lines == "everywhere":
                    moved = propagate_magnitude(layer, self.radius * step.reach, self.around.graph)[0]
                else:
                    _, moved = layer_norm_box(layer, step.value, (self.radius * step.reach).expand_as(step.value))
                return torch.zeros_like(rows), lost + (rows.abs() * moved).sum((1, 2))
            case Sum():
                results = [self.through(branch, rows, torch.zeros_like(lost)) for branch in step.branches]
                return sum((each for each, _ in results), 0 * results[0][0]), lost + sum(less for _, less in results)
            case HopMixture() as layer:
                return self.hops(layer, step, rows, lost)

    def pointwise(self, layer: Pointwise, step: LayerState, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        r"""Enclose the difference of a function between :math:`s \Delta z - c_l` and :math:`s \Delta z + c_u`."""
        assert step.reach is not None
        rule, used = find_rule(layer), rows.ne(0).any(-1).any(0)
        a, value = rows[:, used], step.value[used]
        reach = (self.radius * step.reach[used]).expand_as(value)
        if self.lines == "everywhere":
            low, high = rule.slopes
            below = above = (high - low) / 2 * reach
            least = most = torch.full_like(value, (low + high) / 2)
        else:
            slope, offset, half = rule.band(value - reach, value + reach)
            middle = slope * value + offset - rule.apply(value)
            least, below, most, above = slope, half - middle, slope, half + middle
            if self.lines == "tangent" and layer.function == "relu":
                crossing = below + above > 0
                least = torch.where(crossing, (value >= 0).to(value), slope)  # it touches ReLU at the signal
                below = torch.where(crossing, 0.0, below)
        back = torch.zeros_like(rows)
        back[:, used] = torch.where(a >= 0, a * least, a * most)
        return back, lost + torch.where(a >= 0, a * below, -a * above).clamp_min(0).sum((1, 2))

    def hops(self, layer: HopMixture, step: LayerState, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        """Enclose ReLU and each hop separately; bounds of what hops read become bounds of the layer's input."""
        graph, rule = resolve_graph(layer, self.around.graph), OPERATIONS[layer.operation]
        back, lost = self.pointwise(Pointwise("relu"), step, layer.beta * rows, lost)
        assert step.reach is not None
        reach = (self.radius * step.reach).expand_as(step.value)
        matrix = self.around.matrix(layer)
        reads: list[Tensor] = []
        for hop in iterate_hops(layer, graph, step.value):
            if layer.is_shifted(hop.number):
                reach = shift_by(abs(matrix), reach)
            a, read = layer.weights[hop.number] * rows, torch.zeros_like(rows)
            used = a.ne(0).any(-1).any(0)
            for nodes, table in hop.neighborhoods.tables():
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1) if hop.closed else table
                keep = used[nodes]
                if not keep.any() or table.size(1) == 0:
                    continue
                nodes, table = nodes[keep], table[keep]
                if isinstance(rule, MonotoneMean):
                    apart = self.spread(step, hop, reach, table)
                    below, above = self.select(layer, hop.signals[0], reach, apart, table, a[:, nodes], read)
                else:
                    most = math.inf if self.lines == "everywhere" else rule.max_change
                    below = above = rule.move(layer, reach, nodes, table).clamp_max(most)
                part = a[:, nodes]
                lost = lost + torch.where(part >= 0, part * below, -part * above).sum((1, 2))
            reads.append(read)
        total = torch.zeros_like(rows)
        for term, read in reversed(list(enumerate(reads))):
            total = shift_by(matrix.T, total + read) if layer.is_shifted(term) else total + read
        return back + total, lost

    def spread(self, step: LayerState, hop: Hop, reach: Tensor, table: Tensor) -> Tensor:
        """Bound the change of differences of two values that a node reads, ``(n, d, d, F)``."""
        network = self.around.network
        if step.front is None:
            near = gather(reach, table)
            sums = near.unsqueeze(-2) + near.unsqueeze(-3)
            return sums * (1 - torch.eye(table.size(1), dtype=reach.dtype)).unsqueeze(-1)
        names = self.around.nodes
        if network.moving == "node":
            rows = network.rows(step.front, step.graph, count_shifts(step.layer, hop))
            column = rows[:, [names[self.around.centre]]].toarray().ravel()
            near = torch.from_numpy(column[names[table.numpy()]])
            distances = (near.unsqueeze(-1) - near.unsqueeze(-2)).abs()
        else:
            distances = network.distances(step, hop, names[table.numpy()])
        return self.radius * distances.unsqueeze(-1) * step.front.column_norms(reach.size(-1))

    def select(
        self, layer: HopMixture, values: Tensor, reach: Tensor, apart: Tensor, table: Tensor, a: Tensor, read: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Enclose order statistics and means: :math:`\Delta f` is within bounds of :math:`\sum_j p_j \Delta u_j`.

        The p are added to what is read; returned are how far f can be below and above. All p on the selected value
        (tangent), or alike on all that can be selected (parallel), or on all (everywhere, and for means).
        """
        rule = OPERATIONS[layer.operation]
        assert isinstance(rule, MonotoneMean)
        select, is_mean = partial(rule.select, layer), not isinstance(rule, OrderStatistic)
        near, move = gather(values, table), gather(reach, table)
        chosen = select(near)
        if self.lines == "tangent" and not is_mean:
            at = (near == chosen.unsqueeze(-2)).to(torch.int8).argmax(-2)  # (n, F)
            loose = apart.gather(2, at[:, None, None, :].expand(-1, apart.size(1), 1, -1)).squeeze(2)
            offset = near - chosen.unsqueeze(-2)
            index = table.gather(1, at).expand(len(a), -1, -1)
            read.scatter_add_(1, index, a)
            return -select(offset - loose), select(offset + loose)
        share = torch.ones_like(near)
        if self.lines == "parallel" and not is_mean:
            least, most = select(near - move), select(near + move)
            share = ((near + move >= least.unsqueeze(-2)) & (near - move <= most.unsqueeze(-2))).to(near)
        share = share / share.sum(-2, keepdim=True)
        if isinstance(rule, LinearMean):
            loose = torch.zeros_like(near)  # it is the line
        else:
            loose = torch.einsum("njkf,nkf->njf", apart.expand(-1, -1, -1, near.size(-1)), share)
        read.index_add_(1, table.flatten(), (share * a.unsqueeze(2)).flatten(1, 2))
        if self.lines == "everywhere":
            return loose.amax(-2), loose.amax(-2)
        middle = (share * near).sum(-2)
        offset, value = near - middle.unsqueeze(-2), chosen - middle
        return value - select(offset - loose), select(offset + loose) - value


def certify_node(around: ReceptiveField) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return radius, the class that limits it, and constants and margins of all classes."""
    decision = around.outputs.argmax()
    margins = around.outputs[decision] - around.outputs
    margins[decision] = torch.inf
    rivals = (torch.arange(len(margins)) != decision).nonzero().squeeze(1)
    steps = around.with_reach(around.steps)
    constants, (fixed, for_each) = torch.zeros_like(margins), around.rounding_error(decision)
    everywhere = loss(around, steps, decision, rivals, 1.0, "everywhere") + for_each[rivals]
    constants[rivals] = everywhere.nan_to_num(nan=torch.inf)  # overflow times 0
    size = around.outputs.abs().max()
    left = margins - fixed - ROUNDING * size  # of the margins at the signal, whatever was rounded
    simple = torch.where(constants > 0, left / constants.clamp_min(1e-300), torch.inf)
    limiting, least = simple.argmin(), simple.min().item() * (1 - 1e-6)  # certified for all rivals
    if not left.min() > 0 or least == torch.inf:
        least = least if left.min() > 0 else 0.0
        return torch.tensor(least, dtype=torch.float64), limiting, constants, margins

    def lost_at(rivals: Tensor, radius: float) -> tuple[Tensor, Tensor]:
        """Return the loss of margins, and whether a margin is left."""
        lost = torch.minimum(radius * constants[rivals], loss(around, steps, decision, rivals, radius, "tangent"))
        allowed = left[rivals] - radius * for_each[rivals]
        failing = ~(allowed - lost > ROUNDING * lost)
        if failing.any():
            lost[failing] = lost[failing].minimum(loss(around, steps, decision, rivals[failing], radius, "parallel"))
        return lost, allowed - lost > ROUNDING * lost

    tried = rivals[simple[rivals] <= CLOSE * simple.min()]  # those that are likely to limit the radius
    high = torch.inf
    while True:
        radius = largest(partial(lost_at, tried), margins[tried], least, high)
        others = rivals[~torch.isin(rivals, tried) & (simple[rivals] * (1 - 1e-6) < radius)]
        is_safe = lost_at(others, radius)[1]
        if is_safe.all():
            break
        tried, high = others[~is_safe], radius
    lost, _ = lost_at(tried, radius)
    limiting = tried[(margins[tried] / lost.clamp_min(1e-300)).argmin()]
    return torch.tensor(radius, dtype=torch.float64), limiting, constants, margins


def loss(
    around: ReceptiveField, steps: tuple[LayerState, ...], decision: Tensor, rivals: Tensor, radius: float, lines: Lines
) -> Tensor:
    """Bound the loss of the margins to rivals when inputs move by up to the radius."""
    rows = torch.zeros(len(rivals), len(around.nodes), len(around.outputs), dtype=torch.float64)
    rows[:, around.centre, decision] = 1.0
    rows[torch.arange(len(rivals)), around.centre, rivals] = -1.0
    first, lost = steps[0] if steps else None, torch.zeros(len(rivals), dtype=torch.float64)
    is_linear = first is not None and isinstance(first.layer, Filter | Linear)
    back = Backward(around, radius, lines)
    rows, lost = back.through(steps[1:] if is_linear else steps, rows, lost)
    if is_linear:
        assert first is not None
        return lost + radius * around.norms_before(first.layer, rows)
    return lost + radius * rows[:, around.is_moving].abs().sum((1, 2))


def largest(lost_at: Callable[[float], tuple[Tensor, Tensor]], margins: Tensor, low: float, high: float) -> float:
    """Return the largest radius between a certified one and ``high`` at which all margins hold, to a small part."""
    at = low if high == torch.inf else max(low, high * (1 - PRECISION))
    for _ in range(MAX_TRIALS):
        lost, is_safe = lost_at(at)
        if is_safe.all():
            low, ahead = at, (margins / lost.clamp_min(1e-300)).min().item()
            at = min(at * min(4.0, ahead), (at + high) / 2)
        else:
            high = at
            at = max(low + (high - low) / 8, (low * high) ** 0.5)
        if high - low <= PRECISION * low or at <= low * (1 + PRECISION / 4):
            break
    return low
