r"""How far features can move before the class of a node changes: certified radii, and what attacks find.

Write :math:`\Delta` for the difference to the given signal. Going back through the layers, the margin between two
classes of one node is bounded below by a linear function of what each layer reads,
:math:`\Delta m \ge \langle A, \Delta z \rangle - c`: linear layers are exact, and a nonlinearity lies between lines
that hold for :math:`|\Delta z| \le r \rho`, the reach of an input that moves by r. At the input
:math:`\langle A, \Delta x \rangle \ge -r \|A\|_1`. The proofs are in docs/guarantees.md.

Each node is worked on alone, on the part of the graph that it depends on.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from graphact._checks import check_choice, check_generator, check_integer
from graphact.analysis.columns import Progress
from graphact.analysis.description import (
    Block,
    Blocks,
    FilterOn,
    Hop,
    HopMixtureOn,
    branches_of,
    graph_of,
    hops_of,
    read_signals,
)
from graphact.analysis.lipschitz import magnitude_behind, norms_of, shift_by, watch
from graphact.analysis.models import evaluate, read_model
from graphact.analysis.powers import matrix_of
from graphact.analysis.rules import (
    OPERATIONS,
    LinearMean,
    MonotoneMean,
    OrderStatistic,
    gather,
    layer_norm_box,
    rule_of,
)
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal
from graphact.layers import Filter, HopMixture, LayerNorm, Linear, Pointwise, Sum

ROUNDING = 1e-9  # margins must be above this share of the numbers involved, far more than float64 loses
PRECISION = 0.01  # the largest radius that can be certified is found up to this part of it
MOST_TRIALS = 30
CLOSE = 1.5  # rivals that are tried together: radii from their constants, in units of the smallest
NEGLIGIBLE = 0.003  # of a norm: rows that make up less together are bounded by their magnitudes
IN_CACHE = 1 << 19  # numbers
Moving = Literal["all", "node"]
Lines = Literal["tangent", "parallel", "everywhere"]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class CertifiedRadius:
    """How far features may move, each by at most the radius, without changing the class of a node.

    Attributes:
        nodes: ``(n,)``, the nodes that were asked for.
        decisions: ``(n,)``, their classes.
        radius: ``(n,)``, certified: no change of the moving features by up to this much changes the class.
        rivals: ``(n,)``, the class that limits the radius.
        constants: ``(n, O)``, the certified Lipschitz constants of the margins to each class, for all signals.
        margins: ``(n, O)``, the margins at the given signal; infinite for the class itself.
        moving: what moves: ``"all"`` features of all nodes, or those of the ``"node"`` itself.
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
        """``(n,)``: what the margins over the constants of each node and pair of classes would certify."""
        return (self.margins / self.constants).nan_to_num(nan=torch.inf).amin(-1)

    @property
    def from_one_constant(self) -> Tensor:
        """``(n,)``: what the margin over one constant, the largest of all these nodes and pairs, would certify."""
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
        model: what :func:`certify` takes, with at least two outputs at every node.
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
        >>> radius = graphact.analysis.certified_radius(model, graph, x).radius
        >>> alone = graphact.analysis.certified_radius(model, graph, x, moving="node").radius
        >>> bool((radius > 0).all() and (alone >= radius).all())
        True
    """
    network = Network(model, graph, x, moving)
    chosen = network.check_nodes(nodes)
    found = []
    with watch(progress) as show:
        for number, node in enumerate(chosen.tolist()):
            found.append(network.around(node).certify())
            show((number + 1) / len(chosen))
    columns = [torch.stack(column) for column in zip(*found, strict=True)]
    radius, rivals, constants, margins = columns
    return CertifiedRadius(chosen, network.outputs[chosen].argmax(-1), radius, rivals, constants, margins, moving)


def attack_radius(
    model: nn.Module,
    graph: Graph,
    x: Tensor,
    nodes: Tensor | Sequence[int] | None = None,
    *,
    moving: Moving = "all",
    steps: int = 10,
    restarts: int = 3,
    generator: torch.Generator | None = None,
    progress: Progress | bool | None = None,
) -> Tensor:
    """Search for the smallest change of features that changes the class of each node, ``(n,)``; infinite if none.

    Projected gradient ascent of the rivals over the box: every step moves all features to the corner that the signs of
    the gradient show, and looks along the ray from the given signal to that corner for the first point of another
    class; the next gradient is taken there, averaged with those before. What is found is an upper bound beside
    :func:`certified_radius`.

    Args:
        model: what :func:`certify` takes, with at least two outputs at every node.
        graph: the graph.
        x: one signal, ``(N, F)``.
        nodes: which nodes; None for all.
        moving: which features move.
        steps: steps of each search.
        restarts: searches for each node: towards the best rival, towards each of the next ones, and then from random
            corners.
        generator: source of randomness, on the CPU.
        progress: called with the share that is done, or True for a bar.
    """
    check_generator(generator)
    counts = check_integer("steps", steps, minimum=1), check_integer("restarts", restarts, minimum=1)
    with torch.no_grad():
        network = Network(model, graph, x, moving)
    chosen = network.check_nodes(nodes)
    found = []
    with watch(progress) as show:
        for number, node in enumerate(chosen.tolist()):
            found.append(network.around(node).attack(*counts, generator))
            show((number + 1) / len(chosen))
    return torch.tensor(found, dtype=torch.float64)


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
        behind = behind.minimum(norms_of(layer, width, graph) * reach.max())
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

    def certify(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Radius, the class that limits it, and constants and margins of all classes."""
        decision = self.outputs.argmax()
        margins = self.outputs[decision] - self.outputs
        margins[decision] = torch.inf
        rivals = (torch.arange(len(margins)) != decision).nonzero().squeeze(1)
        steps = self.with_reach(self.steps)
        constants = torch.zeros_like(margins)
        constants[rivals] = self.loss(steps, decision, rivals, 1.0, "everywhere")
        simple = torch.where(constants > 0, margins / constants.clamp_min(1e-300), torch.inf)
        size, limiting = self.outputs.abs().max(), simple.argmin()
        least = simple.min().item() * (1 - 1e-6)  # certified for all rivals
        if not margins.min() > ROUNDING * size or least == torch.inf:
            return (
                torch.tensor(least if margins.min() > ROUNDING * size else 0.0).double(),
                limiting,
                constants,
                margins,
            )

        def lost_at(rivals: Tensor, radius: float) -> tuple[Tensor, Tensor]:
            """What margins can lose, and whether something is left of them."""
            lost = torch.minimum(radius * constants[rivals], self.loss(steps, decision, rivals, radius, "tangent"))
            failing = margins[rivals] - lost <= ROUNDING * (size + lost)
            if failing.any():
                lost[failing] = lost[failing].minimum(self.loss(steps, decision, rivals[failing], radius, "parallel"))
            return lost, margins[rivals] - lost > ROUNDING * (size + lost)

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
        return torch.tensor(radius).double(), limiting, constants, margins

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

    def loss(self, steps: tuple[Step, ...], decision: Tensor, rivals: Tensor, radius: float, lines: Lines) -> Tensor:
        """How much of the margins to rivals can be lost, at most, when inputs move by up to the radius."""
        rows = torch.zeros(len(rivals), len(self.nodes), len(self.outputs), dtype=torch.float64)
        rows[:, self.centre, decision] = 1.0
        rows[torch.arange(len(rivals)), self.centre, rivals] = -1.0
        first, lost = steps[0] if steps else None, torch.zeros(len(rivals), dtype=torch.float64)
        is_linear = first is not None and isinstance(first.layer, Filter | Linear)
        back = Backward(self, radius, lines)
        rows, lost = back.through(steps[1:] if is_linear else steps, rows, lost)
        if is_linear:
            assert first is not None
            return lost + radius * self.norms_behind(first.layer, rows)
        return lost + radius * rows[:, self.is_moving].abs().sum((1, 2))

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

    def attack(self, steps: int, restarts: int, generator: torch.Generator | None) -> float:
        """The smallest radius at which another class was found."""
        first, *rest = self.steps
        linear = without_bias(first.layer) if isinstance(first.layer, Filter | Linear) else None
        start = first.value
        if linear is not None:
            start = rest[0].value if rest else self.network.outputs[self.nodes]
        behind: Blocks = tuple(step.layer for step in (self.steps if linear is None else rest))
        decision, moving = int(self.outputs.argmax()), self.is_moving
        order = [rival for rival in self.outputs.argsort(descending=True).tolist() if rival != decision]

        def outputs_at(values: Tensor) -> Tensor:
            return evaluate(behind, values, self.graph)[..., self.centre, :]

        def gap(outputs: Tensor) -> Tensor:
            return outputs[..., decision] - outputs[..., order].amax(-1)

        best, shape = torch.inf, (int(moving.sum()), first.value.size(1))
        for restart in range(restarts):
            direction, average, radius, stuck = torch.zeros_like(start), torch.zeros(shape).double(), 0.0, 0
            if restart >= len(order):
                average = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
            for step in range(steps):
                at = (start + radius * direction).requires_grad_()
                with torch.enable_grad():
                    outputs = outputs_at(at)
                    towards = restart < len(order) and step < 2
                    goal = outputs[decision] - outputs[order[restart]] if towards else gap(outputs)
                    (gradient,) = torch.autograd.grad(goal, at)
                average = average / 2 + (gradient[moving] if linear is None else self.pull(linear, gradient))
                with torch.no_grad():
                    direction = torch.zeros_like(start)
                    if linear is None:
                        direction[moving] = -average.sign()
                    else:
                        direction = self.push(linear, -average.sign())
                    crossed = first_crossing(lambda r, d=direction: gap(outputs_at(start + r[:, None, None] * d)), best)
                stuck = stuck + 1 if crossed >= best * (1 - 1e-3) else 0
                best = min(best, crossed)
                if stuck >= 2:
                    break
                radius = 0.0 if best == torch.inf else best
        return best


