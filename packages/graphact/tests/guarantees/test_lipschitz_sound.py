"""No pair of signals, random or searched for, moves outputs by more than the certified constant allows."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from graphact.guarantees import attack, certify, empirical_lipschitz, lipschitz, lipschitz_bound
from graphact.guarantees.layers import read_layers
from graphact.nn import FIR, GCNN, GraphAdaptive, GraphFilter
from graphact.training import TrainingSettings, fit
from guarantees.draws import draw, uniform, violations
from support.graphs import random_graph

MODULES = 150
PAIRS = 12
KINDS = ("chain", "gcnn", "fir", "activation", "filter")


@pytest.mark.slow
def test_random_draws():
    """150 modules on 8 graphs each, 12 pairs of signals: 14,400 draws."""
    generator, broken, drawn = torch.Generator().manual_seed(0), 0, 0
    for seed in range(MODULES):
        case = draw(seed)
        per_node = lipschitz_bound(case.module, case.graph).per_node
        wrong, count = violations(case, per_node, *case.signals(PAIRS, generator))
        assert not wrong, f"draw {seed}: {case.module}"
        broken, drawn = broken + wrong, drawn + count
    assert drawn >= 10_000
    assert broken == 0


@pytest.mark.parametrize("seed", range(200, 212))
def test_gradient_ascent(seed):
    case = draw(seed, kind="gcnn" if seed % 2 else "activation")
    bound = lipschitz_bound(case.module, case.graph)
    x = torch.randn(20, case.graph.num_nodes, case.features, dtype=torch.float64)
    found = empirical_lipschitz(case.module, case.graph, x, starts=1, steps=15)
    assert (found.per_node <= bound.per_node * (1 + 1e-9) + 1e-8).all()
    assert found.value <= bound.value * (1 + 1e-9) + 1e-8
    change = (case.module(found.perturbed, case.graph) - case.module(found.x, case.graph)).abs().max()
    if found.value:
        ratio = (change / (found.perturbed - found.x).abs().max()).item()
        assert ratio == pytest.approx(found.value, rel=1e-6)


@hypothesis.given(seed=st.integers(1000, 10**9), pairs=st.integers(1, 20))
@hypothesis.settings(max_examples=40)
def test_any_draw(seed, pairs):
    case = draw(seed, max_nodes=5)
    bound = lipschitz_bound(case.module, case.graph)
    generator = torch.Generator().manual_seed(seed)
    assert violations(case, bound.per_node, *case.signals(pairs, generator))[0] == 0
    assert bound.value == bound.per_node.max()
    assert bound.value <= bound.composed * (1 + 1e-9)


def attained(module, graph):
    """A case in which the bound is reached: the signs of the strongest row, at two small multiples."""
    case = draw(0)
    bound = lipschitz_bound(module, graph)
    features = module.in_features if isinstance(module, GraphFilter) else 1
    x = torch.full((1, graph.num_nodes, features), 0.1, dtype=torch.float64).requires_grad_()
    node = int(bound.per_node.argmax())
    output = module(x, graph)[0, node]
    gradients = [torch.autograd.grad(value, x, retain_graph=True)[0] for value in output]
    gradient = max(gradients, key=lambda each: each.abs().sum())
    case = type(case)(module, graph, torch.zeros(graph.num_nodes, dtype=torch.int64), features)
    return case, bound, x.detach(), x.detach() + 1e-3 * gradient.sign()


def test_the_check_can_fail():
    """A constant 1 % too small is found out where the constant is attained: a filter bank and a max activation."""
    graph = random_graph(8, 0.6)
    bank = GraphFilter(2, 3, order=2).double()
    activation = GraphAdaptive("max", hops=1).double()
    with torch.no_grad():
        activation.weights.fill_(0.7)
    for module in (bank, activation):
        case, bound, x, other = attained(module, graph)
        assert violations(case, bound.per_node, x, other)[0] == 0
        assert violations(case, 0.99 * bound.per_node, x, other)[0] > 0


LINEAR = {
    "filter": lambda: GraphFilter(1, 1, order=3),
    "FIR": lambda: FIR([1, 3], order=2, out_features=1),
    "two layers": lambda: FIR([1, 3, 2], order=2, out_features=1, bias=True),
}


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("seed", range(3))
def test_pairs_against_linear_networks(kind, seed):
    """Constants that are attained: bounds one percent too small would be broken at every node."""
    torch.manual_seed(seed)
    graph, module = random_graph(9, 0.4), LINEAR[kind]().double()
    bound = lipschitz_bound(module, graph)
    found = empirical_lipschitz(module, graph, torch.randn(3, 9, 1, dtype=torch.float64), starts=1, steps=5)
    assert (found.per_node <= bound.per_node * (1 + 1e-9)).all()
    assert (found.per_node > 0.99 * bound.per_node).all()


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


def test_a_constrained_network_is_checked_with_what_it_really_computes():
    """The bound reads the parameters as they are now."""
    graph = random_graph(8, 0.6)
    model = GCNN([1, 2], order=1, activation="max-ga").double()
    before = lipschitz_bound(model, graph).value
    with torch.no_grad():
        model.readout.weight.mul_(3)
    assert lipschitz_bound(model, graph).value == pytest.approx(3 * before)


@pytest.mark.parametrize("seed", range(12))
def test_norms_that_are_too_much_work_are_bounded_without_signs(monkeypatch, seed):
    case = draw(seed, KINDS[seed % len(KINDS)], max_nodes=5)
    layers, features = read_layers(case.module)
    with torch.no_grad():
        exact = lipschitz.layer_norms(layers, features, case.graph)
        ended = lipschitz.layer_norms(layers, features, case.graph, lipschitz.limit_work(-1.0))
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
    lipschitz.layer_norms(layers, features, graph.to(torch.float64), spent.append)
    assert len(spent) > 2 * 4 * 40 / 8  # filters, hops and blocks of rows
    assert sum(spent) > 40 * 40


def trained(name, seed=0):
    from graphact_lab.tasks import source_localization

    torch.manual_seed(seed)
    task = source_localization(graph=0, split=0, node=0)
    model = GCNN([1, 4, 4], order=2, activation=name, hops=1, out_features=4)
    fit(model, task, TrainingSettings(epochs=6, batch_size=240, learning_rate=0.02))
    return model.double(), task.graph.to(torch.float64), task.inputs[task.test].double()


@pytest.mark.parametrize("name", ["relu", "max-l", "median-l", "max-ga", "median-ga", "kernel-ga"])
def test_attacks_on_trained_models(monkeypatch, name):
    """Gradient ascent on pairs of signals: 12,480 evaluations for each activation, against both kinds of bound."""
    model, graph, x = trained(name)
    evaluations = 0

    def counted(signals, graph):
        nonlocal evaluations
        evaluations += signals.shape[:-2].numel()
        return model(signals, graph)

    tight = lipschitz_bound(model, graph)
    monkeypatch.setattr(lipschitz, "MAX_COEFFICIENTS", 0)
    loose = lipschitz_bound(model, graph)
    found = empirical_lipschitz(counted, graph, x, starts=2, steps=40)
    assert evaluations >= 12_000
    assert (tight.uses_forms, loose.uses_forms) == (True, False)
    assert (found.per_node <= tight.per_node * (1 + 1e-9)).all()
    assert (tight.per_node <= loose.per_node * (1 + 1e-9)).all()
    assert found.value > tight.value / 200


def test_certificates_of_large_networks(monkeypatch):
    """Without forms certificates are wider and still hold."""
    model, graph, x = trained("max-ga")
    narrow, radius = certify(model, graph, x[:4], 1e-4), 1e-4
    monkeypatch.setattr(lipschitz, "MAX_COEFFICIENTS", 0)
    monkeypatch.setattr("graphact.guarantees.certificate.MAX_GENERATORS", 0)
    wide, tried = certify(model, graph, x[:4], radius), attack(model, graph, x[:4], radius)
    assert (wide.lower <= narrow.lower).all()
    assert (wide.upper >= narrow.upper).all()
    assert (wide.margins <= narrow.margins).all()
    assert wide.certified.any()
    assert (wide.lower <= tried.lower).all()
    assert (tried.upper <= wide.upper).all()
    assert not (tried.changed & wide.certified).any()


@pytest.mark.parametrize("seed", range(40, 60))
def test_magnitudes_hold(seed):
    """The sum over all paths, which is used for large graphs: no signs, one pass over the edges for each hop."""
    case = draw(seed, KINDS[seed % len(KINDS)])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        largest, _ = lipschitz.magnitudes(*read_layers(case.module), case.graph)
    assert violations(case, largest.amax(-1), *case.signals(12, generator))[0] == 0
