"""Nothing within the radius leaves a certified interval or changes a certified decision."""

import pytest
import torch

from graphact.guarantees import attack, certify
from graphact.nn import FIR, GCNN, GraphFilter, ReLU, make_activation
from guarantees.draws import KINDS, check_certificate, draw, uniform
from support.graphs import random_graph

SAMPLES, TRIES = 3, 24


def perturbed(x, radius, generator):
    """Signals within the radius: inside the box, on its corners, and mixtures; (TRIES, ...)."""
    inside = uniform((TRIES, *x.shape), -1, 1, generator)
    corner = torch.where(inside < 0, -1.0, 1.0).to(x)
    mixed = torch.where(uniform(inside.shape, 0, 1, generator) < 0.5, inside, corner)
    kinds = torch.arange(TRIES).view(-1, *[1] * x.dim()) % 3
    return x + radius * torch.where(kinds == 0, inside, torch.where(kinds == 1, corner, mixed))


def broken(module, graph, certificate, others):
    """Count the outputs that leave their interval and the certified decisions that change."""
    with torch.no_grad():
        outputs = module(others, graph)
    size = 1e-12 * (1 + outputs.abs().max())
    outside = (outputs < certificate.lower - size) | (outputs > certificate.upper + size)
    changed = torch.zeros(())
    if certificate.decisions is not None:
        changed = (outputs.argmax(-1) != certificate.decisions) & certificate.certified
    return int(outside.sum()) + int(changed.sum())


def test_any_draw():
    """60 modules of every kind on 8 graphs each, 3 signals and 24 perturbations: 34,560 draws; and gradient steps."""
    certified = decided = 0
    for seed in range(60):
        case, generator = draw(seed, KINDS[seed % len(KINDS)]), torch.Generator().manual_seed(seed)
        x, _ = case.signals(SAMPLES, generator)
        radius = float(10 ** uniform((), -4, 0.5, generator))
        certificate = certify(case.module, case.graph, x, radius)
        with torch.no_grad():
            torch.testing.assert_close(certificate.outputs, case.module(x, case.graph), rtol=1e-9, atol=1e-9)
        assert broken(case.module, case.graph, certificate, perturbed(x, radius, generator)) == 0
        check_certificate(certificate, attack(case.module, case.graph, x, radius, steps=4))
        if certificate.decisions is not None:
            certified, decided = certified + int(certificate.certified.sum()), decided + certificate.margins.numel()
    assert 0.1 < certified / decided < 0.95, "a certificate that is always or never given proves nothing"


def test_linear_intervals_are_exact_and_the_check_can_fail():
    """Every end of every interval is reached, by the signs of the gradient of that output."""
    graph, model = random_graph(7, 0.5), FIR([2, 3, 2], order=2, out_features=2).double()
    x, radius = torch.randn(1, 7, 2, dtype=torch.float64), 0.3
    certificate = certify(model, graph, x, radius, kind="regressor")
    jacobian = torch.func.jacrev(lambda x: model(x, graph))(x[0])
    reach = radius * jacobian.abs().sum((-1, -2))
    with torch.no_grad():
        outputs = model(x, graph)[0]
    torch.testing.assert_close(certificate.upper[0], outputs + reach, rtol=0, atol=1e-7)
    torch.testing.assert_close(certificate.lower[0], outputs - reach, rtol=0, atol=1e-7)
    worst = x + radius * jacobian[3, 1].sign()
    assert broken(model, graph, certificate, worst) == 0
    narrower = certify(model, graph, x, 0.99 * radius, kind="regressor")
    assert broken(model, graph, narrower, worst) > 0


def test_margins_without_a_readout_count_the_slack_of_both_classes():
    """|x_1| - |x_2| is at least -0.1, where the first is 0 and the second at an end; forms say -0.116."""
    x = torch.tensor([[0.08, 0.0]] * 3, dtype=torch.float64)
    certificate = certify(make_activation("abs"), random_graph(3, 1.0), x, 0.1)
    assert (certificate.decisions == 0).all()
    assert (certificate.margins <= -0.1).all()
    assert (certificate.margins > -0.119).all()


def test_known_signs_cost_nothing():
    """Far from every kink a ReLU network is linear, and its certificate exact."""
    graph = random_graph(6, 0.5)
    model = GCNN([1, 3], order=1, activation="max-ga", out_features=1).double()
    x = torch.randn(6, 1, dtype=torch.float64)
    certificate = certify(model, graph, x, 1e-7)
    jacobian = torch.func.jacrev(lambda x: model(x, graph))(x).flatten(2).flatten(0, 1)
    reach = 1e-7 * jacobian.abs().sum(-1)
    torch.testing.assert_close((certificate.upper - certificate.outputs).flatten(), reach, rtol=0.05, atol=3e-9)


def test_shapes_kinds_and_mistakes():
    graph = random_graph(5, 0.5)
    model = GCNN([1, 2], out_features=3).double()
    certificate = certify(model, graph, torch.randn(2, 4, 5, 1, dtype=torch.float64), 0.0)
    assert certificate.lower.shape == (2, 4, 5, 3)
    assert certificate.certified.shape == certificate.decisions.shape == (2, 4, 5)
    assert certificate.certified.all()
    regressor = certify(model, graph, torch.zeros(5, 1, dtype=torch.float64), 0.1, kind="regressor")
    assert regressor.decisions is None
    with pytest.raises(TypeError, match="a regressor makes no decisions"):
        _ = regressor.certified
    assert certify(ReLU(), graph, torch.zeros(5, 4, dtype=torch.float64), 0.5).upper.max() == pytest.approx(0.5)
    with pytest.raises(ValueError, match="radius must be a finite number, at least 0, got -1"):
        certify(model, graph, torch.zeros(5, 1, dtype=torch.float64), -1)
    with pytest.raises(ValueError, match="x must have 1 features, got 2"):
        certify(model, graph, torch.zeros(5, 2, dtype=torch.float64), 1)
    with pytest.raises(ValueError, match="at least one signal"):
        certify(model, graph, torch.zeros(0, 5, 1, dtype=torch.float64), 1)
    with pytest.raises(ValueError, match="one output a node"):
        certify(GCNN([1, 2]), graph, torch.zeros(5, 1, dtype=torch.float64), 1, kind="classifier")


def test_searches_find_something():
    graph = random_graph(7, 0.5)
    bank = GraphFilter(1, 2, order=2).double()
    found = attack(bank, graph, torch.zeros(7, 1, dtype=torch.float64), 1.0)
    reach = torch.func.jacrev(lambda x: bank(x, graph))(torch.zeros(7, 1, dtype=torch.float64)).abs().sum((-1, -2))
    assert (found.upper <= reach + 1e-12).all()
    assert (found.upper >= 0.3 * reach).all()
    assert found.changed.any()
