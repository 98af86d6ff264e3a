r"""How far outputs can differ when inputs do: differences of signals in affine form, carried through a network.

For two inputs :math:`x, x'` the difference at any point of the network is a matrix times :math:`x - x'`, and every row
of that matrix is an *affine form*: known coefficients of the inputs, plus known coefficients of unknown row vectors
whose 1-norm is at most 1. The forms of all nodes and features are kept as a batch of signals ``(M, N, F)``, one for
each of the M inputs and unknowns; filters and shifts act on it as on any batch. The 1-norm over M bounds what the
output can move when every input moves by at most 1. The proofs are in docs/guarantees.md.
"""

import itertools
import math
from functools import partial

import torch
from torch import Tensor

from graphact.analysis.neighbors import MOST_ENTRIES, gather, reduce_tables, terms
from graphact.analysis.parts import Network, Nonlinearity, Stage
from graphact.functional import graph_filter
from graphact.graph import Graph

STEEPEST_GAUSSIAN = math.exp(-0.5)  # the largest slope of exp(-t^2 / 2)
MOST_GRAM_COLUMNS = 512
MOST_ENUMERATED = 8


def unit_forms(num_nodes: int, features: int) -> Tensor:
    """The forms of the inputs themselves: one signal for each of the N F inputs."""
    return torch.eye(num_nodes * features, dtype=torch.float64).view(-1, num_nodes, features)


def row_norms(forms: Tensor) -> Tensor:
    """The 1-norm of each form, ``(M, N, F)`` to ``(N, F)``."""
    return forms.abs().sum(0)


def with_unknowns(forms: Tensor, spread: Tensor) -> Tensor:
    """Forms with a fresh unknown of size ``spread`` ``(N, F)`` at every node and feature."""
    return torch.cat([forms, torch.diag(spread.flatten()).view(-1, *spread.shape)])


def through_stage(forms: Tensor, stage: Stage, graph: Graph, thorough: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Forms behind a stage, except for what its ReLU adds: forms, spreads, and the forms that the ReLU reads."""
    if stage.taps is not None:
        forms = graph_filter(forms, graph, stage.taps)
    if stage.nonlinearity is None:
        return forms, torch.zeros_like(forms[0]), None
    centre, spread = through_neighborhoods(forms, stage.nonlinearity, graph, thorough)
    return centre, spread, forms * stage.nonlinearity.beta


def through_neighborhoods(
    forms: Tensor, nonlinearity: Nonlinearity, graph: Graph, thorough: bool
) -> tuple[Tensor, Tensor]:
    r"""The terms :math:`\sum_k h_k f_k`: common forms and how far the selected ones are from them."""
    centre, spread = torch.zeros_like(forms), torch.zeros_like(forms[0])
    for hop, values, neighborhoods, closed in terms(forms, graph, nonlinearity):
        select = partial(_selected, nonlinearity, values, thorough)
        middle, deviation = reduce_tables(select, neighborhoods, closed, values.size(0) * values.size(-1))
        weight = nonlinearity.weights[hop]
        centre, spread = centre + weight * middle, spread + weight.abs() * deviation
    return centre, spread


def _selected(
    nonlinearity: Nonlinearity, values: Tensor, thorough: bool, nodes: Tensor, table: Tensor
) -> tuple[Tensor, Tensor]:
    """The middle of the forms among which a node selects, and the farthest of them; for nodes without any, zeros."""
    near = gather(values, table)
    if nonlinearity.op == "kernel":
        differences = near - gather(values, nodes).unsqueeze(-2)
        slope = STEEPEST_GAUSSIAN / nonlinearity.gamma
        return torch.zeros_like(gather(values, nodes)), slope * longest(differences, thorough)
    if table.size(-1) == 0:
        return near.sum(2), near.sum(2)[0]
    middle = near.mean(2)
    return middle, (near - middle.unsqueeze(2)).abs().sum(0).amax(1)


def longest(differences: Tensor, thorough: bool = True) -> Tensor:
    r"""A bound on :math:`\max_{\|q\|_2 \le 1} \|q^\top D\|_1` for every node and feature of ``(M, n, d, F)``.

    With the signs s of the result it is :math:`\max_s \|D s\|_2 \le (\sum_{ab} |D^\top D|_{ab})^{1/2}
    \le (\sum_j \|D_j\|_1^2)^{1/2}`; the first is computed where it is asked for and M is small.
    """
    columns, nodes, _, features = differences.shape
    if columns > MOST_GRAM_COLUMNS or not thorough:
        return safe_sqrt(differences.abs().sum(0).square().sum(1))
    rows = differences.permute(1, 3, 2, 0).flatten(0, 1)
    step = max(1, MOST_ENTRIES // (columns * columns))
    norms = [(part.mT @ part).abs().sum((-2, -1)) for part in rows.split(step)]
    return safe_sqrt(torch.cat(norms)).view(nodes, features)


def safe_sqrt(x: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0."""
    return torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0)


