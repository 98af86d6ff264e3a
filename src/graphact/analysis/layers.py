"""The Lipschitz constants of single layers in the infinity norm, node by node."""

from functools import partial

import torch
from torch import Tensor

from graphact.analysis.neighbors import MOST_ENTRIES, gather, reduce_tables, terms
from graphact.analysis.parts import Nonlinearity
from graphact.analysis.sensitivity import STEEPEST_GAUSSIAN, longest, row_norms, unit_forms
from graphact.functional import graph_filter, shift
from graphact.graph import Graph


def bank_norms(taps: Tensor, graph: Graph) -> Tensor:
    r"""The 1-norm of every row of a filter bank, ``(N, F_out)``; the largest is its induced infinity norm, exactly.

    .. math:: \sum_{j, g} \Big| \Big[\sum_k h_k^{fg} S^k\Big]_{ij} \Big|
    """
    features = max(taps.shape[1:])
    step = max(1, MOST_ENTRIES // (graph.num_nodes * features))
    columns = torch.eye(graph.num_nodes * taps.size(1), dtype=torch.float64)
    chunks = (part.view(-1, graph.num_nodes, taps.size(1)) for part in columns.split(step))
    return torch.stack([row_norms(graph_filter(chunk, graph, taps)) for chunk in chunks]).sum(0)


def activation_norms(nonlinearity: Nonlinearity, graph: Graph) -> Tensor:
    r"""The Lipschitz constant of an activation at every node and feature, ``(N, F)``.

    Max, min and median: :math:`|\beta| + \sum_k |h_k| \max_{j \in \mathcal{N}_i} \|e_j^\top S^k\|_1`, with the first
    hop and the pointwise term taken together, since they may read the same input with opposite signs. Kernel: the
    slope of the Gaussian times the largest differences of rows. Localized activations have the identity for
    :math:`S^k`.
    """
    total = nonlinearity.beta.abs().expand(graph.num_nodes, nonlinearity.weights.size(1))
    for hop, rows, neighborhoods, closed in terms(unit_forms(graph.num_nodes, 1), graph, nonlinearity):
        term = partial(_term, nonlinearity, hop, rows)
        total = total + reduce_tables(term, neighborhoods, closed, graph.num_nodes)[0]
    return total


def _term(nonlinearity: Nonlinearity, hop: int, rows: Tensor, nodes: Tensor, table: Tensor) -> tuple[Tensor]:
    """What a hop adds to the constants of nodes ``(n,)`` with the neighbours ``(n, d)``."""
    weight = nonlinearity.weights[hop].abs()
    if table.size(-1) == 0:
        return (weight.new_zeros(len(nodes), len(weight)),)
    if nonlinearity.op == "kernel":
        differences = gather(rows, table) - gather(rows, nodes).unsqueeze(-2)
        return (weight * STEEPEST_GAUSSIAN / nonlinearity.gamma * longest(differences),)
    norms = row_norms(rows)[table]
    if hop > 0:
        return (weight * norms.amax(1),)
    # beta e_i + h S_j while the ReLU is on, h S_j while it is off; less beta, which the sum has already
    own = rows[nodes.unsqueeze(-1), table]
    on = weight * (norms - own.abs()) + (nonlinearity.beta + nonlinearity.weights[hop] * own).abs()
    return (torch.maximum(on, weight * norms).amax(1) - nonlinearity.beta.abs(),)


def paper_constant(nonlinearity: Nonlinearity, graph: Graph) -> float | None:
    r"""Proposition 2 of the paper, :math:`|\beta| + K C \max_k \|S^k\|_\infty` with :math:`C = \max_k |h_k|`.

    None for what it does not speak of: anything but the graph-adaptive max.
    """
    if nonlinearity.op != "max" or nonlinearity.reads != "shifted":
        return None
    power, largest = unit_forms(graph.num_nodes, 1), 0.0
    for _ in range(nonlinearity.weights.size(0)):
        power = shift(power, graph)
        largest = max(largest, row_norms(power).max().item())
    hops, bound = nonlinearity.weights.size(0), nonlinearity.weights.abs().max().item()
    return nonlinearity.beta.abs().item() + hops * bound * largest
