"""Looking for what a certificate says cannot happen: how much of it is slack?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_generator, check_integer
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal


@dataclass(frozen=True, eq=False)
class Attack:
    """What perturbations within a radius were found to do.

    Attributes:
        changed: ``(..., N)``, the nodes whose largest output became another one.
        lower: ``(..., N, O)``, the lowest outputs seen.
        upper: ``(..., N, O)``, the highest outputs seen.
    """

    changed: Tensor
    lower: Tensor
    upper: Tensor


def attack(
    model: Callable[[Tensor, Graph], Any],
    graph: Graph,
    x: Tensor,
    radius: float,
    *,
    steps: int = 10,
    generator: torch.Generator | None = None,
) -> Attack:
    """Search a box around signals for other decisions and for extreme outputs.

    Signed gradient steps raise and lower all outputs and bring each node's second class before its first; random
    corners of the box are tried as well. What is found is a lower bound on what is possible, as
    :func:`~graphact.analysis.certify` gives upper bounds.

    Args:
        model: anything called as ``model(x, graph)`` that can be differentiated.
        graph: the graph.
        x: signals, ``(..., N, F)``.
        radius: the largest change of any input.
        steps: gradient steps of each search, and random corners.
        generator: source of randomness, on the CPU.
    """
    graph = check_graph("graph", graph)
    x = check_signal(x, graph).detach()
    check_generator(generator)
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
