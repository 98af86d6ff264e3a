"""The synthetic graphs of the paper: connected stochastic block models."""

from dataclasses import dataclass

import torch

from graphact._checks import check_integer, check_probability
from graphact.graph import Graph

WITHIN = 0.8
BETWEEN = 0.1
ATTEMPTS = 1000


@dataclass(frozen=True)
class BlockModel:
    """Communities of equal size: their number, their size, and how likely an edge is within and between them."""

    communities: int
    community_size: int
    p: float = WITHIN
    q: float = BETWEEN

    def __post_init__(self) -> None:
        for name in ("communities", "community_size"):
            check_integer(name, getattr(self, name), minimum=1)
        for name in ("p", "q"):
            check_probability(name, getattr(self, name))

    def draw(self, generator: torch.Generator) -> Graph:
        """Draw until the graph is connected; see :func:`community_graph`."""
        return community_graph(self.communities, self.community_size, generator, p=self.p, q=self.q)


def community_graph(
    communities: int, size: int, generator: torch.Generator, *, p: float = WITHIN, q: float = BETWEEN
) -> Graph:
    """Draw communities of equal size until the graph is connected; S is the adjacency over its largest eigenvalue.

    Two nodes share an edge with probability p within a community and q between communities. Redrawing uses the
    same generator, so the result depends on its seed alone. Weights are float64.
    """
    for _ in range(ATTEMPTS):
        graph = Graph.stochastic_block_model([size] * communities, p=p, q=q, generator=generator)
        if is_connected(graph):
            return graph.to(dtype=torch.float64).normalize("spectral")
    raise ValueError(
        f"no connected graph of {communities} communities of {size} nodes came in {ATTEMPTS} draws; "
        f"size, communities or edge probabilities (p = {p}, q = {q}) must be larger"
    )


def is_connected(graph: Graph) -> bool:
    """Return whether every node can be reached from every other."""
    import scipy.sparse

    pattern = scipy.sparse.csr_array(graph.to_dense().numpy())
    components, _ = scipy.sparse.csgraph.connected_components(pattern, directed=False)
    return bool(components == 1)
