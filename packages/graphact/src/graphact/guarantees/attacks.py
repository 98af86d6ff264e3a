"""Searches for counterexamples: a test of equivariance, and lower bounds beside the certified ones.

They take any module, described or not, and PyG's; the searches need one that can be differentiated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_generator, check_integer
from graphact.graph import Graph
from graphact.graph.edges import check_finite
from graphact.graph.graph import check_graph, check_signal
from graphact.guarantees.certificate import check_radius
from graphact.guarantees.layers import Blocks, evaluate
from graphact.guarantees.radius import ClassifierAtSignal, Moving, Progress, ReceptiveField, watch
from graphact.guarantees.topology import Perturbation
from graphact.nn.description import call_on_graph, is_called_by_kind
from graphact.spec import Filter, Linear

NOISE = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)  # how far from the given signals the search starts, in their own scale
RADII = (1.0, 0.3, 0.1, 0.03, 0.01)  # sizes of the perturbation during the ascent, in the same scale
ROUNDING_STEPS = 1000  # sums over neighbours are taken in another order; their rounding errors pass through all layers
Model = Callable[[Tensor, Graph], Any]


@dataclass(frozen=True)
class Equivariance:
    """Verdict of :func:`check_equivariance`.

    Attributes:
        deviation: the largest difference between the output of the renumbered graph and the renumbered output.
        tolerance: the deviation that rounding explains: 1000 units in the last place of the largest output, and in half
            precision the square root of such a unit.
        permutations: how many were tried.
    """

    deviation: float
    tolerance: float
    permutations: int

    @property
    def holds(self) -> bool:
        return self.deviation <= self.tolerance

    def __str__(self) -> str:
        verdict = "equivariant" if self.holds else "NOT equivariant"
        return (
            f"{verdict}: largest deviation {self.deviation:.2g} over {self.permutations} permutations, "
            f"rounding explains {self.tolerance:.2g}"
        )


def check_equivariance(
    model: Model,
    graph: Graph,
    x: Tensor,
    *,
    permutations: int = 10,
    generator: torch.Generator | None = None,
) -> Equivariance:
    r"""Compare :math:`f(P^\top x; P^\top S P)` with :math:`P^\top f(x; S)` for random permutations (Proposition 1).

    Args:
        model: anything called as ``model(x, graph)`` that answers at every node.
        graph: the graph.
        x: signals.
        permutations: how many to draw.
        generator: source of randomness, on the CPU.

    Shapes:
        x: ``(..., N, F)``.

    Example:
        >>> import torch, graphact
        >>> graph = graphact.Graph.stochastic_block_model([5, 5], 0.8, 0.2)
        >>> x = torch.randn(3, 10, 1)
        >>> graphact.guarantees.check_equivariance(graphact.nn.GCNN([1, 4], activation="median-ga"), graph, x).holds
        True
        >>> first_node_differs = lambda x, graph: x * torch.arange(10).unsqueeze(-1)
        >>> graphact.guarantees.check_equivariance(first_node_differs, graph, x).holds
        False
    """
    x, model = _check_inputs(graph, x, generator), as_function(model)
    with torch.no_grad():
        expected = model(x, graph)
        largest = 0.0
        for _ in range(check_integer("permutations", permutations, minimum=1)):
            perm = torch.randperm(graph.num_nodes, generator=generator).to(graph.device)
            actual = model(x[..., perm, :], graph.permute(perm))
            difference = (actual - expected[..., perm, :]).abs().max().item()
            largest = difference if difference != difference else max(largest, difference)
    unit, scale = torch.finfo(expected.dtype).eps, expected.abs().max().item()
    return Equivariance(largest, min(ROUNDING_STEPS * unit, unit**0.5) * scale, permutations)


@dataclass(frozen=True, eq=False)
class Attack:
    """Results of perturbations within a radius.

    Attributes:
        changed: ``(..., N)``, the nodes whose largest output became another one.
        lower: ``(..., N, O)``, the lowest outputs seen.
        upper: ``(..., N, O)``, the highest outputs seen.
    """

    changed: Tensor
    lower: Tensor
    upper: Tensor


def attack(
    model: Model,
    graph: Graph,
    x: Tensor,
    radius: float,
    *,
    steps: int = 10,
    generator: torch.Generator | None = None,
) -> Attack:
    """Search a box around signals for other decisions and for extreme outputs.

    Signed gradient steps raise and lower all outputs and bring each node's second class before its first; random
    corners of the box are tried as well. The result is a lower bound on the possible change, as
    :func:`~graphact.guarantees.certify` gives upper bounds.

    Args:
        model: anything called as ``model(x, graph)`` that can be differentiated.
        graph: the graph.
        x: signals, ``(..., N, F)``.
        radius: the largest change of any input.
        steps: gradient steps of each search, and random corners.
        generator: source of randomness, on the CPU.
    """
    x, model, radius = _check_inputs(graph, x, generator), as_function(model), check_radius(radius)
    with torch.no_grad():
        first: Tensor = model(x, graph)
    decisions = first.argmax(-1, keepdim=True)
    changed, lower, upper = torch.zeros_like(first[..., 0], dtype=torch.bool), first, first

    def runner_up(outputs: Tensor) -> Tensor:
        return outputs.scatter(-1, decisions, -torch.inf).amax(-1) - outputs.gather(-1, decisions).squeeze(-1)

    goals: list[Callable[[Tensor], Tensor]] = [torch.sum, lambda outputs: -outputs.sum()]
    if first.size(-1) > 1:
        goals.append(lambda outputs: runner_up(outputs).sum())
    for goal in [*goals, None]:
        other = x
        for _ in range(check_integer("steps", steps, minimum=1)):
            if goal is None:
                corner = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x) < 0.5
                other = x + radius * torch.where(corner, -1.0, 1.0).to(x)
            else:
                other = other.detach().requires_grad_()
                with torch.enable_grad():
                    (gradient,) = torch.autograd.grad(goal(model(other, graph)), other)
                other = (other.detach() + radius / 3 * gradient.sign()).clamp(x - radius, x + radius)
            with torch.no_grad():
                outputs = model(other, graph)
            changed = changed | (outputs.argmax(-1) != decisions.squeeze(-1))
            lower, upper = torch.minimum(lower, outputs), torch.maximum(upper, outputs)
    return Attack(changed, lower, upper)


@dataclass(frozen=True, eq=False)
class EmpiricalLipschitz:
    """The largest ratio found, a lower bound on every Lipschitz constant, and the pair of signals that attains it.

    Attributes:
        value: the largest ratio.
        per_node: ``(N,)``, the largest ratio at each node.
        x: ``(N, F)``, a signal.
        perturbed: ``(N, F)``, another one; the outputs of the two differ by ``value`` times what the inputs do.
    """

    value: float
    per_node: Tensor
    x: Tensor
    perturbed: Tensor

    def __repr__(self) -> str:
        return f"EmpiricalLipschitz(value={self.value:.6g})"


def empirical_lipschitz(
    module: Model,
    graph: Graph,
    x: Tensor,
    *,
    starts: int = 4,
    steps: int = 40,
    generator: torch.Generator | None = None,
) -> EmpiricalLipschitz:
    r"""Search for signals whose outputs differ most, :math:`\|f(x) - f(x')\|_\infty / \|x - x'\|_\infty`.

    For every node several searches start at the given signals plus noise. Each moves x along the gradient of the
    difference of outputs at that node, and the perturbation to the signs of the gradient between both signals, in ever
    smaller steps.

    Args:
        module: anything called as ``module(x, graph)`` that can be differentiated.
        graph: the graph; use float64 for ratios that are not limited by rounding.
        x: signals to start from.
        starts: searches for each node.
        steps: steps of each search.
        generator: source of randomness, on the CPU.

    Shapes:
        x: ``(..., N, F)``.

    Example:
        >>> import torch, graphact
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).to(torch.float64)
        >>> filter_bank = graphact.nn.GraphFilter(1, 1, order=1).double()
        >>> _ = torch.nn.init.constant_(filter_bank.taps, 1.0)
        >>> found = graphact.guarantees.empirical_lipschitz(filter_bank, path, torch.zeros(3, 1, dtype=torch.float64))
        >>> round(found.value, 6)
        3.0
    """
    x, module = _check_inputs(graph, x, generator).reshape(-1, *x.shape[-2:]), as_function(module)
    count = graph.num_nodes * check_integer("starts", starts, minimum=1)
    scale = x.std().nan_to_num().item() or 1.0
    search = _Search(module, graph, _start(x, count, scale, generator))
    radii = [scale * radius for radius in RADII]
    per_radius = -(-check_integer("steps", steps, minimum=1) // len(radii))
    for radius in radii:
        search.perturb(search.x, radius)
        for _ in range(per_radius):
            search.climb(radius)
            search.perturb(search.x + search.perturbation / 2, radius)
    return EmpiricalLipschitz(search.best.max().item(), search.best, *search.pair)


def _start(x: Tensor, count: int, scale: float, generator: torch.Generator | None) -> Tensor:
    """Draw from the given signals and add noise of several sizes."""
    picks = torch.randint(len(x), (count,), generator=generator).to(x.device)
    noise = torch.randn(count, *x.shape[1:], generator=generator, dtype=torch.float64).to(x)
    sizes = torch.tensor(NOISE).to(x).repeat(-(-count // len(NOISE)))[:count]
    return x[picks] + scale * sizes[torch.randperm(count, generator=generator).to(x.device), None, None] * noise


class _Search:
    """A batch of pairs of signals; pair b is optimized for node b modulo N."""

    def __init__(self, module: Model, graph: Graph, x: Tensor) -> None:
        self.module, self.graph, self.x = module, graph, x
        self.perturbation = torch.zeros_like(x)
        self.node = torch.arange(len(x), device=x.device) % graph.num_nodes
        outputs = check_finite("outputs of module", module(x, graph))
        self.output = outputs[torch.arange(len(x)), self.node].abs().argmax(-1)
        self.best = torch.zeros(graph.num_nodes, dtype=x.dtype, device=x.device)
        self.pair = (x[0], x[0])

    def gradient(self, x: Tensor) -> Tensor:
        """Return the gradient of the output that each pair is optimized for."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            watched = self.module(x, self.graph)[torch.arange(len(x)), self.node, self.output]
            return torch.autograd.grad(watched.sum(), x, allow_unused=True)[0].nan_to_num()

    def climb(self, radius: float) -> None:
        """Move the signals to where the slope is larger."""
        uphill = self.gradient(self.x + self.perturbation) - self.gradient(self.x)
        size = uphill.abs().amax((-2, -1), keepdim=True)
        self.x = self.x + 0.5 * radius * torch.where(size > 0, uphill / size.clamp_min(1e-300), 0.0)

    def perturb(self, at: Tensor, radius: float) -> None:
        """Perturb every input by the radius in the direction in which the output rises; score pairs at all nodes."""
        # where nothing depends on an input it may as well move
        self.perturbation = radius * torch.where(self.gradient(at) < 0, -1.0, 1.0).to(at)
        with torch.no_grad():
            ahead = self.x + self.perturbation
            change = (self.module(ahead, self.graph) - self.module(self.x, self.graph)).abs().amax(-1)
            size = (ahead - self.x).abs().amax((-2, -1)).unsqueeze(-1)
            ratio = (change / size).nan_to_num()
            if ratio.max() > self.best.max():
                first = ratio.amax(-1).argmax()
                self.pair = (self.x[first], ahead[first])
            self.best = torch.maximum(self.best, ratio.amax(0))


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
        model: any model that :func:`certify` accepts, with at least two outputs at every node.
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
        network = ClassifierAtSignal(model, graph, x, moving)
    chosen = network.check_nodes(nodes)
    found = []
    with watch(progress) as show:
        for number, node in enumerate(chosen.tolist()):
            found.append(attack_node(network.around(node), *counts, generator))
            show((number + 1) / len(chosen))
    return torch.tensor(found, dtype=torch.float64)