def largest(lost_at: Callable[[float], tuple[Tensor, Tensor]], margins: Tensor, low: float, high: float) -> float:
    """The largest radius between a certified one and ``high``, up to a small part of it, at which all margins hold."""
    at = low if high == torch.inf else max(low, high * (1 - PRECISION))
    for _ in range(MOST_TRIALS):
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


def first_crossing(margins: Any, most: float) -> float:
    """The least radius found with a margin below 0, up to ``most``."""
    low, high = 0.0, most
    if high == torch.inf:
        trials = torch.logspace(-4, 4, 17, dtype=torch.float64)
    else:
        trials = high * torch.tensor([0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.999], dtype=torch.float64)
    for _ in range(2 if high < torch.inf else 3):
        below = (margins(trials) < 0).nonzero()
        if len(below) == 0:
            return high
        place = int(below[0])
        high, low = trials[place].item(), (trials[place - 1].item() if place else low)
        trials = torch.linspace(low, high, 8, dtype=torch.float64)[1:-1]
    return high


def without_bias(layer: Filter | Linear) -> Filter | Linear:
    """A linear layer as it acts on differences."""
    return replace(layer, bias=None)


@dataclass(frozen=True, eq=False)
class Backward:
    """Rows ``(P, N, F)`` of a linear bound, carried back through layers; what they lose is added up, ``(P,)``.

    ``lines`` around a nonlinearity: those that touch it at the signal (``"tangent"``) or that run on both sides of it
    in the same direction (``"parallel"``), for inputs within the radius; or for any two signals (``"everywhere"``).
    """

    around: Neighborhood
    radius: float
    lines: Lines

    def through(self, steps: tuple[Step, ...], rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        for step in reversed(steps):
            rows, lost = self.behind(step, rows, lost)
        return rows, lost

    def behind(self, step: Step, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        """From behind a layer to in front of it."""
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
                    moved = magnitude_behind(layer, self.radius * step.reach, self.around.graph)[0]
                else:
                    _, moved = layer_norm_box(layer, step.value, (self.radius * step.reach).expand_as(step.value))
                return torch.zeros_like(rows), lost + (rows.abs() * moved).sum((1, 2))
            case Sum():
                results = [self.through(branch, rows, torch.zeros_like(lost)) for branch in step.branches]
                return sum((each for each, _ in results), 0 * results[0][0]), lost + sum(less for _, less in results)
            case HopMixture() as layer:
                return self.hops(layer, step, rows, lost)

    def pointwise(self, layer: Pointwise, step: Step, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        r"""Lines :math:`s \Delta z - c_l` below and :math:`s \Delta z + c_u` above the difference of a function."""
        assert step.reach is not None
        rule, used = rule_of(layer), rows.ne(0).any(-1).any(0)
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

    def hops(self, layer: HopMixture, step: Step, rows: Tensor, lost: Tensor) -> tuple[Tensor, Tensor]:
        """ReLU and each hop on their own; what hops read is carried back to what the layer reads."""
        graph, rule = graph_of(layer, self.around.graph), OPERATIONS[layer.operation]
        back, lost = self.pointwise(Pointwise("relu"), step, layer.beta * rows, lost)
        assert step.reach is not None
        reach = (self.radius * step.reach).expand_as(step.value)
        matrix = self.around.matrix(layer)
        reads: list[Tensor] = []
        for hop in hops_of(layer, graph, step.value):
            if layer.reads == "shifted":
                reach = shift_by(abs(matrix), reach)
            a, read = layer.weights[hop.number] * rows, torch.zeros_like(rows)
            used = a.ne(0).any(-1).any(0)
            for nodes, table in hop.neighborhoods.tables():
                table = torch.cat([nodes.unsqueeze(-1), table], dim=-1) if hop.closed else table
                keep = used[nodes]
                if not keep.any() or table.size(1) == 0:
                    continue
                nodes, table = nodes[keep], table[keep]
                if isinstance(rule, OrderStatistic):
                    apart = self.apart(step, hop, reach, nodes, table)
                    below, above = self.select(layer, hop.signals[0], reach, apart, table, a[:, nodes], read)
                else:
                    move = rule.largest if self.lines == "everywhere" else rule.move
                    below = above = move(layer, reach, nodes, table)
                part = a[:, nodes]
                lost = lost + torch.where(part >= 0, part * below, -part * above).sum((1, 2))
            reads.append(read)
        total = torch.zeros_like(rows)
        for read in reversed(reads):
            total = shift_by(matrix.T, total + read) if layer.reads == "shifted" else total + read
        return back + total, lost

    def apart(self, step: Step, hop: Hop, reach: Tensor, nodes: Tensor, table: Tensor) -> Tensor:
        """How far any two values that a node reads can move apart, ``(n, d, d, F)`` or with F = 1 before scaling."""
        network = self.around.network
        if step.front is None:
            near = gather(reach, table)
            sums = near.unsqueeze(-2) + near.unsqueeze(-3)
            return sums * (1 - torch.eye(table.size(1), dtype=reach.dtype)).unsqueeze(-1)
        names = self.around.nodes
        if network.moving == "node":
            column = network.rows(step, hop)[:, [names[self.around.centre]]].toarray().ravel()
            near = torch.from_numpy(column[names[table.numpy()]])
            distances = (near.unsqueeze(-1) - near.unsqueeze(-2)).abs()
        else:
            whole = network.apart(step, hop, names[nodes.numpy()], names[table.numpy()])
            distances = torch.stack(list(whole))
        return self.radius * distances.unsqueeze(-1) * step.front.column_norms(reach.size(-1))

    def select(
        self, layer: HopMixture, values: Tensor, reach: Tensor, apart: Tensor, table: Tensor, a: Tensor, read: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Lines around order statistics and means: :math:`\Delta f` is within bounds of :math:`\sum_j p_j \Delta u_j`.

        The p are added to what is read; returned are how far f can be below and above. All p on the selected value
        (tangent), or alike on all that can be selected (parallel), or on all (everywhere, and for means).
        """
        rule = OPERATIONS[layer.operation]
        assert isinstance(rule, OrderStatistic)
        select, is_mean = partial(rule.select, layer), isinstance(rule, MonotoneMean)
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
        offset, behind = near - middle.unsqueeze(-2), chosen - middle
        return behind - select(offset - loose), select(offset + loose) - behind
