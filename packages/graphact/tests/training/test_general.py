"""Fleets of modules that do not describe themselves: each ends as if it had been trained alone with fit."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import BatchNorm, GCNConv

from graphact.guarantees import lipschitz_constrained
from graphact.nn import GCNN, GraphAdaptive, GraphFilter, Localized, Sequential
from graphact.spec import UnsupportedModelError
from graphact.spec.reductions import Operation
from graphact.training import Fleet, TrainingSettings, fit
from support.general_models import (
    GRAPHS,
    Dropped,
    Normalized,
    check_as_alone,
    make_tasks,
    partly,
    with_a_clipped_gradient,
)
from support.tasks import make_task


class PyG(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(2, 6, node_dim=-2), GCNConv(6, 1, node_dim=-2)
        self.norm, self.dropout = BatchNorm(6), nn.Dropout(0.2)

    def forward(self, x, graph):
        edges = graph.to_edge_index()
        hidden = self.first(x, *edges)
        hidden = self.norm(hidden.flatten(0, 1)).view(hidden.shape)
        return self.last(self.dropout(torch.relu(hidden)), *edges)


def span(neighbors):
    return neighbors.amax(-2) - neighbors.amin(-2)


class LocalizedSpan(Localized):
    operation = Operation("localized-span", span)


def twice(part):
    """A chain in which one module stands in two places."""
    return Sequential(GraphFilter(2, 4, order=1), nn.Sequential(part, part), nn.Linear(4, 1))


MODELS = {
    "dropout": (Dropped, "nothing is known"),
    "constrained": (
        lambda: lipschitz_constrained(GCNN([2, 4]), GRAPHS[0], 0.5),
        "a parameter is computed from others, shared or unused",
    ),
    "hook on a gradient": (with_a_clipped_gradient, "filters.0.taps: it carries hooks"),
    "localized, own operation": (
        lambda: GCNN([2, 4], activation=lambda features: LocalizedSpan(features=features, hops=2)),
        "the localized operation 'localized-span' is not stacked",
    ),
    "own operation": (
        lambda: GCNN([2, 4], activation=lambda features: GraphAdaptive(span, features=features)),
        "the operation 'span' is not stacked",
    ),
    "PyG": (PyG, "nothing is known about what a PyG computes"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_module_is_trained_as_alone(name):
    make, reason = MODELS[name]
    fleet = check_as_alone(make, make_tasks(3))
    assert fleet.strategy == "loop"
    assert reason in fleet.reason


@pytest.mark.parametrize("make", [nn.Tanh, lambda: nn.Linear(4, 4)], ids=["shared activation", "shared parameters"])
def test_a_module_that_stands_there_twice_is_trained_as_alone(make):
    """Stacked layers without the second would be another network."""
    fleet = check_as_alone(lambda: twice(make()), make_tasks(2))
    assert fleet.strategy == "loop"
    assert "layer 2" in fleet.reason


@pytest.mark.parametrize("strategy", ["stacked", "loop"])
def test_all_strategies_agree_where_all_are_possible(strategy):
    tasks = make_tasks(3, dtype=torch.float64)
    model = partly(GCNN([2, 4, 3], activation="median-ga", hops=2, bias=True))
    fleet = check_as_alone(lambda: copy.deepcopy(model), tasks, strategy)
    assert fleet.strategy == strategy
    for trained in fleet.models:
        assert torch.equal(trained.filters[0].taps, model.filters[0].taps)
        assert not trained.filters[0].taps.requires_grad


@pytest.mark.parametrize(
    ("strategy", "make", "reason"),
    [
        ("stacked", Normalized, "nothing is known about what a Normalized computes"),
        ("stacked", with_a_clipped_gradient, "filters.0.taps: it carries hooks"),
    ],
)
def test_a_way_that_is_asked_for_is_taken_or_refused(strategy, make, reason):
    tasks = make_tasks(2)
    with pytest.raises(UnsupportedModelError, match=reason):
        Fleet([make() for _ in tasks], tasks, strategy=strategy)
    with pytest.raises(ValueError, match="strategy must be one of 'stacked', 'loop', got 'fast'"):
        Fleet([make() for _ in tasks], tasks, strategy="fast")


@pytest.mark.slow
def test_a_compiled_model_is_trained_to_the_same_end():
    torch.compiler.reset()
    task, settings = make_task(), TrainingSettings(epochs=4, batch_size=8)
    results = []
    for run in (lambda model: model, lambda model: torch.compile(model, backend="aot_eager")):
        torch.manual_seed(0)
        model = GCNN([1, 3], order=2, activation="median-ga", out_features=1).to(task.inputs.dtype)
        results.append((fit(run(model), task, settings).test, *model.parameters()))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
