"""Bound the change of the outputs when weights of the graph are noisy or links are lost."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from graphact._checks import check_integer, check_positive
from graphact.functional import shift
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal
from graphact.guarantees.certificate import Zonotope, propagate_forms
from graphact.guarantees.layers import (
    EPSILON,
    KnownLayer,
    Layers,
    iterate_hops,
    propagate_rounding_error,
    propagate_through_rows,
    read_own,
    read_signals,
    split_readout,
    widths,
)
from graphact.guarantees.link_loss import (
    LinkList,
    enumerate_losses,
    is_enumerable,
    is_linear,
)
from graphact.guarantees.lipschitz import form_sizes, unless_nan
from graphact.guarantees.rules import MAX_ENTRIES, OPERATIONS, find_rule, gather
from graphact.spec import Filter, HopMixture, Linear, Pointwise
from graphact.spec.reductions import KERNEL, LOG_MEAN_EXP

MAX_NUMBERS = 5 * MAX_ENTRIES  # of changes, or of the forms of a box, held together: 800 MB


@dataclass(frozen=True, eq=False)
class ChangeSources:
    """The causes of changes in a perturbed graph, C of them."""

    magnitudes: Tensor  # of S, (N, N)
    count: int  # the number C
    max_active: int  # how many of them act together
    losing: Tensor | None  # which source takes a neighbour from which node, (C, N)
    added: Callable[[Tensor, Tensor], Tensor]  # S' - S times the rest of earlier shifts, and times values
    widest: Graph  # with no entry smaller in magnitude than that of any S'
    changing: Tensor  # the nodes whose outputs can change at all, (N,)

    def total(self, changes: Tensor) -> Tensor:
        """Add up the changes ``(C, B, N, F)`` of the worst sources to ``(B, N, F)``."""
        return changes.topk(min(self.max_active, self.count), dim=0).values.sum(0)

    def acting_on(self, rest: Tensor, values: Tensor) -> Tensor:
        """Return the error of a perturbed shift: S' times the rest ``(C, B, N, F)``, and S' - S times the values."""
        return self.magnitudes @ rest + self.added(rest, values)


def adjacency_mask(graph: Graph) -> Tensor:
    """Return a mask of the entries of S, ``(N, N)``."""
    (source, target), _ = graph.to_edge_index()
    entries = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.bool)
    entries[target, source] = True
    return entries


@dataclass(frozen=True)
class EdgeNoise:
    r"""S becomes S + E with :math:`\|E\|_\infty \le` norm, where E has entries only where S has (edges stay edges).

    Attributes:
        norm: the largest sum of changes in a row of S.
    """

    norm: float

    def __post_init__(self) -> None:
        check_positive("norm", self.norm)

    def change_sources(self, graph: Graph) -> ChangeSources:
        """Treat the noise as one source: a row of E can put all of its norm on the entry that matters most."""
        entries = adjacency_mask(graph).unsqueeze(-1)

        def added(rest: Tensor, values: Tensor) -> Tensor:
            return self.norm * torch.where(entries, (rest[0] + values).unsqueeze(-3), 0.0).amax(-2)

        edge_index, weight = graph.to_edge_index()
        widest = Graph.from_edge_index(edge_index, weight.abs() + self.norm, graph.num_nodes)
        return ChangeSources(graph.to_dense().abs(), 1, 1, None, added, widest, entries.any((1, 2)))

    def draw(self, graph: Graph, generator: torch.Generator | None = None) -> Graph:
        """Draw a random graph: the changes of each row add up to the norm."""
        edge_index, weight = graph.to_edge_index()
        size = torch.rand(weight.shape, generator=generator, dtype=torch.float64).to(weight)
        sign = torch.where(torch.rand(weight.shape, generator=generator) < 0.5, -1.0, 1.0).to(weight)
        total = weight.new_zeros(graph.num_nodes).index_add(0, edge_index[1], size)
        change = self.norm * sign * size / total[edge_index[1]]
        return Graph.from_edge_index(edge_index, weight + change, graph.num_nodes)

    def attack(self, graph: Graph, gradient: Tensor) -> Graph:
        """Return the graph that a linear function of the weights rises most on; gradient as in to_edge_index."""
        edge_index, weight = graph.to_edge_index()
        rows, size = edge_index[1], gradient.abs()
        strongest = weight.new_full((graph.num_nodes,), -1.0).scatter_reduce(0, rows, size, "amax")
        chosen = (size == strongest[rows]) & (gradient != 0)
        shares = weight.new_zeros(graph.num_nodes).index_add(0, rows, chosen.to(weight))[rows]
        change = torch.where(chosen, self.norm * gradient.sign() / shares.clamp_min(1), 0.0)
        return Graph.from_edge_index(edge_index, weight + change, graph.num_nodes)


@dataclass(frozen=True)
class LostLinks:
    """Any ``count`` links, or fewer, are lost, in both directions; the other weights and the diagonal stay.

    Attributes:
        count: how many.
    """

    count: int

    def __post_init__(self) -> None:
        check_integer("count", self.count, minimum=1)

    def change_sources(self, graph: Graph) -> ChangeSources:
        """Treat every link as a source: a pair of nodes of which at least one reads the other."""
        entries = adjacency_mask(graph)
        links = LinkList(graph).ends.T
        magnitudes, count = graph.to_dense().abs(), links.size(1)
        ends = torch.zeros(count, graph.num_nodes, dtype=torch.bool).scatter(1, links.T, True)

        def added(rest: Tensor, values: Tensor) -> Tensor:
            """Return what the ends of each link no longer receive; all other entries can only shrink to 0."""
            missed = torch.zeros_like(rest)
            for here, there in (links, links.flip(0)):
                sent = magnitudes[here, there, None] * values[:, there]
                missed[torch.arange(count), :, here] = sent.transpose(0, 1)
            return missed

        changing = entries.clone().fill_diagonal_(False).any(1)
        return ChangeSources(magnitudes, count, self.count, ends, added, graph, changing)

    def draw(self, graph: Graph, generator: torch.Generator | None = None) -> Graph:
        """Draw a random graph."""
        source, target = graph.to_edge_index()[0]
        scores = torch.zeros(len(source), dtype=torch.float64)
        scores[source != target] = torch.rand(graph.num_edges, generator=generator, dtype=torch.float64)
        return self._without(graph, scores)

    def attack(self, graph: Graph, gradient: Tensor) -> Graph:
        """Lose the links whose loss a linear function of the weights rises most with; gradient as in to_edge_index."""
        return self._without(graph, -(gradient * graph.to_edge_index()[1]))

    def _without(self, graph: Graph, scores: Tensor) -> Graph:
        """Return the graph without the links whose edges score highest; an edge in both directions is one link."""
        (edge_index, weight), links = graph.to_edge_index(), LinkList(graph)
        totals = scores.new_zeros(len(links) + 1).index_add(0, links.link_per_edge, scores)[:-1]  # but self-loops
        keep = ~torch.isin(links.link_per_edge, totals.topk(min(self.count, len(links))).indices)
        return Graph.from_edge_index(edge_index[:, keep], weight[keep], graph.num_nodes)


Perturbation = EdgeNoise | LostLinks


@dataclass(frozen=True, eq=False)
class TopologyBound:
    r"""A bound on :math:`\|f(x; S') - f(x; S)\|_\infty`.

    Attributes:
        value: the largest change of any output.
        per_node: ``(N,)``, the largest change at each node.
        perturbation: the assumed perturbation of the graph.
        exact: whether every way to lose links was tried, so that value and per_node are attained, but for rounding.
        worst: ``(n, 2)``, where exact: the links (pairs of nodes) whose loss changes an output by the value.
    """

    value: float
    per_node: Tensor
    perturbation: Perturbation
    exact: bool = False
    worst: Tensor | None = None

    def __repr__(self) -> str:
        exact = ", exact" if self.exact else ""
        return f"TopologyBound(value={self.value:.6g}, perturbation={self.perturbation}{exact})"


@torch.no_grad()
def topology_bound(
    module: nn.Module,
    graph: Graph,
    perturbation: Perturbation,
    x: Tensor | None = None,
    *,
    magnitude: float = 1.0,
    trials: int | None = None,
) -> TopologyBound:
    r"""Certify how far the outputs can move, in the infinity norm, when the graph is perturbed after training.

    A filter multiplies values by the change of S, so a bound needs bounded values: it holds for the given signals or,
    without any, for all signals with :math:`\|x\|_\infty \le` magnitude. Weights that are not perturbed stay as they
    are; the graph is not normalised again.

    Lost links are tried, set by set, as long as there are few: then the result is ``exact``. That is possible for given
    signals with filters, linear maps, ReLU, max, min, median and kernel alone, and for all signals where the module is
    linear. Sets that no node notices as a whole need not be tried.
    Otherwise bounds are propagated from layer to layer, for at most 100 million numbers together: links, or nodes,
    times nodes times features for given signals, and the square of nodes times features for all signals.

    Everything is computed in float64, and bounds are moved up by what that may lose; they are infinite where numbers
    overflow. Rounding errors of the module itself are not part of the statement.

    It does not hold for nodes or links that are new, for weights that are normalised again after a loss (so that PyG's
    convolutions, which do that, are refused), for inputs that change at the same time (:func:`lipschitz_bound` on the
    perturbed graph) and for other norms.

    Args:
        module: a GCNN, an FIR, a GraphFilter, an activation, or another module that describes itself, without adaptive
            filter banks, scaling, residual blocks and norms over features.
        graph: the graph that the module was made for.
        perturbation: :class:`EdgeNoise` (S + E with a norm-bounded E) or :class:`LostLinks` (any that many links).
        x: signals; None for all signals up to ``magnitude``.
        magnitude: the largest value of an input, where no signals are given (and only there).
        trials: how many sets of lost links may be tried, 0 for none. None: as many as two billion values have to be
            computed for, which takes a minute or two; the same on every machine.

    Shapes:
        x: ``(..., N, F)``.

    Raises:
        UnsupportedModelError: nothing is known about a part of the module on a perturbed graph.
        TypeError: the perturbation is of another kind.
        ValueError: a magnitude beside signals, or a graph that is too large for a bound.

    Example:
        >>> import torch, graphact
        >>> from graphact.guarantees import LostLinks, topology_bound
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> one_hop = graphact.nn.GraphFilter(1, 1, order=1)
        >>> _ = torch.nn.init.constant_(one_hop.taps, 1.0)
        >>> topology_bound(one_hop, path, LostLinks(1))
        TopologyBound(value=1, perturbation=LostLinks(count=1), exact)
    """
    if type(perturbation) not in (EdgeNoise, LostLinks):  # a subclass may do anything
        raise TypeError(f"perturbation must be EdgeNoise or LostLinks, got {type(perturbation).__name__}")
    if x is not None and magnitude != 1.0:
        raise ValueError("magnitude must be left out where signals are given: the bound holds for these alone")
    graph = check_graph("graph", graph)
    layers, features = read_own(module, graph, None if x is None else check_signal(x, graph).size(-1))
    limit = None if trials is None else check_integer("trials", trials, minimum=0)
    magnitude, graph = check_positive("magnitude", magnitude), graph.to("cpu", torch.float64)
    x = None if x is None else read_signals(x)
    if isinstance(perturbation, LostLinks) and is_enumerable(layers) and limit != 0:
        tried = _try_losses(layers, features, graph, perturbation.count, x, magnitude, limit)
        if tried is not None and tried[0].isfinite().all():  # where numbers overflow nothing was found out
            per_node, worst = tried
            return TopologyBound(per_node.max().item(), per_node, perturbation, exact=True, worst=worst)
    _check_size(layers, features, graph, perturbation, x is None)
    if x is None:
        forms = Zonotope.box(torch.zeros(1, graph.num_nodes, features, dtype=torch.float64), magnitude)
    else:
        forms = Zonotope.point(x)
    sources = perturbation.change_sources(graph)
    width = max([features, *widths(layers, features)])
    step = max(1, MAX_ENTRIES // max(1, sources.count * graph.num_nodes * width))
    parts = zip(*(tensor.split(step) for tensor in (forms.centre, forms.generators, forms.slack)), strict=True)
    per_node = torch.stack([_largest_changes(layers, graph, sources, Zonotope(*part)) for part in parts]).amax(0)
    per_node = unless_nan(per_node, torch.inf)  # where numbers overflow nothing is known
    return TopologyBound(per_node.max().item(), per_node, perturbation)


def _check_size(layers: Layers, features: int, graph: Graph, perturbation: Perturbation, is_box: bool) -> None:
    """Raise before memory ends: changes are held for every link and node, forms of a box for every input."""
    kept = len(LinkList(graph)) if isinstance(perturbation, LostLinks) else 1
    changes = max(kept, graph.num_nodes) * graph.num_nodes * max([features, *widths(layers, features)])
    forms = max((size for _, size in form_sizes(layers, features, graph)), default=1) if is_box else 0
    if max(changes, forms) > MAX_NUMBERS:
        way_out = "give signals x" if forms > MAX_NUMBERS else "take fewer features or nodes"
        if isinstance(perturbation, LostLinks):
            way_out += ", or let more sets of few links be tried (trials)"
        raise ValueError(
            f"graph must be smaller for bounds that pass from layer to layer: with {graph.num_nodes} nodes they need "
            f"{max(changes, forms):.2g} numbers together, and {MAX_NUMBERS:.2g} are possible; {way_out}"
        )


def _try_losses(
    layers: Layers, features: int, graph: Graph, count: int, x: Tensor | None, magnitude: float, limit: int | None
) -> tuple[Tensor, Tensor] | None:
    r"""Try every loss of links, for given signals or for all if the network is linear; None if there are too many.

    A linear network with biases changes by :math:`d_0 + \sum_m a_m x_m`, where :math:`d_0` is the change for the signal
    0: biases pass through lost links as values do. It is largest where all entries have the right signs.
    """
    if x is not None:
        return enumerate_losses(layers, graph, x, count, limit)
    inputs = graph.num_nodes * features
    if not is_linear(layers) or inputs**2 > MAX_ENTRIES:
        return None
    impulses = magnitude * torch.eye(inputs, dtype=torch.float64).view(-1, graph.num_nodes, features)
    signals = torch.cat([torch.zeros_like(impulses[:1]), impulses])
    return enumerate_losses(layers, graph, signals, count, limit, adds_up=True)


def _largest_changes(layers: Layers, graph: Graph, sources: ChangeSources, forms: Zonotope) -> Tensor:
    """Bound the change at each node over a batch of signals.

    The computed values are those of a network that adds to each shift and each layer what rounding does: for it the
    changes are bounded. Its outputs differ from the true ones by what propagate_rounding_error says, on S and on S'.
    """
    rounding_error, changes = torch.zeros_like(forms.centre), forms.centre.new_zeros(sources.count, *forms.centre.shape)
    _, readout = split_readout(layers)
    for layer in layers:
        forms = forms if layer is readout else forms.settle()
        changes = propagate_change(layer, changes, forms, graph, sources)
        rounding_error = propagate_rounding_error(
            layer, forms.size, rounding_error, sources.widest, forms.generators.size(1)
        )
        forms = propagate_forms(layer, forms, graph)
    changing = sources.changing & any(layer.exchanges for layer in layers)
    return (sources.total(changes) + torch.where(changing.unsqueeze(-1), 2 * rounding_error, 0.0)).amax((0, -1))


def propagate_change(
    layer: KnownLayer, changes: Tensor, forms: Zonotope, graph: Graph, sources: ChangeSources
) -> Tensor:
    """Return the changes ``(C, B, N, F)`` after a layer, with an allowance for rounding."""
    nodes, features = changes.shape[-2:]
    terms = nodes * features + sources.max_active + 10
    terms += layer.exchanges * (2 * nodes + forms.generators.size(1) + sources.max_active + features + 10)
    if isinstance(layer, HopMixture) and layer.operation is KERNEL:
        terms += 1000  # exponentials of numbers down to -745
    return (1 + terms * EPSILON) * _propagate_change(layer, changes, forms, graph, sources)


def _propagate_change(
    layer: KnownLayer, changes: Tensor, forms: Zonotope, graph: Graph, sources: ChangeSources
) -> Tensor:
    """Return the changes after a layer without the rounding of sums."""
    match layer:
        case Filter():  # the rows of the bank in magnitude, and what the perturbed shifts add
            total = propagate_through_rows(layer, changes, graph)
            rests = (rest for _, rest in shifted(changes, forms, layer.exchanges, graph, sources))
            for tap, rest in zip(layer.taps[1:], rests, strict=True):
                total = total + rest @ tap.abs()
            return total
        case Linear():
            return changes @ layer.weight.abs().T
        case Pointwise():
            return find_rule(layer).steepest * changes
        case HopMixture():
            return propagate_change_hops(layer, changes, forms, graph, sources)


def propagate_change_hops(
    layer: HopMixture, changes: Tensor, forms: Zonotope, graph: Graph, sources: ChangeSources
) -> Tensor:
    """Let the values move first, then let neighbours vanish."""
    rule, losing = OPERATIONS[layer.operation], sources.losing
    total = layer.beta.abs() * changes
    moves = [changes] * layer.hops
    if layer.reads != "hops":
        later = shifted(changes, forms, layer.shifts[-1], graph, sources)
        moves = [*moves[: layer.hops - layer.shifts[-1]], *(passed + rest for passed, rest in later)]
    for hop in iterate_hops(layer, graph, forms.centre, forms.generators):
        centre, generators = hop.signals
        entries = changes.size(0) * centre.size(0) * centre.size(-1)
        change = hop.reduce_one(partial(rule.move, layer, moves[hop.number]), entries).clamp_max(rule.max_change)
        if losing is not None:
            several = layer.reads == "hops" and hop.number > 0  # a link may be the way to all neighbours
            max_lost = None if several else sources.max_active
            radius = generators.abs().sum(1)
            size = centre.abs() + radius + _fixed_size(layer, graph.num_nodes)
            radius = radius + 6 * (graph.num_nodes + generators.size(1) + 10) * EPSILON * size
            share = partial(_share_of_loss, layer, centre, radius, max_lost)
            affected = torch.ones_like(losing) if several else losing
            change = change + affected[:, None, :, None] * hop.reduce_one(share, entries)
        total = total + layer.weights[hop.number].abs() * change
    return total


def shifted(
    changes: Tensor, forms: Zonotope, hops: int, graph: Graph, sources: ChangeSources
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for k = 1..hops :math:`|S^k| e` and a bound on :math:`|r_k|`; the forms must have no slack."""
    matrix, power = graph.to_dense(), torch.eye(graph.num_nodes, dtype=torch.float64)
    sizes, rounding = power, 2 * (graph.num_nodes + 2) * EPSILON  # by each product, of the powers without signs
    rest, passed = torch.zeros_like(changes), changes
    for hop in range(1, hops + 1):
        rest = sources.acting_on(rest, forms.centre.abs() + forms.radius + sources.total(passed))
        power, sizes = matrix @ power, matrix.abs() @ sizes
        passed = (power.abs() + hop * rounding * sizes) @ changes
        yield passed, rest
        forms = Zonotope(shift(forms.centre, graph), shift(forms.generators, graph), forms.slack)


def _fixed_size(layer: HopMixture, num_values: int) -> float:
    """Return the magnitudes that an operation rounds beside the values that it reads."""
    return layer.parameters["temperature"] * (1 + math.log(num_values)) if layer.operation is LOG_MEAN_EXP else 0.0


def _share_of_loss(
    layer: HopMixture, centre: Tensor, radius: Tensor, max_lost: int | None, nodes: Tensor, table: Tensor
) -> Tensor:
    """Divide any loss of neighbours among the lost links.

    One lost link takes one neighbour: the largest change by t <= ``max_lost`` lost ones, divided by t; or all of them.
    """
    degree = table.size(-1)
    loss = partial(OPERATIONS[layer.operation].loss, layer, centre, radius, nodes, table)
    shares = [loss(degree)] if max_lost is None else [loss(num) / num for num in range(1, min(max_lost, degree) + 1)]
    return torch.stack([torch.zeros_like(gather(centre, nodes)), *shares]).amax(0)
