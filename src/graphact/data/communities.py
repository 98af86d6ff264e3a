"""The synthetic graphs of the paper: connected stochastic block models."""

import torch

from graphact.graph import Graph

WITHIN = 0.8
BETWEEN = 0.1
ATTEMPTS = 1000


def community_graph(communities: int, size: int, generator: torch.Generator) -> Graph:
    """Draw communities of equal size until the graph is connected; S is the adjacency over its largest eigenvalue.

    Two nodes share an edge with probability 0.8 within a community and 0.1 between communities. Redrawing uses the
    same generator, so the result depends on its seed alone. Weights are float64.
    """
    for _ in range(ATTEMPTS):
        graph = Graph.stochastic_block_model([size] * communities, p=WITHIN, q=BETWEEN, generator=generator)
        if is_connected(graph):
            return graph.to(dtype=torch.float64).normalize("spectral")
    raise ValueError(
        f"no connected graph of {communities} communities of {size} nodes came in {ATTEMPTS} draws; "
        "size and communities must be larger"
    )


def is_connected(graph: Graph) -> bool:
    """Whether every node can be reached from every other."""
    import scipy.sparse

    pattern = scipy.sparse.csr_array(graph.to_dense().numpy())
    components, _ = scipy.sparse.csgraph.connected_components(pattern, directed=False)
    return bool(components == 1)