def attack_node(around: ReceptiveField, steps: int, restarts: int, generator: torch.Generator | None) -> float:
    """Return the smallest radius at which another class was found."""
    first, *rest = around.steps
    layer = first.layer  # where it is linear, signals are followed from its output on
    front: Blocks = (replace(layer, bias=None),) if isinstance(layer, Filter | Linear) else ()
    start = first.value
    if front:
        start = rest[0].value if rest else around.network.outputs[around.nodes]
    following: Blocks = tuple(step.layer for step in (rest if front else around.steps))
    decision, moving = int(around.outputs.argmax()), around.is_moving
    order = [rival for rival in around.outputs.argsort(descending=True).tolist() if rival != decision]

    def outputs_at(values: Tensor) -> Tensor:
        return evaluate(following, values, around.graph)[..., around.centre, :]

    def push(moved: Tensor) -> Tensor:
        return evaluate(front, torch.zeros_like(first.value).index_put((moving,), moved), around.graph)

    def gap(outputs: Tensor) -> Tensor:
        return outputs[..., decision] - outputs[..., order].amax(-1)

    best, shape = torch.inf, (int(moving.sum()), first.value.size(1))
    for restart in range(restarts):
        average, radius, stuck = torch.zeros(shape).double(), 0.0, 0
        corner = torch.zeros_like(average)
        if restart >= len(order):
            average = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
        for step in range(steps):
            moved = (radius * corner).requires_grad_()
            with torch.enable_grad():
                outputs = outputs_at(start + push(moved))
                towards = restart < len(order) and step < 2
                goal = outputs[decision] - outputs[order[restart]] if towards else gap(outputs)
                (gradient,) = torch.autograd.grad(goal, moved)
            average = average / 2 + gradient
            with torch.no_grad():
                corner = -average.sign()
                direction = push(corner)
                crossed = first_crossing(lambda r, d=direction: gap(outputs_at(start + r[:, None, None] * d)), best)
            stuck = stuck + 1 if crossed >= best * (1 - 1e-3) else 0
            best = min(best, crossed)
            if stuck >= 2:
                break
            radius = 0.0 if best == torch.inf else best
    return best


