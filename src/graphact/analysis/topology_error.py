r"""How far a network's values on a perturbed graph can be from those on the graph it was given, layer by layer.

The values z on the given graph are known as forms (:mod:`graphact.analysis.zonotope`): exactly for given signals, or
for all signals of a box. Beside them go errors e with :math:`|z' - z| \le \sum_c e_c` at every node and feature, where
z' are the values on the perturbed graph S' and c the causes that happen. Powers of S' are compared through

.. math:: S'^k z' - S^k z = S^k (z' - z) + r_k, \qquad r_k = S' r_{k-1} + (S' - S) S^{k-1} z'.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from graphact.analysis.causes import Causes
from graphact.analysis.neighbors import MOST_ENTRIES, gather, reduce_tables, terms
from graphact.analysis.order_loss import change_of_selected
from graphact.analysis.parts import Nonlinearity
from graphact.analysis.sensitivity import STEEPEST_GAUSSIAN, safe_sqrt
from graphact.analysis.zonotope import Zonotope
from graphact.functional import graph_filter, shift
from graphact.graph import Graph


def through_filter(forms: Zonotope, errors: Tensor, taps: Tensor, graph: Graph, causes: Causes) -> Tensor:
    """The errors behind a filter bank; the forms are those in front of it."""
    total = _through_bank(errors, taps, graph)
    for tap, (_, rest) in zip(taps[1:], shifts(forms, errors, len(taps) - 1, graph, causes), strict=True):
        total = total + rest @ tap.abs()
    return total


def _through_bank(errors: Tensor, taps: Tensor, graph: Graph) -> Tensor:
    """The rows of a filter bank in magnitude, times errors ``(C, B, N, F_in)``."""
    nodes, features = graph.num_nodes, taps.size(1)
    step = max(1, MOST_ENTRIES // (nodes * max(taps.shape[1:])))
    columns = torch.eye(nodes * features, dtype=torch.float64).split(step)
    total = errors.new_zeros(*errors.shape[:2], nodes, taps.size(2))
    for part, sizes in zip(columns, errors.flatten(2).split(step, 2), strict=True):
        rows = graph_filter(part.view(-1, nodes, features), graph, taps).abs()
        total = total + torch.einsum("cbm,mnf->cbnf", sizes, rows)
    return total


def shifts(forms: Zonotope, errors: Tensor, hops: int, graph: Graph, causes: Causes) -> Iterator[tuple[Tensor, Tensor]]:
    r"""For k = 1..hops: :math:`|S^k| e` and a bound on :math:`|r_k|`."""
    matrix, power = graph.to_dense(), torch.eye(graph.num_nodes, dtype=torch.float64)
    rest, passed = torch.zeros_like(errors), errors
    for _ in range(hops):
        rest = causes.acting_on(rest, forms.centre.abs() + forms.radius + causes.total(passed))
        power = matrix @ power
        passed = power.abs() @ errors
        yield passed, rest
        forms = Zonotope(shift(forms.centre, graph), shift(forms.generators, graph), forms.slack)


def through_activation(
    forms: Zonotope, errors: Tensor, nonlinearity: Nonlinearity, graph: Graph, causes: Causes
) -> Tensor:
    """The errors behind an activation; the forms are those in front of it."""
    total = nonlinearity.beta.abs() * errors
    count = nonlinearity.weights.size(0)
    moves = [errors] * count
    if nonlinearity.reads == "shifted":
        moves = [passed + rest for passed, rest in shifts(forms, errors, count, graph, causes)]
    centres = terms(forms.centre, graph, nonlinearity)
    generators = terms(forms.generators, graph, nonlinearity)
    struck = causes.struck()
    for (hop, centre, neighborhoods, closed), (_, shared, _, _) in zip(centres, generators, strict=True):
        entries = errors.size(0) * centre.size(0) * centre.size(-1)
        (change,) = reduce_tables(partial(_moved, nonlinearity, moves[hop]), neighborhoods, closed, entries)
        if struck is not None:
            several = nonlinearity.reads == "hops" and hop > 0
            share = partial(_share_of_loss, nonlinearity, centre, shared.abs().sum(1), None if several else causes)
            (loss,) = reduce_tables(share, neighborhoods, closed, entries)
            change = change + (torch.ones_like(struck) if several else struck)[:, None, :, None] * loss
        total = total + nonlinearity.weights[hop].abs() * change
    return total


def _moved(nonlinearity: Nonlinearity, moves: Tensor, nodes: Tensor, table: Tensor) -> tuple[Tensor]:
    """How far a term can move when values do and all neighbours stay; the kernel never by more than 1."""
    near = gather(moves, table)
    if nonlinearity.op == "kernel":
        apart = near + gather(moves, nodes).unsqueeze(-2)
        return ((STEEPEST_GAUSSIAN / nonlinearity.gamma * safe_sqrt(apart.square().sum(-2))).clamp_max(1.0),)
    return (near.amax(-2) if table.size(-1) else near.sum(-2),)


def _share_of_loss(
    nonlinearity: Nonlinearity, centre: Tensor, radius: Tensor, causes: Causes | None, nodes: Tensor, table: Tensor
) -> tuple[Tensor]:
    """What each lost link has to answer for, so that together they cover any loss of neighbours.

    One lost link takes one neighbour: the largest change by t lost ones, divided by t. Over several hops (``causes`` is
    None) a link may be the way to all neighbours.
    """
    degree = table.size(-1)
    loss = partial(_loss, nonlinearity, centre, radius, nodes, table)
    shares = [torch.zeros_like(gather(centre, nodes))]
    if causes is None:
        shares.append(loss(degree))
    else:
        shares += [loss(lost) / lost for lost in range(1, causes.most_lost(degree) + 1)]
    return (torch.stack(shares).amax(0),)


def _loss(
    nonlinearity: Nonlinearity, centre: Tensor, radius: Tensor, nodes: Tensor, table: Tensor, lost: int
) -> Tensor:
    """How far a term can move when up to that many neighbours are lost and all values stay."""
    if nonlinearity.op != "kernel":
        low, high = gather(centre - radius, table), gather(centre + radius, table)
        return change_of_selected(low, high, nonlinearity.op, lost, may_be_empty=not nonlinearity.closed)
    offset = (gather(centre, table) - gather(centre, nodes).unsqueeze(-2)).abs()
    loose = gather(radius, table) + gather(radius, nodes).unsqueeze(-2)
    near, far = (offset - loose).clamp_min(0).square(), (offset + loose).square()
    least_left = near.sum(-2) - near.topk(lost, -2).values.sum(-2)
    most_lost = far.topk(lost, -2).values.sum(-2)
    width = 2 * nonlinearity.gamma**2
    return torch.exp(-least_left / width) * -torch.expm1(-most_lost / width)
