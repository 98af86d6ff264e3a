"""Guarantees on a CUDA device: everything is computed on the CPU."""

import pytest
import torch
from torch import nn

from graphact.guarantees import certified_radius, certify, lipschitz_bound
from graphact.nn import GCNN, GraphAdaptiveMax, GraphFilter, PReLU, Sequential
from support.graphs import random_graph

MODELS = {
    "relu": lambda: GCNN([3, 4, 4], order=2, activation="relu", bias=True, out_features=2),
    "max": lambda: GCNN([3, 4, 4], order=1, activation="max-ga", hops=2, out_features=2),
    "localized": lambda: GCNN([3, 4], order=1, activation="median-l", hops=2, out_features=None),
    "kernel": lambda: GCNN([3, 4, 4], order=1, activation="kernel-ga", gamma=1.0, learn_gamma=True, out_features=2),
    "chain": lambda: Sequential(
        GraphAdaptiveMax(features=3, start="uniform"),
        GraphFilter(3, 4, order=1),
        nn.LayerNorm(4, eps=0.1),
        PReLU(features=4),
        nn.Linear(4, 2),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_and_graphs_on_a_gpu_have_the_constants_of_the_cpu(name):
    torch.manual_seed(0)
    graph, model = random_graph(30, 0.1), MODELS[name]().double()
    expected = lipschitz_bound(model, graph)
    found = lipschitz_bound(model.cuda(), graph.cuda())
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    torch.testing.assert_close(found.per_node, expected.per_node, rtol=1e-9, atol=0)


def test_certificates_of_models_and_signals_on_a_gpu():
    torch.manual_seed(0)
    graph, model, x = random_graph(30, 0.1), MODELS["max"]().double(), torch.randn(30, 3, dtype=torch.float64)
    expected = certify(model, graph, x, 0.01)
    radius = certified_radius(model, graph, x, [0, 1]).radius
    found = certify(model.cuda(), graph.cuda(), x.cuda(), 0.01)
    torch.testing.assert_close(found.margins, expected.margins, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(certified_radius(model, graph.cuda(), x.cuda(), [0, 1]).radius, radius)
