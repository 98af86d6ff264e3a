"""The constant of a network whose nodes have a scaling each."""

import pytest
import torch
from torch.nn.utils import parametrize

from graphact.guarantees import attack, certify, empirical_lipschitz, lipschitz_bound, lipschitz_constrained
from graphact.nn import GCNN, ScaledNetwork, Standardize
from graphact.spec import UnsupportedModelError
from support.graphs import random_graph

GRAPH = random_graph(5, 0.6, dtype=torch.float64)


def scaled():
    torch.manual_seed(0)
    model = ScaledNetwork(GCNN([1, 3], activation="max-ga"), 1, out_features=1, nodes="abcde").double()
    model.input.set(0.0, torch.rand(5, 1) + 0.5)
    model.output.set(1.0, torch.rand(5, 1) + 0.5)
    return model


@pytest.mark.parametrize("sign", [1, -1])
def test_no_pair_of_signals_is_beyond_the_constant(sign):
    """Files and optimizers may hold negative scales, too."""
    model = scaled()
    model.input.std.data[2] *= sign
    bound = lipschitz_bound(model, GRAPH)
    found = empirical_lipschitz(model, GRAPH, torch.randn(4, 5, 1).double(), generator=torch.Generator().manual_seed(0))
    assert 0 < found.value <= bound.value <= bound.composed
    assert (found.per_node <= bound.per_node).all()


class ByMode(torch.nn.Module):
    def forward(self, std):
        return std if torch.is_grad_enabled() else 0.1 * std


def compile_in_place(model):
    model.input.compile()


def replace_the_input(model):
    model.input = torch.nn.Linear(1, 1).double()


def share_the_input(model):
    model.input = Standardize(1).double()


@pytest.mark.parametrize(
    "change",
    [
        compile_in_place,
        replace_the_input,
        share_the_input,
        lambda model: setattr(model, "output", torch.nn.Linear(1, 1).double()),
        lambda model: parametrize.register_parametrization(model.input, "std", ByMode()),
        lambda model: model.output.register_forward_hook(lambda *_: None),
    ],
)
def test_a_scaling_that_was_changed_is_refused(change):
    model = scaled()
    change(model)
    with pytest.raises(UnsupportedModelError):
        lipschitz_bound(model, GRAPH)


def test_values_and_graphs_that_do_not_fit_are_refused():
    model = scaled()
    with pytest.raises(ValueError, match="a row for each of the 5 nodes"):
        lipschitz_bound(model, random_graph(6, 0.6, dtype=torch.float64))
    model.output.mean.data[0] = torch.nan
    with pytest.raises(ValueError, match="must be finite"):
        lipschitz_bound(model, GRAPH)


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
    with pytest.raises((TypeError, ValueError), match="radius must be"):
        search(scaled().network, GRAPH, torch.randn(5, 1).double(), radius)
