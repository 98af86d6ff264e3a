"""Numbers that overflow give infinite constants, and a radius must be one."""

import pytest
import torch

from graphact.guarantees import attack, certify, lipschitz_bound, lipschitz_constrained
from graphact.nn import GCNN
from support.graphs import random_graph

GRAPH = random_graph(5, 0.6, dtype=torch.float64)


def test_nothing_is_certified_where_numbers_overflow():
    model = GCNN([1, 3, 3], activation="max-ga", out_features=2).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e100)
    bound = lipschitz_bound(model, GRAPH)
    assert bound.value == bound.composed == torch.inf
    lipschitz_constrained(model, GRAPH, 1.0)
    assert not model.readout.weight.any()


@pytest.mark.parametrize("search", [certify, attack])
@pytest.mark.parametrize("radius", [-1.0, float("nan"), "0.1", None])
def test_a_radius_that_is_none(search, radius):
    model = GCNN([1, 3], activation="max-ga").double()
    with pytest.raises((TypeError, ValueError), match="radius must be"):
        search(model, GRAPH, torch.randn(5, 1).double(), radius)
