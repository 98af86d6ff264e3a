"""A description is true or refused: models that were changed, and everything that interprets descriptions."""

import copy
import types

import pytest
import torch

import graphact
from graphact import nn
from graphact.guarantees import certify, lipschitz_bound, lipschitz_constrained, topology_bound
from graphact.spec import UnsupportedModelError
from support.general_models import check_as_alone
from support.graphs import random_graph
from support.tasks import make_tasks


class DoubledGCNN(nn.GCNN):
    def forward(self, x, graph, edge_weight=None):
        return 22 * super().forward(x, graph, edge_weight)


class DoubledLinear(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Squared(nn.GraphModule):
    def forward(self, x, graph, edge_weight=None):
        return x**2


class LouderMax(nn.GraphAdaptiveMax):
    def forward(self, x, graph, edge_weight=None):
        return 3 * super().forward(x, graph, edge_weight)


def gcnn(kind=nn.GCNN):
    return kind([1, 4, 4], order=1, activation="max-ga", out_features=4)


def changed(change):
    """Return a function that makes a model and changes it."""

    def make():
        model = gcnn()
        change(model)
        return model

    return make


def double(module, inputs, output):
    return 2 * output


def double_before(module, inputs):
    return (2 * inputs[0], *inputs[1:])


def double_forward(model, x, graph):
    return 2 * nn.GCNN.forward(model, x, graph)


DEEP = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
CHANGES = {  # and the part that refusals name
    "overridden forward": (lambda: gcnn(DoubledGCNN), ""),
    "replaced forward": (changed(lambda model: setattr(model, "forward", types.MethodType(double_forward, model))), ""),
    "hook": (changed(lambda model: model.register_forward_hook(double)), ""),
    "hook before": (changed(lambda model: model.register_forward_pre_hook(double_before)), ""),
    "hook inside": (changed(lambda model: model.activations[1].register_forward_hook(double)), "activations.1"),
    "hook on the gradient": (
        changed(lambda model: model.filters[0].register_full_backward_hook(lambda *_: None)), "filters.0"
    ),
    "hook on the readout": (changed(lambda model: model.readout.register_forward_hook(double)), "readout"),
    "another readout": (changed(lambda model: setattr(model, "readout", DoubledLinear(4, 4))), "readout"),
    "deep readout": (changed(lambda model: setattr(model, "readout", copy.deepcopy(DEEP))), "readout"),
    "unknown activation": (changed(lambda model: setattr(model.activations, "0", Squared())), "activations.0"),
    "overridden activation": (
        changed(lambda model: setattr(model.activations, "0", LouderMax(hops=1, features=4))), "activations.0"
    ),
}  # fmt: skip
GRAPH = random_graph(dtype=torch.float32)
SIGNAL = torch.randn(1, 12, 1)
INTERPRETERS = {
    "layers": lambda model, path: model.layers(),
    "lipschitz_bound": lambda model, path: lipschitz_bound(model, GRAPH),
    "lipschitz_constrained": lambda model, path: lipschitz_constrained(model, GRAPH, 1.0),
    "topology_bound": lambda model, path: topology_bound(model, GRAPH, graphact.guarantees.LostLinks(1), SIGNAL),
    "certify": lambda model, path: certify(model, GRAPH, SIGNAL, 0.1),
    "save": lambda model, path: graphact.save(model, path / "model.safetensors"),
}


@pytest.mark.parametrize("interpreter", INTERPRETERS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_model_is_refused(change, interpreter, tmp_path):
    make, part = CHANGES[change]
    with pytest.raises(UnsupportedModelError) as caught:
        INTERPRETERS[interpreter](make(), tmp_path)
    assert caught.value.part == part
    assert str(caught.value).startswith(part)
    assert not list(tmp_path.iterdir())


def test_a_forward_replaced_in_the_class(monkeypatch):
    monkeypatch.setattr(nn.GraphFilter, "forward", lambda self, x, graph, edge_weight=None: x)
    with pytest.raises(UnsupportedModelError, match="does not describe the forward"):
        gcnn().layers()


def test_a_part_that_is_known_is_described_as_it_is_now():
    """The bound follows the parts that are there; a file, which rebuilds from the arguments, is refused."""
    model, expected = gcnn(), nn.GCNN([1, 4, 4], order=1, activation="median-ga", out_features=4)
    for number in range(2):
        model.activations[number] = nn.GraphAdaptiveMedian(hops=1, features=4)
    expected.load_state_dict(model.state_dict())
    assert [layer.settings() for layer in model.layers()] == [layer.settings() for layer in expected.layers()]
    assert lipschitz_bound(model, GRAPH).value == lipschitz_bound(expected, GRAPH).value
    with pytest.raises(UnsupportedModelError, match="was changed after it was made"):
        graphact.files.describe_model(model)


def test_frozen_parameters_stay_frozen_in_a_file(tmp_path):
    model = gcnn()
    model.filters[0].taps.requires_grad_(False)
    graphact.save(model, tmp_path / "model.safetensors")
    loaded = graphact.load(tmp_path / "model.safetensors")
    assert [name for name, p in loaded.named_parameters() if not p.requires_grad] == ["filters.0.taps"]


def test_a_constrained_model_is_bounded_as_it_computes_and_not_saved(tmp_path):
    model = lipschitz_constrained(gcnn(), GRAPH, limit=0.5)
    assert lipschitz_bound(model, GRAPH).value <= 0.5
    with pytest.raises(UnsupportedModelError, match="computed from other parameters"):
        graphact.save(model, tmp_path / "model.safetensors")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("change", CHANGES)
def test_a_fleet_trains_a_changed_model_as_it_is(change):
    """A description that would not be true is not used: the fleet ends where training alone does."""
    make, part = CHANGES[change]
    fleet = check_as_alone(make, make_tasks(2, samples=400, classes=4), epochs=2, batch_size=100)
    assert fleet.strategy == "loop"
    assert fleet.reason.startswith(part)


def test_hooks_of_all_modules_are_hooks_of_each():
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: 2 * output)
    try:
        with pytest.raises(UnsupportedModelError, match="carries hooks"):
            gcnn().layers()
    finally:
        handle.remove()
    assert gcnn().layers()
