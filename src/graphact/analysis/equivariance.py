"""Does renumbering the nodes renumber the output, and nothing else?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphact._checks import check_generator, check_integer
from graphact.graph import Graph
from graphact.graph.graph import check_graph, check_signal

ROUNDING_STEPS = 1000  # sums over neighbours are taken in another order; their rounding errors pass through all layers


@dataclass(frozen=True)
class Equivariance:
    """The verdict.

    Attributes:
        deviation: the largest difference between the output of the renumbered graph and the renumbered output.
        tolerance: what rounding may explain: 1000 units in the last place of the largest output.
        permutations: how many were tried.
    """

    deviation: float
    tolerance: float
    permutations: int

    @property
    def holds(self) -> bool:
        """Whether every deviation is within rounding."""
        return self.deviation <= self.tolerance

    def __str__(self) -> str:
        verdict = "equivariant" if self.holds else "NOT equivariant"
        return (
            f"{verdict}: largest deviation {self.deviation:.2g} over {self.permutations} permutations, "
            f"rounding explains {self.tolerance:.2g}"
        )


def check_equivariance(
    model: Callable[[Tensor, Graph], Any],
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
        >>> graphact.analysis.check_equivariance(graphact.nn.GCNN([1, 4], activation="median-ga"), graph, x).holds
        True
        >>> first_node_differs = lambda x, graph: x * torch.arange(10).unsqueeze(-1)
        >>> graphact.analysis.check_equivariance(first_node_differs, graph, x).holds
        False
    """
    graph = check_graph("graph", graph)
    x = check_signal(x, graph)
    check_generator(generator)
    with torch.no_grad():
        expected = model(x, graph)
        largest = 0.0
        for _ in range(check_integer("permutations", permutations, minimum=1)):
            perm = torch.randperm(graph.num_nodes, generator=generator).to(graph.device)
            actual = model(x[..., perm, :], graph.permute(perm))
            difference = (actual - expected[..., perm, :]).abs().max().item()
            largest = difference if difference != difference else max(largest, difference)
    scale = max(1.0, expected.abs().max().item())
    return Equivariance(largest, ROUNDING_STEPS * torch.finfo(expected.dtype).eps * scale, permutations)
