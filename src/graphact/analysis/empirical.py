"""How large the Lipschitz constant is at least: gradient ascent on the ratio of differences."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_generator, check_integer
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal

NOISE = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0)  # how far from the given signals the search starts, in their own scale
RADII = (1.0, 0.3, 0.1, 0.03, 0.01)  # sizes of the perturbation during the ascent, in the same scale


@dataclass(frozen=True, eq=False)
class EmpiricalLipschitz:
    """The largest ratio found, a lower bound on every Lipschitz constant, with the pair of signals that attains it.

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
    module: Callable[[Tensor, Graph], Any],
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
        >>> found = graphact.analysis.empirical_lipschitz(filter_bank, path, torch.zeros(3, 1, dtype=torch.float64))
        >>> round(found.value, 6)
        3.0
    """
    graph = check_graph("graph", graph)
    x = check_signal(x, graph).detach().flatten(0, -3) if x.dim() > 2 else check_signal(x, graph).detach()[None]
    check_generator(generator)
    count = graph.num_nodes * check_integer("starts", starts, minimum=1)
    scale = x.std().nan_to_num().item() or 1.0
    search = _Search(module, graph, _start(x, count, scale, generator))
    radii = [scale * radius for radius in RADII]
    per_radius = -(-check_integer("steps", steps, minimum=1) // len(radii))
    for radius in radii:
        search.point_along_gradient(radius)
        for _ in range(per_radius):
            search.step(radius)
    return search.result()


def _start(x: Tensor, count: int, scale: float, generator: torch.Generator | None) -> Tensor:
    """Signals drawn from the given ones, with noise of several sizes."""
    picks = torch.randint(len(x), (count,), generator=generator).to(x.device)
    noise = torch.randn(count, *x.shape[1:], generator=generator, dtype=torch.float64).to(x)
    sizes = torch.tensor(NOISE).to(x).repeat(-(-count // len(NOISE)))[:count]
    return x[picks] + scale * sizes[torch.randperm(count, generator=generator).to(x.device), None, None] * noise


class _Search:
    """A batch of pairs of signals; pair b looks at node b modulo N."""

    def __init__(self, module: Callable[[Tensor, Graph], Any], graph: Graph, x: Tensor) -> None:
        self.module, self.graph, self.x = module, graph, x
        self.perturbation = torch.zeros_like(x)
        self.node = torch.arange(len(x), device=x.device) % graph.num_nodes
        self.output = self._call(x)[torch.arange(len(x)), self.node].abs().argmax(-1)
        self.best = torch.zeros(graph.num_nodes, dtype=x.dtype, device=x.device)
        self.pair = (x[0], x[0])

    def _call(self, x: Tensor) -> Tensor:
        return self.module(x, self.graph)

    def _gradient(self, x: Tensor) -> Tensor:
        """The gradient of the output that each pair looks at."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            watched = self._call(x)[torch.arange(len(x)), self.node, self.output]
            return torch.autograd.grad(watched.sum(), x, allow_unused=True)[0].nan_to_num()

    def point_along_gradient(self, radius: float) -> None:
        """Perturb every input by the radius, in the direction that the output rises."""
        self.perturbation = radius * _signs(self._gradient(self.x))
        self.measure()

    def step(self, radius: float) -> None:
        """Move to where the slope is larger, then turn the perturbation."""
        ahead, here = self._gradient(self.x + self.perturbation), self._gradient(self.x)
        uphill = ahead - here
        size = uphill.abs().amax((-2, -1), keepdim=True)
        self.x = self.x + 0.5 * radius * torch.where(size > 0, uphill / size.clamp_min(1e-300), 0.0)
        self.perturbation = radius * _signs(self._gradient(self.x + self.perturbation / 2))
        self.measure()

    @torch.no_grad()
    def measure(self) -> None:
        """Remember the largest ratios; every pair counts at every node."""
        ahead = self.x + self.perturbation
        change = (self._call(ahead) - self._call(self.x)).abs().amax(-1)
        size = (ahead - self.x).abs().amax((-2, -1)).unsqueeze(-1)
        ratio = (change / size).nan_to_num()
        if ratio.max() > self.best.max():
            first = ratio.amax(-1).argmax()
            self.pair = (self.x[first], ahead[first])
        self.best = torch.maximum(self.best, ratio.amax(0))

    def result(self) -> EmpiricalLipschitz:
        """What was found."""
        return EmpiricalLipschitz(self.best.max().item(), self.best, *self.pair)


def _signs(x: Tensor) -> Tensor:
    """Plus or minus one; where nothing depends on an input it may as well move."""
    return torch.where(x < 0, -1.0, 1.0).to(x)
