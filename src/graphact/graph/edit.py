"""Graphs made from graphs: renumbered, thinned, put side by side. All work on entries (target, source, weight)."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphact._checks import check_generator, check_probability
from graphact.graph.build import as_tensor

if TYPE_CHECKING:
    from graphact.graph.graph import Graph

Entries = tuple[Tensor, Tensor, Tensor, int]


def permute(target: Tensor, source: Tensor, weight: Tensor, perm: Any, num_nodes: int) -> Entries:
    """Entries of the graph whose node a is node ``perm[a]`` of the given one."""
    perm = as_tensor("perm", perm).to(target.device)
    if perm.is_floating_point() or perm.is_complex() or perm.dtype == torch.bool:
        raise TypeError(f"perm must hold integers, got {perm.dtype}")
    perm = perm.to(torch.int64)
    nodes = torch.arange(num_nodes, device=target.device)
    if perm.shape != (num_nodes,) or not torch.equal(perm.sort().values, nodes):
        raise ValueError(f"perm must hold each of 0 to {num_nodes - 1} once, got {perm.tolist()[:10]}")
    position = torch.empty_like(nodes)
    position[perm] = nodes
    return position[target], position[source], weight, num_nodes


def drop_edges(
    target: Tensor, source: Tensor, weight: Tensor, p: float, generator: torch.Generator | None, num_nodes: int
) -> Entries:
    """Entries that remain when each link is lost with probability p, both directions together."""
    p = check_probability("p", p)
    check_generator(generator)
    low, high = torch.minimum(target, source), torch.maximum(target, source)
    links, link = torch.unique(low * num_nodes + high, return_inverse=True)
    kept = torch.rand(links.numel(), generator=generator).to(target.device) >= p
    keep = kept[link] | (target == source)
    return target[keep], source[keep], weight[keep], num_nodes


def union(graphs: "list[Graph]") -> Entries:
    """Entries of the disjoint union."""
    if not graphs:
        raise ValueError("graphs must hold at least one graph, got none")
    first = graphs[0]
    for graph in graphs:
        if not hasattr(graph, "_entries"):
            raise TypeError(f"graphs must hold graphact.Graph objects, got {type(graph).__name__}")
        if graph.dtype != first.dtype or graph.device != first.device:
            raise ValueError(
                f"graphs must agree in dtype and device, got {first.dtype} on {first.device} "
                f"and {graph.dtype} on {graph.device}"
            )
    entries = [graph._entries() for graph in graphs]
    offsets = torch.tensor([0] + [graph.num_nodes for graph in graphs]).cumsum(0).tolist()
    target = torch.cat([entry[0] + offset for entry, offset in zip(entries, offsets, strict=False)])
    source = torch.cat([entry[1] + offset for entry, offset in zip(entries, offsets, strict=False)])
    return target, source, torch.cat([entry[2] for entry in entries]), offsets[-1]


def narrow_order(target: Tensor, source: Tensor, num_nodes: int) -> Tensor:
    """An order of the nodes in which neighbours stand near each other: reverse Cuthill-McKee, by SciPy."""
    import numpy as np
    import scipy.sparse
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    ends = (target.cpu().numpy(), source.cpu().numpy())
    ones = np.ones(len(ends[0]), dtype=np.int8)
    pattern = scipy.sparse.csr_array((ones, ends), shape=(num_nodes, num_nodes))
    order = reverse_cuthill_mckee(pattern + pattern.T, symmetric_mode=True)
    return torch.from_numpy(order.astype(np.int64)).to(target.device)
