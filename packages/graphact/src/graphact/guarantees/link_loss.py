r"""Bounds for lost links and given signals: every loss tried, or the effects of single links added with their signs.

**Trying.** The outputs of a node depend on links within reach only, so only the sets of links are tried that are all
within reach of some node. Each set is evaluated on the nodes near its links, many sets side by side. Layer by layer,
values out of reach of the lost links are reset to those of the whole graph, so missing neighbours at the rim of such a
subgraph do no harm. The result is exact but for rounding.

**LinkEffects.** For every loss T of at most n links the values z' of the thinned graph are

.. math:: z' = z + \sum_{c \in T} (d_c + \rho_c), \qquad |\rho_c| \le e_c,

with known numbers d (``signed``) and e (``loose``) for each link, signal, node and feature. Filters act on d exactly,
so effects of links on a node add up with their signs; the joint effect of several links beyond the sum of their single
effects is divided among them and becomes part of e.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from graphact.functional import shift
from graphact.graph import Graph
from graphact.guarantees.layers import (
    EPSILON,
    Hop,
    KnownLayer,
    Layers,
    evaluate,
    evaluate_with_error,
    iterate_hops,
    propagate_through_rows,
    walk_errors,
    widths,
)
from graphact.guarantees.rules import (
    MAX_ENTRIES,
    OPERATIONS,
    GaussianKernel,
    OrderStatistic,
    gather,
    get_gamma,
)
from graphact.spec import Filter, HopMixture, Linear, Pointwise
from graphact.spec.reductions import MAX, MIN

MAX_WORK = 2_000_000_000  # values (sets, nodes in reach, signals, features of all layers): a minute or two
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
    _, lost = walk_errors(layers, x.abs().amax(0), torch.zeros_like(x[0]), graph)  # on any graph with fewer links
    lost = 2 * lost.amax(-1)  # on two graphs
    if adds_up:  # that of 0 is subtracted from all others; then the sum itself
        lost = 2 * len(x) * lost + len(x) * EPSILON * largest.clamp_min(0)
    return torch.where(largest < 0, 0.0, largest + lost), worst


def has_known_layers(layers: Layers) -> bool:
    """Return True if all layers are of the kinds that this module handles."""
    return all(
        type(layer) in (Filter, Linear)
        or (type(layer) is Pointwise and layer.function == "relu")
        or (type(layer) is HopMixture and type(OPERATIONS[layer.operation]) in (OrderStatistic, GaussianKernel))
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


@dataclass(frozen=True, eq=False)
class LinkEffects:
    """The effects of C links on values: shares of the change, ``(C, B, N, F)`` each."""

    signed: Tensor
    loose: Tensor

    @classmethod
    def between(cls, low: Tensor, high: Tensor) -> "LinkEffects":
        """Return shares that lie between two numbers."""
        return cls((low + high) / 2, (high - low) / 2)

    def add(self, other: "LinkEffects", weight: Tensor) -> "LinkEffects":
        this, other = self.rounded(4 * EPSILON), other.rounded(4 * EPSILON)
        return LinkEffects(this.signed + weight * other.signed, this.loose + weight.abs() * other.loose)

    def rounded(self, lost: float) -> "LinkEffects":
        """Return the same shares, loosened by that relative rounding error."""
        return LinkEffects(self.signed, self.loose + lost * (self.signed.abs() + self.loose))

    def farthest(self, most: int) -> Tensor:
        """Bound the change of values by the loss of that many links, ``(B, N, F)``."""
        ends = (self.loose + self.signed, self.loose - self.signed)
        return torch.maximum(*(sum_of_largest(end.clamp_min(0), most) for end in ends))


def sum_of_largest(parts: Tensor, most: int) -> Tensor:
    """Return the largest sum of that many of C parts ``(C, ...)``, none of them negative."""
    return parts.topk(min(most, len(parts)), dim=0).values.sum(0)


def excess(parts: Tensor, threshold: Tensor, most: int) -> Tensor:
    """Divide the excess of ``most`` parts over a threshold among them: the shares of any of them add up to no less."""
    total = sum_of_largest(parts, most)
    return parts * (1 - threshold / total.clamp_min(1e-300)).clamp_min(0)


def lost_in_sums(shares: LinkEffects, hops: int = 0) -> float:
    """Bound the relative rounding error of sums over features and over that many hops."""
    return 2 * (shares.signed.size(-1) + hops + 3) * EPSILON


class EffectPropagation:
    """Propagation of the effects of links through layers, for a graph that can lose ``most`` links."""

    def __init__(self, graph: Graph, most: int) -> None:
        self.graph, self.links, self.most = graph, LinkList(graph), most
        self.matrix = graph.to_dense()
        self.ends = self.links.ends.T
        self.every = torch.arange(len(self.links))
        self.lost = (graph.num_nodes + most + 10) * EPSILON  # in a sum over nodes and over lost links

    def largest_changes(self, layers: Layers, x: Tensor) -> Tensor:
        """Bound the change at each node over a batch of signals, ``(N,)``."""
        zero = x.new_zeros(len(self.links), *x.shape)
        shares, values, off = LinkEffects(zero, zero), x, torch.zeros_like(x)
        for layer in layers:
            lost = (layer.exchanges + values.size(-1)) * self.lost
            shares = self.propagate(layer, shares, values).rounded(lost)
            values, off = evaluate_with_error((layer,), values, self.graph, off)
        return ((1 + self.lost) * shares.farthest(self.most) + 2 * off).amax((0, -1))  # values of two graphs are off

    def propagate(self, layer: KnownLayer, shares: LinkEffects, values: Tensor) -> LinkEffects:
        """Return the effects after a layer, from effects and values before it.

        What rounding does to signed shares makes them loose, right where it happens; they then count as computed.
        """
        match layer:
            case Filter():
                return self._filter(layer, shares, values)
            case Linear():
                loose = shares.loose + lost_in_sums(shares) * shares.signed.abs()
                return LinkEffects(shares.signed @ layer.weight.T, loose @ layer.weight.abs().T)
            case Pointwise():
                return self._relu(shares, values)
            case HopMixture():
                return self._hop_mixture(layer, shares, values)

    def _shifted(self, shares: LinkEffects, values: Tensor, hops: int) -> Iterator[tuple[Tensor, LinkEffects, Tensor]]:
        """Yield for k = 1..hops :math:`S^k z`, its shares, and their part that the thinned shifts made loose."""
        power, passed = torch.eye(self.graph.num_nodes, dtype=torch.float64), shares.loose
        signed, rest = shares.signed, torch.zeros_like(passed)
        sizes, matrix = power, self.matrix.abs()
        for hop in range(1, hops + 1):
            others = LinkEffects(signed, torch.zeros_like(signed)).farthest(self.most - 1) + sum_of_largest(
                passed, self.most
            )
            sent = values + signed
            others = others + self.lost * values.abs()
            signed, rest = self.matrix @ signed, matrix @ (rest + self.lost * signed.abs())
            for here, there in (self.ends, self.ends.flip(0)):
                weight = self.matrix[here, there, None, None]
                signed[self.every, :, here] -= weight * sent[self.every, :, there]
                rest[self.every, :, here] += weight.abs() * others[:, there].transpose(0, 1)
            power, sizes, values = self.matrix @ power, matrix @ sizes, shift(values, self.graph)
            passed = (1 + self.lost) * ((power.abs() + hop * self.lost * sizes) @ shares.loose)
            rest *= 1 + self.lost
            yield values, LinkEffects(signed, passed + rest), rest

    def _filter(self, layer: Filter, shares: LinkEffects, values: Tensor) -> LinkEffects:
        lost = lost_in_sums(shares, layer.exchanges)
        signed, loose = shares.signed @ layer.taps[0], lost * shares.signed.abs() @ layer.taps[0].abs()
        if shares.loose.any():  # through the rows of the bank in magnitude, and what is lost of these
            loose = loose + propagate_through_rows(layer, shares.loose, self.graph)
        following = self._shifted(shares, values, layer.exchanges)
        for tap, (_, shifted, rest) in zip(layer.taps[1:], following, strict=True):
            signed = signed + shifted.signed @ tap
            loose = loose + (rest + lost * shifted.signed.abs()) @ tap.abs()
        return LinkEffects(signed, loose)

    def _relu(self, shares: LinkEffects, values: Tensor) -> LinkEffects:
        """Treat each link alone exactly; the joint effect of several differs by what crosses 0."""
        distance, inward = values.abs(), -torch.where(values < 0, -1.0, 1.0) * shares.signed
        crossing = sum_of_largest((inward + shares.loose).clamp_min(0), self.most) > distance
        # relu(z + d) - relu(z), without a difference of large numbers
        alone = torch.where(values >= 0, shares.signed.maximum(-values), torch.relu(values + shares.signed))
        more = excess(inward.clamp_min(0).minimum(distance), distance, self.most)
        over, outward = (inward - distance).clamp_min(0), (-inward).clamp_min(0)
        less = torch.where(sum_of_largest(over, self.most) < sum_of_largest(outward, self.most), over, outward)
        extra = LinkEffects.between(-less, more)
        fine = LinkEffects(
            alone + torch.where(crossing, extra.signed, 0.0),
            torch.where(crossing, shares.loose + extra.loose, (values >= 0) * shares.loose),
        )
        lost = shares.rounded(self.lost).loose - shares.loose
        best = self._least(fine, LinkEffects(shares.signed / 2, shares.signed.abs() / 2 + shares.loose))
        return LinkEffects(best.signed, best.loose + lost)

    def _least(self, *options: LinkEffects) -> LinkEffects:
        """Choose for every value the shares with the least loose part."""
        chosen = torch.stack([sum_of_largest(option.loose, self.most) for option in options]).argmin(0)
        signed, loose = (torch.stack(parts) for parts in zip(*((o.signed, o.loose) for o in options), strict=True))
        index = chosen.expand(1, *signed.shape[1:])
        return LinkEffects(signed.take_along_dim(index, 0)[0], loose.take_along_dim(index, 0)[0])

    def _hop_mixture(self, layer: HopMixture, shares: LinkEffects, values: Tensor) -> LinkEffects:
        relu, zero = self._relu(shares, values), torch.zeros_like(shares.signed)
        total = LinkEffects(zero, zero).add(relu, layer.beta)
        moved = [(values, shares)] * layer.hops
        if layer.reads != "hops":
            later = [(shifted, own) for shifted, own, _ in self._shifted(shares, values, layer.shifts[-1])]
            moved = [*moved[: layer.hops - layer.shifts[-1]], *later]
        entries = 4 * zero.size(0) * zero.size(1) * zero.size(-1)
        for hop in iterate_hops(layer, self.graph):
            losses = self._losses(layer, hop)
            rule = OPERATIONS[layer.operation]
            if isinstance(rule, GaussianKernel):
                term = hop.reduce(partial(self._kernel, rule, layer, losses, *moved[hop.number]), entries)
            else:
                assert isinstance(rule, OrderStatistic)
                term = hop.reduce(partial(self._order_statistic, rule, losses, *moved[hop.number]), entries)
            total = total.add(LinkEffects(*term), layer.weights[hop.number])
        return total

    def _losses(self, layer: HopMixture, hop: Hop) -> "NeighborLosses":
        """Return the neighbours that links can take from nodes in a hop."""
        size = self.graph.num_nodes
        if layer.reads != "hops" or hop.number == 0:
            touching = torch.zeros(len(self.links), size, dtype=torch.bool).scatter(1, self.links.ends, True)
            names = self.links.ends[:, 0] * size + self.links.ends[:, 1]
            return NeighborLosses(touching, None, names, may_be_empty=not layer.closed)
        everything = torch.ones(len(self.links), size, dtype=torch.bool)
        if len(self.links) * size * size > MAX_ENTRIES:
            return NeighborLosses(
                everything, torch.ones(size, size, dtype=torch.bool), None, may_be_empty=not layer.closed
            )
        # a node several hops away is lost with all walks to it, and the walks that lost links break add up
        walks, broken = self._walks(hop.number + 1, layer.closed)
        losable = (walks > 0) & (sum_of_largest(broken, self.most) >= walks)
        if self.most * walks.max() >= 1 / EPSILON:  # too many to be counted
            losable, broken = walks > 0, torch.ones_like(broken)
        return NeighborLosses((broken * losable).any(-1), losable, None, may_be_empty=not layer.closed)

    def _walks(self, hops: int, closed: bool) -> tuple[Tensor, Tensor]:
        """Count the walks between nodes ``(N, N)``, and how many of them each link is part of ``(C, N, N)``."""
        (source, target), _ = self.graph.to_edge_index()
        edges = torch.zeros_like(self.matrix).index_put((target, source), torch.ones((), dtype=torch.float64))
        edges.fill_diagonal_(float(closed))
        thinned = edges.repeat(len(self.links), 1, 1)
        for here, there in (self.ends, self.ends.flip(0)):
            thinned[self.every, here, there] = 0
        walks, left = torch.linalg.matrix_power(edges, hops), torch.linalg.matrix_power(thinned, hops)
        return walks, walks - left

    def _order_statistic(
        self,
        rule: OrderStatistic,
        losses: "NeighborLosses",
        values: Tensor,
        shares: LinkEffects,
        nodes: Tensor,
        table: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the share of the selected value, the excess of others over it, and the effect of lost neighbours."""
        degree = table.size(-1)
        if degree == 0:
            empty = gather(shares.signed, table).sum(-2)
            return empty, empty
        near, order = gather(values, table).sort(dim=-2, stable=True)
        signed, loose = (
            gather(part, table).take_along_dim(order.expand(len(self.links), *order.shape), -2)
            for part in (shares.signed, shares.loose)
        )
        place, lost = rule.place(degree), degree if losses.losable is not None else min(self.most, degree)
        reach = LinkEffects(signed, loose).farthest(self.most)
        reach = (1 + self.lost) * reach + 4 * EPSILON * near.abs()
        places = [rule.place(degree - fewer) for fewer in range(min(lost, degree - 1) + 1)]
        first, last = min(places), max(left + fewer for fewer, left in enumerate(places))
        low = (near - reach).sort(-2).values[..., first : first + 1, :]
        high = (near + reach).sort(-2).values[..., last : last + 1, :]
        possible = ~((near + reach < low) | (near - reach > high))  # also where numbers overflow
        own = signed[..., place, :]
        apart, largest = (
            torch.where(possible, part.abs() + loose, 0.0).amax(-2) for part in (signed - own.unsqueeze(-2), signed)
        )
        if losses.may_be_empty and lost == degree:  # the value of no neighbours does not move
            apart = apart.maximum(own.abs())
        taken = self._loss_of_order(rule, losses, near, order, nodes, table)
        touching = losses.touching[:, None, nodes, None]
        best = self._least(LinkEffects(own, apart), LinkEffects(torch.zeros_like(own), largest))
        total = best.add(
            LinkEffects(touching * taken.signed, touching * taken.loose), torch.ones((), dtype=torch.float64)
        )
        return total.signed, total.loose

    def _loss_of_order(
        self, rule: OrderStatistic, losses: "NeighborLosses", near: Tensor, order: Tensor, nodes: Tensor, table: Tensor
    ) -> LinkEffects:
        """Return the effects of links that take neighbours, whose values ``near`` are sorted, from nodes."""
        degree, place = near.size(-2), rule.place(near.size(-2))
        chosen, none = near[..., place, :], torch.zeros_like(near[..., 0, :])
        if rule.operation in (MAX, MIN) and losses.losable is None:
            # in the order in which they take over: each is lost only together with all before it
            queue = range(degree - 1, -1, -1) if rule.operation is MAX else range(degree)
            links = losses.link_of(nodes, table)[None, :, :, None].expand_as(order).take_along_dim(order, -2)
            low, high = (none.new_zeros(len(self.links) + 1, *none.shape) for _ in range(2))
            for number, (here, following) in enumerate(zip(queue, [*queue[1:], None], strict=True)):
                if number == self.most or (following is None and not losses.may_be_empty):
                    break
                step = (none if following is None else near[..., following, :]) - near[..., here, :]
                index = links[..., here, :].unsqueeze(0)
                for part, bound in ((low, step.clamp_max(0)), (high, step.clamp_min(0))):
                    part.scatter_(0, index, (step if number == 0 else bound).unsqueeze(0))
            return LinkEffects.between(low[:-1], high[:-1])
        low, high = none, none
        can_lose, stays = torch.tensor(min(self.most, degree)), near.new_zeros(near.shape, dtype=torch.bool)
        if losses.losable is not None:
            losable = losses.losable[nodes.unsqueeze(-1), table][None, :, :, None].expand_as(order)
            stays = ~losable.take_along_dim(order, -2)
            can_lose = degree - stays.sum(-2)
        best, least = torch.where(stays, near, -torch.inf).amax(-2), torch.where(stays, near, torch.inf).amin(-2)
        for lost in range(1, degree + 1):
            ends = [none] if losses.may_be_empty else []
            if lost < degree:  # what stands at a place of those left stood there before, or up to `lost` places above
                left = rule.place(degree - lost)
                ends = [near[..., left, :], near[..., left + lost, :]]
                if rule.operation is MAX:  # of those that stay, one is selected if no larger one is
                    ends[0] = ends[0].maximum(best)
                if rule.operation is MIN:
                    ends[1] = ends[1].minimum(least)
            for end in ends:
                # each link answers for its part; where one takes several, each for all
                change = torch.where(can_lose >= lost, end - chosen, 0.0)
                change = change / lost if losses.losable is None else change
                low, high = low.minimum(change), high.maximum(change)
        between = LinkEffects.between(low, high)
        return LinkEffects(between.signed.unsqueeze(0), between.loose.unsqueeze(0))

    def _kernel(
        self, rule: GaussianKernel, layer: HopMixture, losses: "NeighborLosses", values: Tensor, shares: LinkEffects,
        nodes: Tensor, table: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Bound by the steepest slope within reach, then by the neighbours that are lost."""
        gamma, degree = get_gamma(layer), table.size(-1)
        offset = gather(values, table) - gather(values, nodes).unsqueeze(-2)
        apart = gather(shares.signed, table) - gather(shares.signed, nodes).unsqueeze(-2)
        slack = gather(shares.loose, table) + gather(shares.loose, nodes).unsqueeze(-2)
        moves = (apart.abs() + slack).square().sum(-2).sqrt()
        most = degree if losses.losable is not None else min(self.most, degree)
        squares = (offset / gamma).square()
        length, far = squares.sum(-2), sum_of_largest(moves, self.most) / gamma
        # of the offsets, those of lost neighbours may be missing
        left = squares.topk(degree - most, -2, largest=False).values.sum(-2).sqrt()
        near = (left - far - self.lost * (left + far)).clamp_min(0)
        remote = (1 + self.lost) * (length.sqrt() + far)
        reach = torch.exp(-near.square() / 2) - torch.exp(-remote.square() / 2) + 10 * EPSILON
        steepest = torch.where(remote < 1, remote, near.clamp_min(1))
        lost = self.lost + 2000 * EPSILON  # also by exponentials of numbers down to -745
        loose = (1 + lost) * (steepest * torch.exp(-steepest.square() / 2) / gamma * moves).minimum(reach)
        loss = partial(rule.loss, layer, values, self.lost * values.abs(), nodes, table)
        taken = [loss(degree)] if losses.losable is not None else [loss(lost) / lost for lost in range(1, most + 1)]
        half = losses.touching[:, None, nodes, None] * torch.stack([torch.zeros_like(far), *taken]).amax(0) / 2
        return half, loose + (1 + 2 * lost) * half  # the kernel of fewer neighbours is larger


@dataclass(frozen=True, eq=False)
class NeighborLosses:
    """The neighbours that lost links take from nodes."""

    touching: Tensor  # which link can take any from which node, (C, N)
    losable: Tensor | None  # which neighbours can be taken, (N, N), several by one link; None: each by its own link
    names: Tensor | None  # of links: both ends as one number, ascending
    may_be_empty: bool

    def link_of(self, nodes: Tensor, table: Tensor) -> Tensor:
        """Return the link between nodes ``(n,)`` and their neighbours ``(n, d)``; C for a node itself."""
        assert self.names is not None
        here = nodes.unsqueeze(-1).expand_as(table)
        size = self.touching.size(1)
        link = torch.searchsorted(self.names, torch.minimum(here, table) * size + torch.maximum(here, table))
        return torch.where(here == table, len(self.names), link)
