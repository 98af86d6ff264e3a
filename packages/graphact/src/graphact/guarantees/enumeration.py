"""Every way to lose links, tried: the largest change of the outputs for given signals, exact but for rounding.

A node's outputs depend on links within reach only, so the sets of links are tried that reach some node all together;
what a node makes of the others it makes of a smaller set. Each set has a graph of its own, the nodes near its links,
and many of these are evaluated side by side. Layer by layer, values that no lost link has reached are put back to what
they are on the whole graph, so that the rim of a small graph, where neighbours are missing, does no harm.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact.functional import graph_adaptive, localized
from graphact.graph import Graph
from graphact.guarantees.description import KnownLayer, Layers, hops_of, widths
from graphact.guarantees.powers import matrix_of
from graphact.guarantees.rules import MOST_ENTRIES, OPERATIONS, GaussianKernel, OrderStatistic
from graphact.guarantees.zonotope import Zonotope, values_behind
from graphact.spec import Filter, HopMixture, Linear, Pointwise
from graphact.spec.operations import KERNEL

MOST_WORK = 2_000_000_000  # values (sets, nodes in reach, signals, features of all layers): a minute or two
MOST_REACHES = 10 * MOST_ENTRIES  # links times nodes, where sets have several links: 200 MB
EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Links:
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
    def of_edges(self) -> Tensor:
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
        """Hops, against edges as well, from a set ``(n, t)`` to every node, ``(n, N)``; no more than farthest + 1."""
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


@dataclass(frozen=True, eq=False)
class Enumeration:
    """What was found, with every set tried.

    Attributes:
        per_node: ``(N,)``, the largest change at each node, moved up by what rounding can do.
        worst: ``(t, 2)``, the links whose loss changes an output most.
        sets: how many were tried.
    """

    per_node: Tensor
    worst: Tensor
    sets: int


def enumerate_losses(
    layers: Layers, graph: Graph, x: Tensor, count: int, limit: int | None, *, adds_up: bool = False
) -> Enumeration | None:
    """Lose up to ``count`` links in every way; None where that takes more than ``limit`` sets, or :data:`MOST_WORK`.

    Where ``adds_up``, the first signal is 0, and what the others ``(B, N, F)`` change beyond it is added up: what a
    linear network with biases can make of their sum with any signs.
    """
    links = Links(graph)
    if (sets := sets_of_links(links, layers, x, count, limit)) is None:
        return None
    trial = Trial(layers, links, x, adds_up)
    best, worst = -1.0, links.ends[:0]
    largest = x.new_full((graph.num_nodes,), -1.0)
    for part in (chunk for level in sets for chunk in level.split(trial.at_once)):
        changes = trial.changes(part)
        largest = largest.maximum(changes.amax(0))
        if (found := changes.amax(1).max().item()) > best:
            best, worst = found, links.ends[part[changes.amax(1).argmax()]]
    lost = 2 * lost_by_rounding(layers, x, graph)  # on two graphs
    if adds_up:  # that of 0 is subtracted from all others; then the sum itself
        lost = 2 * len(x) * lost + len(x) * EPSILON * largest.clamp_min(0)
    per_node = torch.where(largest < 0, 0.0, largest + lost)
    return Enumeration(per_node, worst, sum(map(len, sets)))


def is_known(layers: Layers) -> bool:
    """Whether all layers are of the kinds that this module and :mod:`graphact.guarantees.shares` were written for."""
    return all(
        type(layer) in (Filter, Linear)
        or (type(layer) is Pointwise and layer.function == "relu")
        or (type(layer) is HopMixture and type(OPERATIONS[layer.operation]) in (OrderStatistic, GaussianKernel))
        for layer in layers
    )


def is_linear(layers: Layers) -> bool:
    """Whether a network is one linear map, but for a constant."""
    return all(isinstance(layer, Filter | Linear) for layer in layers)


def reach_of(layers: Layers) -> list[int]:
    """How far values behind each layer depend on links, in hops from their ends: behind an exchange, the end itself."""
    return [max(0, reach - 1) for reach in accumulate(layer.exchanges for layer in layers)]


def sets_of_links(links: Links, layers: Layers, x: Tensor, count: int, limit: int | None) -> list[Tensor] | None:
    """The sets ``(n, t)`` for t = 1..count that have to be tried; None where there are too many."""
    total, reach = sum(layer.exchanges for layer in layers), reach_of(layers)[-1] if layers else 0
    if total == 0 or len(links) == 0:
        return []
    at_a_node = x.size(0) * (x.size(-1) + sum(widths(layers, x.size(-1))))

    def too_many(sets: int, nodes: float) -> bool:
        return sets > limit if limit is not None else sets * nodes * at_a_node > MOST_WORK

    sample = torch.arange(0, len(links), max(1, len(links) // 64)).unsqueeze(1)
    rim = _rim(layers)
    nodes = (links.distances(sample, rim) <= rim).sum(1).double().mean().item()
    level = torch.arange(len(links)).unsqueeze(1)
    sets, number = [level], len(links)
    if too_many(number, nodes) or (count > 1 and len(links) * links.graph.num_nodes > MOST_REACHES):
        return None
    if count > 1:
        reached = links.distances(level, reach) <= reach
        common, masks = reached, reached.float()
    for size in range(2, min(count, len(links)) + 1):
        pairs, step = [], max(1, MOST_ENTRIES // len(links))
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
            if len(level) * links.graph.num_nodes > MOST_REACHES:
                return None
            common = common[chosen[:, 0]] & reached[chosen[:, 1]]
    return sets


def _rim(layers: Layers) -> int:
    """How far from lost links nodes must be known: those that change behind a layer read that many hops."""
    return max((reach + layer.exchanges for reach, layer in zip(reach_of(layers), layers, strict=True)), default=0)


class Trial:
    """A network for given signals, known layer by layer on the whole graph, tried on graphs that lost links."""

    def __init__(self, layers: Layers, links: Links, x: Tensor, adds_up: bool) -> None:
        self.layers, self.links, self.x, self.adds_up = layers, links, x, adds_up
        self.behind, values = [], x
        for layer in layers:
            values = evaluate(layer, values, links.graph)
            self.behind.append(values)
        width = max([x.size(-1), *widths(layers, x.size(-1))])
        largest = max(2 * x.size(0) * width * links.graph.num_nodes, 4 * links.graph.num_edges)
        self.at_once = max(1, MOST_ENTRIES // largest)
        self.reach, self.rim = reach_of(layers), _rim(layers)

    def changes(self, sets: Tensor) -> Tensor:
        """The largest change at each node, ``(n, N)``, by the loss of each set ``(n, t)``; -1 out of its reach."""
        hops = self.links.distances(sets, self.rim)
        where = (hops <= self.rim).nonzero(as_tuple=True)
        _, node = where
        graph, hops_there = self._without(sets, hops <= self.rim), hops[where].unsqueeze(-1)
        values = self.x[:, node]
        for layer, reach, before in zip(self.layers, self.reach, self.behind, strict=True):
            values = evaluate(layer, values, graph)
            values = torch.where(hops_there <= reach, values, before[:, node])
        change = values - self.behind[-1][:, node]
        # that of all signals is affine: a constant, which biases in front of filters make, and a sum over inputs
        every = change[0].abs() + (change[1:] - change[0]).abs().sum(0) if self.adds_up else change.abs().amax(0)
        largest = torch.where(hops_there.squeeze(-1) <= self.reach[-1], every.amax(-1), -1.0)
        return torch.full(hops.shape, -1.0, dtype=largest.dtype).index_put(where, largest)

    def _without(self, sets: Tensor, inside: Tensor) -> Graph:
        """The nodes inside ``(n, N)``, set by set, as one graph, each part without the links of its set."""
        (source, target), weight = self.links.graph.to_edge_index()
        lost = torch.zeros(len(sets), len(self.links) + 1, dtype=torch.bool).scatter_(1, sets, True)
        kept = inside[:, source] & inside[:, target] & ~lost[:, self.links.of_edges]
        part, edge = kept.nonzero(as_tuple=True)
        number = inside.flatten().cumsum(0).view_as(inside) - 1
        edge_index = torch.stack([number[part, source[edge]], number[part, target[edge]]])
        return Graph.from_edge_index(edge_index, weight[edge], num_nodes=int(inside.sum()))


def evaluate(layer: KnownLayer, x: Tensor, graph: Graph) -> Tensor:
    """The values behind a layer: forms of single points are exact, and for activations there are kernels."""
    if not isinstance(layer, HopMixture):
        return values_behind(layer, Zonotope.point(x), graph).centre
    activation = graph_adaptive if layer.reads == "shifted" else localized
    return activation(
        x, graph, layer.beta, layer.weights, layer.operation, parameters=layer.parameters, closed=layer.closed
    )


def lost_by_rounding(layers: Layers, x: Tensor, graph: Graph) -> Tensor:
    """More than float64 can lose in the outputs at each node, ``(N,)``, on this graph or with fewer links.

    The layers must be known (:func:`is_known`). Beside the errors go the largest sizes of values; a sum of n products
    is off by less than 2 n epsilon times the sum of their sizes. What order statistics select was rounded before.
    """
    matrix, degree = abs(matrix_of(graph)), graph.incoming.max_degree + 2
    size, error = x.abs().amax(0), torch.zeros_like(x[0])

    def shifted(near: Tensor) -> Tensor:
        return torch.from_numpy(matrix @ near.numpy())

    for layer in layers:
        near, off = size, error
        match layer:
            case Filter():
                size, error, terms = size @ layer.taps[0].abs(), error @ layer.taps[0].abs(), size.size(-1) + 2
                for tap in layer.taps[1:]:
                    near, off, terms = shifted(near), shifted(off), terms + degree + near.size(-1)
                    size, error = size + near @ tap.abs(), error + off @ tap.abs()
                size = size if layer.bias is None else size + layer.bias.abs()
                error = error + 2 * terms * EPSILON * size
            case Linear():
                terms = size.size(-1) + 2
                size, error = size @ layer.weight.abs().T, error @ layer.weight.abs().T
                size = size if layer.bias is None else size + layer.bias.abs()
                error = error + 2 * terms * EPSILON * size
            case Pointwise():  # a ReLU
                pass
            case HopMixture():
                rule = OPERATIONS[layer.operation]
                size, error = layer.beta.abs() * size, layer.beta.abs() * error
                for hop in hops_of(layer, graph):
                    if layer.reads == "shifted":
                        near, off = shifted(near), shifted(off)
                        off = off + 2 * degree * EPSILON * near
                    sizes, errors = (
                        hop.reduce_one(partial(rule.largest, layer, part), near.size(-1))
                        for part in (near, off + 2 * EPSILON * near)
                    )
                    if layer.operation is KERNEL:  # exp(-s) of a sum s of squares is off by s exp(-s) < 1 times its own
                        sizes, errors = torch.ones_like(sizes), errors + 2 * (graph.num_nodes + 5) * EPSILON
                    weight = layer.weights[hop.number].abs()
                    size, error = size + weight * sizes, error + weight * errors
                error = error + 2 * (layer.hops + 3) * EPSILON * size
    return error.amax(-1)
