r"""Certified radii: how far features can move before the class of a node changes, and upper bounds from attacks.

Write :math:`\Delta` for the difference to the given signal. Backward through the layers, the margin between two
classes of one node is bounded below by a linear function of the input of each layer,
:math:`\Delta m \ge \langle A, \Delta z \rangle - c`: linear layers are exact, and a nonlinearity lies between lines
that hold for :math:`|\Delta z| \le r \rho`, the reach of an input that moves by r. At the input
:math:`\langle A, \Delta x \rangle \ge -r \|A\|_1`. The proofs are in docs/guarantees.md.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphact._checks import check_generator, check_integer
from graphact.graph import Graph
from graphact.guarantees.backward import Backward, ClassifierAtSignal, LayerState, Lines, Moving, ReceptiveField
from graphact.guarantees.layers import Blocks
from graphact.guarantees.reading import evaluate
from graphact.progress import live_bars
from graphact.spec import Filter, Linear

Progress = Callable[[float], None]  # called with the share of the nodes that is done
ROUNDING = 1e-9  # of outputs and losses, by which margins must be above 0 beside the bounds of rounding errors
PRECISION = 0.01  # the largest radius that can be certified is found up to this part of it
MAX_TRIALS = 30
CLOSE = 1.5  # rivals that are tried together: radii from their constants, in units of the smallest


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


def attack_node(around: ReceptiveField, steps: int, restarts: int, generator: torch.Generator | None) -> float:
    """Return the smallest radius at which another class was found."""
    first, *rest = around.steps
    linear = without_bias(first.layer) if isinstance(first.layer, Filter | Linear) else None
    start = first.value
    if linear is not None:
        start = rest[0].value if rest else around.network.outputs[around.nodes]
    following: Blocks = tuple(step.layer for step in (around.steps if linear is None else rest))
    decision, moving = int(around.outputs.argmax()), around.is_moving
    order = [rival for rival in around.outputs.argsort(descending=True).tolist() if rival != decision]

    def outputs_at(values: Tensor) -> Tensor:
        return evaluate(following, values, around.graph)[..., around.centre, :]

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
            average = average / 2 + (gradient[moving] if linear is None else around.pull(linear, gradient))
            with torch.no_grad():
                direction = torch.zeros_like(start)
                if linear is None:
                    direction[moving] = -average.sign()
                else:
                    direction = around.push(linear, -average.sign())
                crossed = first_crossing(lambda r, d=direction: gap(outputs_at(start + r[:, None, None] * d)), best)
            stuck = stuck + 1 if crossed >= best * (1 - 1e-3) else 0
            best = min(best, crossed)
            if stuck >= 2:
                break
            radius = 0.0 if best == torch.inf else best
    return best


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


def without_bias(layer: Filter | Linear) -> Filter | Linear:
    """Return a linear layer as it acts on differences."""
    return replace(layer, bias=None)
