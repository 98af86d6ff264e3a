"""No pair of signals, random or searched for, moves outputs by more than the certified constant allows."""

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from graphact.guarantees import empirical_lipschitz, lipschitz_bound
from graphact.nn import GCNN, GraphAdaptive, GraphFilter
from guarantees.draws import draw, violations
from support.graphs import random_graph

MODULES = 150
PAIRS = 12


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


def test_a_constrained_network_is_checked_with_what_it_really_computes():
    """The bound reads the parameters as they are now."""
    graph = random_graph(8, 0.6)
    model = GCNN([1, 2], order=1, activation="max-ga").double()
    before = lipschitz_bound(model, graph).value
    with torch.no_grad():
        model.readout.weight.mul_(3)
    assert lipschitz_bound(model, graph).value == pytest.approx(3 * before)
