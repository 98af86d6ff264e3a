"""Topology bounds where numbers cancel: compared with rational arithmetic."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from graphact import Graph
from graphact.guarantees import EdgeNoise, LostLinks, topology_bound
from graphact.guarantees.layers import read_layers
from graphact.nn import GCNN, GraphAdaptiveMax, GraphFilter, ReLU
from guarantees.draws import Chain, exactly, rational
from guarantees.test_lost_links import links_of, without

PATH = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]]).to(torch.float64)


def graphs_near(graph, perturbation):
    """Perturbed graphs as rational matrices: every loss, or noise of one sign on one entry of each row."""
    if isinstance(perturbation, LostLinks):
        for lost in itertools.combinations(links_of(graph), perturbation.count):
            yield rational(without(graph, lost).to_dense())
    else:
        for draw, sign in itertools.product(range(2), (-1, 1)):
            noisy = rational(graph.to_dense())
            for row in noisy:
                places = np.flatnonzero(row)
                if len(places):
                    row[places[draw % len(places)]] += sign * Fraction(perturbation.norm)
            yield noisy


def check(model, graph, perturbation, x):
    """The most that the exact change at a node exceeds the bounds for the signal."""
    layers, _ = read_layers(model, x.size(-1))
    bound = topology_bound(model, graph, perturbation, x, trials=0)
    values = rational(x)
    before = exactly(layers, values, rational(graph.to_dense()))
    for matrix in graphs_near(graph, perturbation):
        after = exactly(layers, values, matrix)
        for node, moved in enumerate(abs(after - before).max(1)):
            assert moved <= Fraction(bound.per_node[node].item()), (node, float(moved), bound.per_node)


def cancelling(kind, size):
    """A filter whose products are large and nearly cancel, and what exchanges its outputs."""
    first = GraphFilter(5, 2, order=0)
    parts = {
        "linear": [first, GraphFilter(2, 2, order=2)],
        "relu": [first, ReLU(), GraphFilter(2, 2, order=1), ReLU()],
        "max": [first, GraphAdaptiveMax(hops=1)],
        "bank": [GraphFilter(5, 2, order=1), GraphFilter(2, 2, order=2)],
    }[kind]
    model = Chain(*parts).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
        taps = parts[0].taps
        taps[:, :2] *= size
        taps[:, 3] = -taps[:, 0] - taps[:, 1]  # rounded, and cancelled where all features are 1
        if kind == "bank":  # the powers of the shift cancel on a complete graph of ones: S^2 = 2 I + S
            taps = parts[1].taps
            taps.mul_(size)
            taps[1] = -taps[2]
            taps[0] = -2 * taps[2] + torch.randn(2, 2, dtype=torch.float64)
    return model


@pytest.mark.parametrize("perturbation", [LostLinks(1), LostLinks(2), EdgeNoise(0.25)], ids=str)
@pytest.mark.parametrize("size", [1.0, 1e8, 1e17])
@pytest.mark.parametrize("kind", ["linear", "relu", "max", "bank"])
def test_bounds_hold_where_values_cancel(kind, size, perturbation):
    for seed in range(6):
        torch.manual_seed(seed)
        graph = PATH if seed % 2 else Graph.from_dense((torch.ones(3, 3) - torch.eye(3)).double())
        check(cancelling(kind, size), graph, perturbation, torch.ones(3, 5, dtype=torch.float64))


@pytest.mark.parametrize("perturbation", [LostLinks(1), EdgeNoise(0.25)], ids=str)
@pytest.mark.parametrize("name", ["relu", "max-ga", "kernel-ga"])
def test_numbers_that_overflow_leave_no_bound(name, perturbation):
    """Neither NaN, which compares with nothing, nor a result that calls itself exact."""
    model = GCNN([1, 1, 1], order=1, activation=name, out_features=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1e200)
    for x, trials in itertools.product((torch.ones(3, 1, dtype=torch.float64), None), (None, 0)):
        bound = topology_bound(model, PATH, perturbation, x, trials=trials)
        assert bound.value == torch.inf
        assert not bound.exact


@pytest.mark.parametrize("perturbation", [LostLinks(2), EdgeNoise(0.25)], ids=str)
def test_nodes_that_read_no_other_do_not_change(perturbation):
    """No allowance for rounding where nothing can change."""
    graph = Graph.from_edge_index([[0, 1, 2], [1, 0, 1]], num_nodes=4).to(torch.float64)  # nobody sends to 2 and 3
    torch.manual_seed(0)
    model, x = GCNN([1, 3, 3], order=2, activation="max-ga").double(), torch.randn(4, 1, dtype=torch.float64)
    for signals in (x, None):
        bound = topology_bound(model, graph, perturbation, signals, trials=0)
        assert (bound.per_node[:2] > 0).all()
        assert (bound.per_node[2:] == 0).all()