def first_crossing(margins: Any, most: float) -> float:
    """Return the least radius found with a margin below 0, up to ``most``."""
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


def empirical_topology(
    module: Model,
    graph: Graph,
    x: Tensor,
    perturbation: Perturbation,
    *,
    draws: int = 20,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Search for the largest change of each node's outputs, ``(N,)``: a lower bound beside :func:`topology_bound`.

    Random perturbations, and one for each of the most sensitive outputs that follows the gradient with respect to the
    weights of the edges.

    Args:
        module: anything called as ``module(x, graph)`` that can be differentiated.
        graph: the graph.
        x: signals, ``(..., N, F)``.
        perturbation: the perturbation of the graph.
        draws: random perturbations, and as many along gradients.
        generator: source of randomness, on the CPU.
    """
    x, module = _check_inputs(graph, x, generator), as_function(module)
    with torch.no_grad():
        before = module(x, graph)
    largest = torch.zeros(graph.num_nodes, dtype=before.dtype, device=before.device)

    def measure(perturbed: Graph) -> Tensor:
        with torch.no_grad():
            return (module(x, perturbed) - before).abs().amax(-1).reshape(-1, graph.num_nodes).amax(0)

    for _ in range(check_integer("draws", draws, minimum=1)):
        largest = largest.maximum(measure(perturbation.draw(graph, generator)))
    edge_index, weight = graph.to_edge_index()
    for node in largest.topk(min(draws, graph.num_nodes)).indices:
        weight = weight.detach().requires_grad_()
        watched = module(x, Graph.from_edge_index(edge_index, weight, graph.num_nodes))[..., node, :]
        if not watched.requires_grad:  # nor on any parameter: no output depends on an edge
            break
        (gradient,) = torch.autograd.grad(watched.flatten()[watched.abs().argmax()], weight, allow_unused=True)
        if gradient is not None:
            for sign in (1.0, -1.0):
                largest = largest.maximum(measure(perturbation.attack(graph, sign * gradient)))
    return largest


def as_function(model: Any) -> Model:
    """Return a model as a function of signals and graph; models of torch and PyG are called with their own arguments.

    Parts for which the second dimension is that of the features are called with one signal after the other.
    """
    function: Model = partial(call_on_graph, model) if is_called_by_kind(model) else model
    parts = model.modules() if isinstance(model, nn.Module) else ()
    if not any(isinstance(part, nn.BatchNorm1d) or getattr(part, "num_parameters", 1) != 1 for part in parts):
        return function

    def one_by_one(x: Tensor, graph: Graph) -> Tensor:
        outputs = torch.stack([function(signal, graph) for signal in x.reshape(-1, *x.shape[-2:])])
        return outputs.view(*x.shape[:-2], *outputs.shape[-2:])

    return one_by_one


def _check_inputs(graph: Graph, x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Check the arguments and return the signals without their history."""
    x = check_finite("x", check_signal(x, check_graph("graph", graph)).detach())
    check_generator(generator)
    return x
