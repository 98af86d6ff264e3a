"""Which process holds which node."""

import importlib.util
from typing import Any, Literal

import numpy as np

from graphact._checks import check_choice, check_integer
from graphact.graph import Graph

Array = np.ndarray[Any, Any]
Method = Literal["auto", "metis", "blocks"]
METHODS = ("auto", "metis", "blocks")


def assign_nodes(graph: Graph, parts: int, method: Method = "auto") -> tuple[Array, str]:
    """Share the nodes of a graph among ``parts`` processes.

    Args:
        graph: the graph.
        parts: number of processes; there may be more than nodes.
        method: ``"metis"`` cuts as few edges as it can (needs the package pymetis); ``"blocks"`` gives each process
            consecutive nodes, with about equally many edges; ``"auto"`` takes METIS where it is installed.

    Returns:
        The process of each node, ``(N,)``, and the method that was used.

    Example:
        >>> import graphact
        >>> from graphact.scaleout import assign_nodes
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> assign_nodes(path, 2, "blocks")
        (array([0, 0, 1, 1], dtype=int32), 'blocks')
    """
    check_choice("method", method, METHODS)
    check_integer("parts", parts, minimum=1)
    installed = importlib.util.find_spec("pymetis") is not None
    if method == "metis" and not installed:
        raise ValueError('method "metis" needs the package pymetis: pip install "graphact[scaleout]"')
    if method == "metis" or (method == "auto" and installed):
        return metis(graph, parts), "metis"
    return blocks(graph, parts), "blocks"


def blocks(graph: Graph, parts: int) -> Array:
    """Consecutive nodes, cut so that rows and edges together are shared equally."""
    work = np.cumsum(graph.degree.cpu().numpy() + 1)
    # the middle of a node's own work decides where it goes
    middle = work - (graph.degree.cpu().numpy() + 1) / 2
    return np.minimum(middle * parts / work[-1], parts - 1).astype(np.int32)


def metis(graph: Graph, parts: int) -> Array:
    """Few edges between the parts; an edge counts whichever way it points."""
    import pymetis
    import scipy.sparse

    if parts == 1:
        return np.zeros(graph.num_nodes, np.int32)
    pointers, members = (part.cpu().numpy() for part in (graph.incoming.pointers, graph.incoming.members))
    if graph.is_directed:
        shape = (graph.num_nodes, graph.num_nodes)
        links = scipy.sparse.csr_array((np.ones(len(members), np.int8), members, pointers), shape=shape)
        links = (links + links.T).tocsr()
        pointers, members = links.indptr, links.indices
    adjacency = pymetis.CSRAdjacency(pointers.astype(np.int32), members.astype(np.int32))
    return np.asarray(pymetis.part_graph(parts, adjacency=adjacency)[1], dtype=np.int32)
