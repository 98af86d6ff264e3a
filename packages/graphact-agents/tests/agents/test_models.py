"""Descriptions as agents read them: operations of users, files of every version, and refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import graphact
from agents.networks import GRAPHS
from agents.own_operations import registering, soft_max, soft_max_in_numpy
from agents.replay import replay_inference
from graphact import nn
from graphact.files import describe_model
from graphact.storage import save_tensors
from graphact_agents import Deployment, IncompatibleModelError, load_model, operations, save_model, simulate_inference
from support.on_agents import deploy, to_model


def contrast(own, neighbors, xp):
    return xp.amax(xp.abs(own - neighbors), -2)


def contrast_in_numpy(own, neighbors):
    return np.abs(own - neighbors).max(-2)


operation = pytest.fixture(registering)


# Operations of users


@pytest.mark.parametrize("graph", ["directed", "disconnected", "star"])
@pytest.mark.parametrize("closed", [False, True])
def test_an_operation_of_a_user_runs_on_agents(graph, closed, operation, tmp_path):
    operation("contrast", contrast, contrast_in_numpy)
    operation("soft", soft_max, soft_max_in_numpy, t=0.5)
    graph = GRAPHS[graph]()
    x = np.random.default_rng(0).normal(size=(2, 3, graph.num_nodes, 2))
    for model in (
        nn.GraphAdaptive("contrast", hops=2, features=2, closed=closed).double(),
        nn.GraphAdaptive("soft", hops=1, closed=closed, t=0.7, learn_t=True).double(),
        nn.GraphAdaptive("soft", hops=1, closed=closed, t=0.7).float(),
    ):
        nodes = deploy(model, graph)
        tolerance = 1e-12 if nodes[0].model.dtype == float else 1e-5
        dtype = next(model.parameters()).dtype
        expected = model(torch.from_numpy(x).to(dtype), graph.to(dtype=dtype)).detach().numpy()
        answer = simulate_inference(nodes, x)
        np.testing.assert_allclose(answer.outputs, expected, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(replay_inference(nodes, x, answer.outcome), expected, rtol=tolerance, atol=tolerance)
        nodes[0].save(tmp_path / "node")
        assert Deployment.load(tmp_path / "node").model.digest == nodes[0].model.digest


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda own, neighbors: neighbors.amax(-2), "does not run on NumPy arrays: AttributeError: .*amax"),
        (lambda own, neighbors: neighbors, "must map arrays"),
        (lambda own, neighbors: 0.0, "must map arrays .* to .2, 3., got float"),
    ],
)
def test_an_operation_that_does_not_fit_is_refused(function, message, operation):
    operation("odd", lambda neighbors: neighbors.sum(-2), function)
    with pytest.raises(IncompatibleModelError, match=f"operation 'odd' {message}") as caught:
        deploy(nn.GraphAdaptive("odd"), GRAPHS["line"]())
    assert caught.value.part.endswith("model.safetensors: layer 0")


def test_the_error_names_the_part():
    with pytest.raises(IncompatibleModelError, match="must have one hop") as caught:
        deploy(nn.GCNN([1, 2], order=1, activation="max-l", hops=2), GRAPHS["line"]())
    assert caught.value.part.endswith("activations.0")


def test_an_operation_that_a_node_does_not_know_is_refused(operation, tmp_path):
    operation("contrast", contrast, contrast_in_numpy)
    graphact.save(nn.GraphAdaptive("contrast"), tmp_path / "model.safetensors")
    del operations.OPERATIONS["contrast"]
    with pytest.raises(ValueError, match="operation must be one of 'max', .* got 'contrast'"):
        load_model(tmp_path / "model.safetensors")


def test_names_of_built_in_operations_are_taken():
    with pytest.raises(ValueError, match="operation 'max' is built in"):
        operations.register_operation("max", contrast_in_numpy)
    with pytest.raises(ValueError, match="must take .own, neighbors"):
        operations.register_operation("mine", lambda neighbors: neighbors.max(-2))


# Files


def test_frozen_parameters_are_known_to_agents(tmp_path):
    model = nn.GCNN([1, 2], order=1, activation="max-ga")
    model.filters[0].taps.requires_grad_(False)
    save_model(deploy(model, GRAPHS["line"]())[0].model, tmp_path / "model.safetensors")
    assert list(load_model(tmp_path / "model.safetensors").frozen) == ["filters.0.taps"]
    loaded = graphact.load(tmp_path / "model.safetensors")
    assert [name for name, p in loaded.named_parameters() if not p.requires_grad] == ["filters.0.taps"]


def corrupted(header, change):
    """A header with one layer changed."""
    header = json.loads(json.dumps(header))
    change(header["layers"])
    return header


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layers: layers.pop(), "parameters must be those of the layers"),
        (lambda layers: layers.append(layers[0] | {"kind": "attention"}), "agents know the layers .* got 'attention'"),
        (
            lambda layers: layers[0].update(arrays={"taps": "nowhere"}),
            "taps must be a tensor of the file, got 'nowhere'",
        ),
        (lambda layers: layers[0].update(arrays={"taps": ["x"]}), "taps must be a tensor of the file"),
        (lambda layers: layers[0].update(arrays=[1]), "must be an object with kind and arrays"),
        (lambda layers: layers[0].update(arrays={"taps": "readout.weight"}), "taps must have 3 dimensions"),
        (lambda layers: layers[0].update(colour=3), "its settings must be .*colour"),
        (
            lambda layers: layers[1].update(reads="everything"),
            "reads must be 'shifted', 'unshifted' or 'hops', got 'everything'",
        ),
        (lambda layers: layers[1].update(operation="guess"), "operation must be one of"),
        (lambda layers: layers[1].update(operation=["max"]), "operation must be of type str"),
        (lambda layers: layers[1].update(closed=1), "closed must be of type bool, got 1"),
        (lambda layers: layers[1].update(constants={"gamma": 2}), "the parameters of 'max' must be"),
        (lambda layers: layers[1].update(kind="pointwise"), "its settings must be"),
        (lambda layers: layers.insert(0, {"kind": "pointwise", "function": "sin", "arrays": {}}), "got 'sin'"),
        (lambda layers: layers.reverse(), "signal must have"),
    ],
)
def test_a_header_that_describes_nonsense_is_refused(change, message, tmp_path):
    model = nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=3).double()
    save_tensors(tmp_path / "model.safetensors", model.state_dict(), corrupted(describe_model(model), change))
    with pytest.raises(ValueError, match=rf"model\.safetensors.*{message}"):
        load_model(tmp_path / "model.safetensors")


def test_tensors_that_do_not_fit_their_layer_are_refused():
    plain = to_model(nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=3, bias=True).double())
    for name, shape, message in [
        ("filters.0.taps", (2, 1), r"filters\.0: taps must have 3 dimensions, got the shape \(2, 1\)"),
        ("filters.0.bias", (3,), r"filters\.0: bias must have 2 entries, got \(3,\)"),
        ("readout.weight", (2,), "readout: weight must have 2 dimensions"),
        ("activations.0.beta", (1,), r"activations\.0: beta must have 0 dimensions"),
        ("activations.0.weights", (1, 5), "signal must have 5 features, got 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(plain, parameters={**plain.parameters, name: np.zeros(shape)})


# Nodes


def test_nodes_with_different_models_are_not_simulated():
    graph = GRAPHS["line"]()
    nodes = deploy(nn.GCNN([1, 1], order=1).double(), graph)
    nodes[4] = replace(nodes[4], model=to_model(nn.GCNN([1, 1], order=1).double()))
    with pytest.raises(ValueError, match="all nodes must hold one model, and that of node 4 differs"):
        simulate_inference(nodes, np.zeros((1, 6, 1)))
