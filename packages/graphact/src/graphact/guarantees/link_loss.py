"""Every loss of few links tried: the change of a network's outputs, exact but for rounding.

The outputs of a node depend on links within reach only, so only the sets of links are tried that are all within reach
of some node. Each set is evaluated on the nodes near its links, many sets side by side. Layer by layer, values out of
reach of the lost links are reset to those of the whole graph, so missing neighbours at the rim of such a subgraph do no
harm.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact.graph import Graph
from graphact.guarantees.layers import EPSILON, Layers, evaluate, walk_errors, widths
from graphact.guarantees.rules import MAX_ENTRIES
from graphact.spec import Filter, HopMixture, Linear, Pointwise
from graphact.spec.reductions import KERNEL, MAX, MEDIAN, MIN

MAX_WORK = 2_000_000_000  # values (sets, nodes in reach, signals, features of all layers): a minute or two
ENUMERATED = {MAX, MIN, MEDIAN, KERNEL}  # with any other operation, losses are not tried and bounds are not exact
MAX_REACHES = 10 * MAX_ENTRIES  # links times nodes, where sets have several links: 200 MB


@dataclass(frozen=True, eq=False)
class LinkList:
    """The links of a graph: pairs of nodes of which at least one reads the other."""

    graph: Graph

    def __len__(self) -> int:
        return self.ends.size(0)

    @cached_property
    def ends(self) -> Tensor:
        """The nodes of each link, ``(C, 2)``, the lower number first."""
        names = torch.unique(self._names)
        return torch.stack([names // self.graph.num_nodes, names % self.graph.num_nodes], 1)

    @cached_property
    def link_per_edge(self) -> Tensor:
        """The link of each edge, in the order of ``to_edge_index``; C for a self-loop, which cannot be lost."""
        source, target = self.graph.to_edge_index()[0]
        links = torch.full_like(source, len(self))
        links[source != target] = torch.unique(self._names, return_inverse=True)[1]
        return links

    @property
    def _names(self) -> Tensor:
        edge_index = self.graph.to_edge_index()[0]
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        return edge_index.amin(0) * self.graph.num_nodes + edge_index.amax(0)

    @cached_property
    def _adjacency(self) -> Any:
        ends = self.ends.numpy()
        one_way = scipy.sparse.csr_array((np.ones(len(ends), np.float32), ends.T), shape=(self.graph.num_nodes,) * 2)
        return (one_way + one_way.T).tocsr()

    def distances(self, sets: Tensor, farthest: int) -> Tensor:
        """Return the undirected hops from each set ``(n, t)`` to every node, ``(n, N)``, at most ``farthest`` + 1."""
        reached = torch.zeros(len(sets), self.graph.num_nodes, dtype=torch.bool)
        reached.scatter_(1, self.ends[sets].flatten(1), True)
        hops = torch.where(reached, 0, farthest + 1)
        for hop in range(1, farthest + 1):
            near = torch.from_numpy((self._adjacency @ reached.T.float().numpy()).T) > 0
            hops[near & ~reached] = hop
            if not (near & ~reached).any():
                break
            reached |= near
        return hops


def enumerate_losses(
    layers: Layers, graph: Graph, x: Tensor, count: int, limit: int | None, *, adds_up: bool = False
) -> tuple[Tensor, Tensor] | None:
    """Lose up to ``count`` links in every way; return None if that takes more than ``limit`` sets or :data:`MAX_WORK`.

    The results are the largest change at each node ``(N,)``, enlarged by bounds of rounding errors, and the links
    ``(t, 2)`` whose loss changes an output most. Where ``adds_up``, the first signal is 0, and what the others
    ``(B, N, F)`` change beyond it is added up: what a linear network with biases can make of their sum with any signs.
    """
    links = LinkList(graph)
    if (sets := sets_of_links(links, layers, x, count, limit)) is None:
        return None
    trial = LossEvaluator(layers, links, x, adds_up)
    best, worst = -1.0, links.ends[:0]
    largest = x.new_full((graph.num_nodes,), -1.0)
    for part in (chunk for level in sets for chunk in level.split(trial.at_once)):
        changes = trial.changes(part)
        largest = largest.maximum(changes.amax(0))
        if (found := changes.amax(1).max().item()) > best:
            best, worst = found, links.ends[part[changes.amax(1).argmax()]]
    _, rounding_error = walk_errors(
        layers, x.abs().amax(0), torch.zeros_like(x[0]), graph
    )  # on any graph with fewer links
    rounding_error = 2 * rounding_error.amax(-1)  # on two graphs
    if adds_up:  # that of 0 is subtracted from all others; then the sum itself
        rounding_error = 2 * len(x) * rounding_error + len(x) * EPSILON * largest.clamp_min(0)
    return torch.where(largest < 0, 0.0, largest + rounding_error), worst


def is_enumerable(layers: Layers) -> bool:
    """Return True if all layers are filters, linear maps, ReLU or activations of enumerated operations."""
    return all(
        type(layer) in (Filter, Linear)
        or (type(layer) is Pointwise and layer.function == "relu")
        or (type(layer) is HopMixture and layer.operation in ENUMERATED)
        for layer in layers
    )


def is_linear(layers: Layers) -> bool:
    """Return True if a network is one affine map."""
    return all(isinstance(layer, Filter | Linear) for layer in layers)


def reach_per_layer(layers: Layers) -> list[int]:
    """Return how many hops from the ends of a lost link the output of each layer can change: 0 after one exchange."""
    return [max(0, reach - 1) for reach in accumulate(layer.exchanges for layer in layers)]


def sets_of_links(links: LinkList, layers: Layers, x: Tensor, count: int, limit: int | None) -> list[Tensor] | None:
    """Return the sets ``(n, t)`` for t = 1..count that must be tried; None if there are too many."""
    total, reach = sum(layer.exchanges for layer in layers), reach_per_layer(layers)[-1] if layers else 0
    if total == 0 or len(links) == 0:
        return []
    at_a_node = x.size(0) * (x.size(-1) + sum(widths(layers, x.size(-1))))

    def too_many(sets: int, nodes: float) -> bool:
        return sets > limit if limit is not None else sets * nodes * at_a_node > MAX_WORK

    sample = torch.arange(0, len(links), max(1, len(links) // 64)).unsqueeze(1)
    rim = _rim(layers)
    nodes = (links.distances(sample, rim) <= rim).sum(1).double().mean().item()
    level = torch.arange(len(links)).unsqueeze(1)
    sets, number = [level], len(links)
    if too_many(number, nodes) or (count > 1 and len(links) * links.graph.num_nodes > MAX_REACHES):
        return None
    if count > 1:
        reached = links.distances(level, reach) <= reach
        common, masks = reached, reached.float()
    for size in range(2, min(count, len(links)) + 1):
        pairs, step = [], max(1, MAX_ENTRIES // len(links))
        for first in range(0, len(level), step):
            part = level[first : first + step]
            meet = common[first : first + step].float() @ masks.T > 0
            pairs.append((meet & (torch.arange(len(links)) > part[:, -1:])).nonzero() + torch.tensor([first, 0]))
            number += len(pairs[-1])
            if too_many(number, min(size * nodes, links.graph.num_nodes)):
                return None
        chosen = torch.cat(pairs)
        level = torch.cat([level[chosen[:, 0]], chosen[:, 1:]], 1)
        if len(level) == 0:
            break
        sets.append(level)
        if size < count:
            if len(level) * links.graph.num_nodes > MAX_REACHES:
                return None
            common = common[chosen[:, 0]] & reached[chosen[:, 1]]
    return sets


def _rim(layers: Layers) -> int:
    """Return the hops from lost links within which values must be known to compute those that change."""
    return max(
        (reach + layer.exchanges for reach, layer in zip(reach_per_layer(layers), layers, strict=True)), default=0
    )


class LossEvaluator:
    """A network at given signals, evaluated layer by layer on the whole graph and on graphs that lost links."""

    def __init__(self, layers: Layers, links: LinkList, x: Tensor, adds_up: bool) -> None:
        self.layers, self.links, self.x, self.adds_up = layers, links, x, adds_up
        self.outputs, values = [], x
        for layer in layers:
            values = evaluate((layer,), values, links.graph)
            self.outputs.append(values)
        width = max([x.size(-1), *widths(layers, x.size(-1))])
        largest = max(2 * x.size(0) * width * links.graph.num_nodes, 4 * links.graph.num_edges)
        self.at_once = max(1, MAX_ENTRIES // largest)
        self.reach, self.rim = reach_per_layer(layers), _rim(layers)

    def changes(self, sets: Tensor) -> Tensor:
        """Return the largest change at each node, ``(n, N)``, by losing each set ``(n, t)``; -1 out of its reach."""
        hops = self.links.distances(sets, self.rim)
        where = (hops <= self.rim).nonzero(as_tuple=True)
        _, node = where
        graph, hops_there = self._without(sets, hops <= self.rim), hops[where].unsqueeze(-1)
        values = self.x[:, node]
        for layer, reach, before in zip(self.layers, self.reach, self.outputs, strict=True):
            values = evaluate((layer,), values, graph)
            values = torch.where(hops_there <= reach, values, before[:, node])
        change = values - self.outputs[-1][:, node]
        # that of all signals is affine: a constant, which biases in front of filters make, and a sum over inputs
        every = change[0].abs() + (change[1:] - change[0]).abs().sum(0) if self.adds_up else change.abs().amax(0)
        largest = torch.where(hops_there.squeeze(-1) <= self.reach[-1], every.amax(-1), -1.0)
        return torch.full(hops.shape, -1.0, dtype=largest.dtype).index_put(where, largest)

    def _without(self, sets: Tensor, inside: Tensor) -> Graph:
        """Return the nodes ``inside`` ``(n, N)`` as one graph, set by set, each part without the links of its set."""
        (source, target), weight = self.links.graph.to_edge_index()
        lost = torch.zeros(len(sets), len(self.links) + 1, dtype=torch.bool).scatter_(1, sets, True)
        kept = inside[:, source] & inside[:, target] & ~lost[:, self.links.link_per_edge]
        part, edge = kept.nonzero(as_tuple=True)
        number = inside.flatten().cumsum(0).view_as(inside) - 1
        edge_index = torch.stack([number[part, source[edge]], number[part, target[edge]]])
        return Graph.from_edge_index(edge_index, weight[edge], num_nodes=int(inside.sum()))
