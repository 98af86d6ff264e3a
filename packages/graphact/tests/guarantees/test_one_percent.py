"""Attacks break bounds that are one percent too small where constants are attained, and never the bounds themselves.

Lost links are in test_lost_links.py, noise on edges in test_topology.py.
"""

import pytest
import torch

from graphact.guarantees import certify, empirical_lipschitz, lipschitz_bound
from graphact.nn import FIR, GCNN, GraphFilter
from guarantees.draws import uniform
from support.graphs import random_graph

LINEAR = {
    "filter": lambda: GraphFilter(1, 1, order=3),
    "FIR": lambda: FIR([1, 3], order=2, out_features=1),
    "two layers": lambda: FIR([1, 3, 2], order=2, out_features=1, bias=True),
}


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("seed", range(3))
def test_pairs_against_linear_networks(kind, seed):
    torch.manual_seed(seed)
    graph, module = random_graph(9, 0.4), LINEAR[kind]().double()
    bound = lipschitz_bound(module, graph)
    found = empirical_lipschitz(module, graph, torch.randn(3, 9, 1, dtype=torch.float64), starts=1, steps=5)
    assert (found.per_node <= bound.per_node * (1 + 1e-9)).all()
    assert (found.per_node > 0.99 * bound.per_node).all()
    assert found.value > 0.99 * bound.value


@pytest.mark.parametrize("seed", range(3))
def test_gradients_against_certificates_of_linear_networks(seed):
    """Every end of every interval is reached: by the signs of the gradient of that output."""
    torch.manual_seed(seed)
    graph, model = random_graph(7, 0.4), FIR([1, 3, 2], order=2, out_features=3).double()
    x, radius = torch.randn(1, 7, 1, dtype=torch.float64), 0.1
    certificate = certify(model, graph, x, radius)
    jacobian = torch.autograd.functional.jacobian(lambda x: model(x, graph), x).reshape(21, 1, 7, 1)
    with torch.no_grad():
        outputs = model(x, graph).flatten()
        for sign, ends in ((1, certificate.upper), (-1, certificate.lower)):
            reached = model(x + sign * radius * jacobian.sign(), graph).reshape(21, 21).diagonal()
            allowed = sign * (ends.flatten() - outputs)
            assert (sign * (reached - outputs) <= allowed).all()
            assert (sign * (reached - outputs) > 0.99 * allowed).all()


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