def output_norms(network: Network, graph: Graph, *, thorough: bool = True) -> Tensor:
    r"""How far each output moves, at most, when every input moves by at most 1.

    Args:
        network: the parts of a network; the readout may hold any rows, such as differences of classes.
        graph: the graph, in float64.
        thorough: try all signs of the last ReLUs where a node has at most 8 of them, and compare all pairs of columns
            for the kernel; otherwise the result is larger and comes sooner.

    Shapes:
        result: ``(N, O)``, or ``(N, F)`` without a readout.
    """
    forms = unit_forms(graph.num_nodes, network.in_features)
    for stage in network.stages[:-1]:
        centre, spread, rectified = through_stage(forms, stage, graph, thorough)
        if rectified is not None:
            centre, spread = centre + rectified / 2, spread + row_norms(rectified) / 2
        forms = centre if stage.nonlinearity is None else with_unknowns(centre, spread)
    centre, spread, rectified = through_stage(forms, network.stages[-1], graph, thorough)
    if rectified is None:
        return row_norms(read_out(centre, network.readout))
    count = 1 if network.readout is None else rectified.size(-1)
    if thorough and count <= MOST_ENUMERATED:
        return over_all_signs(centre, rectified, network.readout) + read_spread(spread, network.readout)
    spread = spread + row_norms(rectified) / 2
    return row_norms(read_out(centre + rectified / 2, network.readout)) + read_spread(spread, network.readout)


def read_out(forms: Tensor, readout: Tensor | None) -> Tensor:
    """Forms behind the linear map that all nodes share."""
    return forms if readout is None else forms @ readout.T


def read_spread(spread: Tensor, readout: Tensor | None) -> Tensor:
    """Sizes of unknowns behind the linear map."""
    return spread if readout is None else spread @ readout.abs().T


def over_all_signs(centre: Tensor, rectified: Tensor, readout: Tensor | None) -> Tensor:
    """The largest 1-norm over all ways in which the ReLUs of a node may be on or off.

    The norm is convex in the slopes of the ReLUs, so it is largest where each is 0 or 1.
    """
    if readout is None:
        return torch.maximum(row_norms(centre), row_norms(centre + rectified))
    features = rectified.size(-1)
    choices = torch.tensor(list(itertools.product((0.0, 1.0), repeat=features)), dtype=torch.float64)
    best = []
    step = max(1, MOST_ENTRIES // (centre.size(0) * len(choices)))
    for fixed, free in zip(read_out(centre, readout).split(step, 1), rectified.split(step, 1), strict=True):
        outputs = []
        for number, row in enumerate(readout):
            outputs.append((fixed[..., number, None] + free @ (choices * row).T).abs().sum(0).amax(-1))
        best.append(torch.stack(outputs, -1))
    return torch.cat(best)
