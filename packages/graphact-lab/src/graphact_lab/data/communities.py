"""The synthetic graphs of the paper: connected stochastic block models."""

from dataclasses import dataclass

import torch

from graphact._checks import check_integer, check_probability
from graphact.graph import Graph

ATTEMPTS = 1000


@dataclass(frozen=True)
class BlockModel:
    """Communities of equal size: their number, their size, and how likely an edge is within and between them."""

    communities: int
    community_size: int
    p: float = 0.8
    q: float = 0.1

    def __post_init__(self) -> None:
        for name in ("communities", "community_size"):
            check_integer(name, getattr(self, name), minimum=1)
        for name in ("p", "q"):
            check_probability(name, getattr(self, name))

    def draw(self, generator: torch.Generator) -> Graph:
        """Draw until the graph is connected; S is the adjacency over its largest eigenvalue.

        Redrawing uses the same generator, so the result depends on its seed alone. Weights are float64.
        """
        sizes = [self.community_size] * self.communities
        for _ in range(ATTEMPTS):
            graph = Graph.stochastic_block_model(sizes, p=self.p, q=self.q, generator=generator)
            if is_connected(graph):
                return graph.to(dtype=torch.float64).normalize("spectral")
        raise ValueError(
            f"no connected graph of {self.communities} communities of {self.community_size} nodes came in {ATTEMPTS} "
            f"draws; community_size, communities or edge probabilities (p = {self.p}, q = {self.q}) must be larger"
        )


def is_connected(graph: Graph) -> bool:
    """Return whether every node can be reached from every other."""
    import scipy.sparse

    pattern = scipy.sparse.csr_array(graph.to_dense().numpy())
    components, _ = scipy.sparse.csgraph.connected_components(pattern, directed=False)
    return bool(components == 1)
