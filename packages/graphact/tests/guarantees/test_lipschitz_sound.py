"""No pair of signals, random or searched for, moves outputs by more than the certified constant allows."""

import pytest
import torch

from graphact.guarantees import attack, certify, empirical_lipschitz, lipschitz, lipschitz_bound
from graphact.guarantees.layers import read_layers
from graphact.nn import FIR, GCNN, GraphFilter
from guarantees.draws import KINDS, Draw, check_certificate, draw, uniform, violations
from support.graphs import random_graph


@pytest.mark.parametrize("seed", range(150))
def test_any_draw(seed):
    """Every kind of module on 8 graphs each, 12 pairs of signals: 14,400 draws."""
    case = draw(seed, KINDS[seed % len(KINDS)], max_nodes=5)
    bound = lipschitz_bound(case.module, case.graph)
    with torch.no_grad():
        magnitudes, _ = lipschitz.magnitudes(*read_layers(case.module, case.features), case.graph)
    for per_node in (bound.per_node, magnitudes.amax(-1)):  # all paths without signs are used for large graphs
        assert violations(case, per_node, *case.signals(12, torch.Generator().manual_seed(seed)))[0] == 0
    assert bound.value == bound.per_node.max()
    assert bound.value <= bound.composed * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(200, 212))
def test_gradient_ascent(seed):
    case = draw(seed, kind="gcnn" if seed % 2 else "activation")
    bound = lipschitz_bound(case.module, case.graph)
    x = torch.randn(20, case.graph.num_nodes, case.features, dtype=torch.float64)
    found = empirical_lipschitz(case.module, case.graph, x, starts=1, steps=15)
    assert (found.per_node <= bound.per_node * (1 + 1e-9) + 1e-8).all()
    change = (case.module(found.perturbed, case.graph) - case.module(found.x, case.graph)).abs().max()
    if found.value:
        ratio = (change / (found.perturbed - found.x).abs().max()).item()
        assert ratio == pytest.approx(found.value, rel=1e-6)


LINEAR = {
    "filter": lambda: GraphFilter(1, 1, order=3),
    "FIR": lambda: FIR([1, 3], order=2, out_features=1),
    "two layers": lambda: FIR([1, 3, 2], order=2, out_features=1, bias=True),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_pairs_against_linear_networks(kind):
    """Constants are attained, and the check of the draws notices one that is one percent too small."""
    torch.manual_seed(0)
    graph, module = random_graph(9, 0.4), LINEAR[kind]().double()
    bound = lipschitz_bound(module, graph)
    found = empirical_lipschitz(module, graph, torch.randn(3, 9, 1, dtype=torch.float64), starts=1, steps=5)
    assert (found.per_node <= bound.per_node * (1 + 1e-9)).all()
    assert (found.per_node > 0.99 * bound.per_node).all()
    case = Draw(module, graph, torch.zeros(9, dtype=torch.int64), 1)
    pair = found.x.unsqueeze(0), found.perturbed.unsqueeze(0)
    assert violations(case, bound.per_node, *pair)[0] == 0
    assert violations(case, 0.99 * bound.per_node, *pair)[0] > 0


def test_pairs_against_a_relu_network_that_is_linear_where_it_matters():
    """Taps that are not negative: all ReLUs can be on at once, so that the constant is attained."""
    torch.manual_seed(0)
    graph, model = random_graph(8, 0.5), GCNN([1, 3, 3], order=2, activation="relu", out_features=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    bound = lipschitz_bound(model, graph)
    found = empirical_lipschitz(model, graph, uniform((4, 8, 1), 5, 10, torch.Generator().manual_seed(0)))
    assert 0.99 * bound.value < found.value <= bound.value * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_norms_that_are_too_much_work_are_bounded_without_signs(monkeypatch, seed):
    case = draw(seed, KINDS[seed % len(KINDS)], max_nodes=5)
    layers, features = read_layers(case.module)
    with torch.no_grad():
        exact = lipschitz.layer_constants(layers, features, case.graph)
        ended = lipschitz.layer_constants(layers, features, case.graph, lipschitz.limit_work(-1.0))
    for tight, without_signs in zip(exact, ended, strict=True):
        assert tight.shape == without_signs.shape
        assert (without_signs >= tight * (1 - 1e-12)).all()
    monkeypatch.setattr(lipschitz, "MAX_COEFFICIENTS", 0)
    monkeypatch.setattr(lipschitz, "MAX_NORM_WORK", -1.0)
    bound = lipschitz_bound(case.module, case.graph)
    assert not bound.uses_forms
    assert violations(case, bound.per_node, *case.signals(6, torch.Generator().manual_seed(seed)))[0] == 0


@pytest.mark.parametrize("name", ["max-ga", "kernel-ga", "median-l"])
def test_work_is_counted_while_norms_are_computed(name, monkeypatch):
    """Operations of every few rows, so that norms of dense powers end in time."""
    graph, spent = random_graph(40, 0.2), []
    model = GCNN([1, 4, 4], order=4, activation=name, hops=3, out_features=2).double()
    monkeypatch.setattr(lipschitz, "MAX_ROWS", 8)
    layers, features = read_layers(model)
    lipschitz.layer_constants(layers, features, graph.to(torch.float64), spent.append)
    assert len(spent) > 2 * 4 * 40 / 8  # filters, hops and blocks of rows
    assert sum(spent) > 40 * 40


def test_certificates_of_large_networks(monkeypatch):
    """Without forms certificates are wider and still hold."""
    torch.manual_seed(0)
    graph, radius = random_graph(10, 0.3).normalize("spectral"), 1e-3
    model, x = GCNN([1, 4, 4], order=2, activation="max-ga", out_features=4).double(), torch.randn(4, 10, 1).double()
    tight, narrow = lipschitz_bound(model, graph), certify(model, graph, x, radius)
    monkeypatch.setattr(lipschitz, "MAX_COEFFICIENTS", 0)
    monkeypatch.setattr("graphact.guarantees.certificate.MAX_GENERATORS", 0)
    loose, wide = lipschitz_bound(model, graph), certify(model, graph, x, radius)
    assert (tight.uses_forms, loose.uses_forms) == (True, False)
    assert (tight.per_node <= loose.per_node * (1 + 1e-9)).all()
    assert (wide.lower <= narrow.lower).all()
    assert (wide.upper >= narrow.upper).all()
    assert (wide.margins <= narrow.margins).all()
    assert wide.certified.any()
    check_certificate(wide, attack(model, graph, x, radius))
