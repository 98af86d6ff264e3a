"""What agents make of a description: operations of users, files of every version, and refusals."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from agents.networks import GRAPHS
from support.activations import ON_AGENTS

import graphact
from graphact import agents, nn
from graphact.agents import Deployment, deploy, load_model, save_model, simulate_inference
from graphact.agents.replay import replay_inference
from graphact.agents.split import plain_model
from graphact.files import describe_model
from graphact.layers import UnsupportedModelError
from graphact.operations import OPERATIONS, Operation, register_operation
from graphact.storage import save_tensors

MODULES = {
    **{
        name: lambda name=name: nn.GCNN(
            [2, 4, 3], order=[2, 1], activation=name, out_features=2, gamma=0.8, bias=True, closed=True
        )
        for name in ON_AGENTS
    },
    "learned": lambda: nn.GCNN(
        [2, 4], order=1, activation="kernel-ga", hops=2, out_features=None, learn_gamma=True, per_feature=False
    ),
    "fir": lambda: nn.FIR([2, 3, 2], order=[3, 0], out_features=4),
    "filter": lambda: nn.GraphFilter(2, 3, order=2, bias=True),
    "min": lambda: nn.GraphAdaptive("min", hops=2, features=2),
    "any kernel": lambda: nn.GraphAdaptive("kernel", hops=2, gamma=0.3),
    **{
        kind.__name__: lambda kind=kind: kind(closed=True)
        for kind in (nn.LocalizedMax, nn.LocalizedMedian, nn.GraphAdaptiveMax, nn.GraphAdaptiveMedian)
    },
    "GraphAdaptiveKernel": lambda: nn.GraphAdaptiveKernel(hops=3, gamma=0.7, learn_gamma=True),
    "ReLU": nn.ReLU,
}


@pytest.fixture
def operation():
    """Registers operations, and forgets them."""
    before = dict(OPERATIONS)
    yield lambda name, function, *rest, **options: register_operation(Operation(name, function, *rest, **options))
    OPERATIONS.clear()
    OPERATIONS.update(before)


def soft_max(neighbors, xp, t):
    return t * xp.log(xp.mean(xp.exp(neighbors / t), -2))


def contrast(own, neighbors, xp):
    return xp.amax(xp.abs(own - neighbors), -2)


# Operations of users


@pytest.mark.parametrize("graph", ["directed", "disconnected", "star"])
@pytest.mark.parametrize("closed", [False, True])
def test_an_operation_of_a_user_runs_on_agents(graph, closed, operation, tmp_path):
    operation("contrast", contrast)
    operation("soft", soft_max, {"t": 0.5})
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


def test_an_activation_of_a_user_runs_on_agents(operation):
    @nn.register("contrast-ga")
    class GraphAdaptiveContrast(nn.GraphAdaptive):
        operation = Operation("contrast", contrast)

    try:
        graph = GRAPHS["random"]()
        model = nn.GCNN([1, 3, 2], order=1, activation="contrast-ga", hops=2, out_features=1).double()
        x = np.random.default_rng(1).normal(size=(1, graph.num_nodes, 1))
        expected = model(torch.from_numpy(x), graph).detach().numpy()
        np.testing.assert_allclose(
            simulate_inference(deploy(model, graph), x).outputs, expected, rtol=1e-12, atol=1e-12
        )
    finally:
        nn.unregister("contrast-ga")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda neighbors: neighbors.amax(-2), "does not run on NumPy arrays: AttributeError: .*amax"),
        (lambda neighbors: torch.amax(neighbors, -2), "does not run on NumPy arrays: TypeError"),
        (lambda neighbors: neighbors.std(-2), "gives other values in NumPy than in torch"),
        (lambda neighbors: neighbors[..., 0, :], "gives other values in NumPy than in torch"),  # of an order of its own
        (
            lambda neighbors: neighbors if isinstance(neighbors, np.ndarray) else neighbors.sum(-2),
            "must map NumPy arrays",
        ),
        (
            lambda neighbors: 0.0 if isinstance(neighbors, np.ndarray) else neighbors.sum(-2),
            "must map NumPy arrays .* to .2, 3., got float",
        ),
    ],
)
def test_an_operation_that_is_another_in_numpy_is_refused(function, message, operation):
    operation("odd", function)
    model = nn.GraphAdaptive("odd", closed=True).double()
    with pytest.raises(UnsupportedModelError, match=f"its operation 'odd' {message}"):
        deploy(model, GRAPHS["line"]())


def test_the_error_names_the_part(operation):
    class GraphAdaptiveSpread(nn.GraphAdaptive):
        operation = Operation("spread", lambda neighbors: neighbors.amax(-2) - neighbors.amin(-2))

    nn.register("spread-ga")(GraphAdaptiveSpread)
    try:
        with pytest.raises(UnsupportedModelError, match="does not run on NumPy") as caught:
            deploy(nn.GCNN([1, 2, 2], order=1, activation="spread-ga"), GRAPHS["line"]())
        assert caught.value.part == "activations.0"
    finally:
        nn.unregister("spread-ga")
    with pytest.raises(UnsupportedModelError, match="must have one hop") as caught:
        deploy(nn.GCNN([1, 2], order=1, activation="max-l", hops=2), GRAPHS["line"]())
    assert caught.value.part == "activations.0"


def test_an_operation_that_a_node_does_not_know_is_refused(operation, tmp_path):
    operation("contrast", contrast)
    graphact.save(nn.GraphAdaptive("contrast"), tmp_path / "model.safetensors")
    del OPERATIONS["contrast"]
    with pytest.raises(ValueError, match="op must be one of 'max', .* got 'contrast'"):
        load_model(tmp_path / "model.safetensors")


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
        (lambda layers: layers.append(layers[0] | {"kind": "attention"}), "does not fit the tensors: 'attention'"),
        (lambda layers: layers[0].update(arrays={"taps": "nowhere"}), "does not fit the tensors: 'nowhere'"),
        (lambda layers: layers[0].update(arrays=[1]), "does not fit the tensors"),
        (lambda layers: layers[0].update(arrays={"taps": "readout.weight"}), "parameters must be those of the layers"),
        (lambda layers: layers[0].update(colour=3), "does not fit the tensors: .*colour"),
        (lambda layers: layers[1].update(reads="everything"), "reads must be 'shifted' or 'hops', got 'everything'"),
        (lambda layers: layers[1].update(operation="guess"), "op must be one of"),
        (lambda layers: layers[1].update(constants={"gamma": 2}), "the parameters of 'max' must be"),
        (lambda layers: layers[1].update(kind="pointwise"), "does not fit the tensors"),
        (lambda layers: layers.insert(0, {"kind": "pointwise", "function": "sin", "arrays": {}}), "got 'sin'"),
        (lambda layers: layers.reverse(), "signal must have"),
    ],
)
def test_a_header_that_describes_nonsense_is_refused(change, message, tmp_path):
    model = nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=3).double()
    tensors = {key: value.numpy() for key, value in model.state_dict().items()}
    save_tensors(tmp_path / "model.safetensors", tensors, corrupted(describe_model(model), change))
    with pytest.raises(ValueError, match=rf"model\.safetensors.*{message}"):
        load_model(tmp_path / "model.safetensors")


def test_tensors_that_do_not_fit_their_layer_are_refused():
    plain = plain_model(nn.GCNN([1, 2], order=1, activation="max-ga", hops=1, out_features=3, bias=True).double())
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
    nodes[4] = replace(nodes[4], model=plain_model(nn.GCNN([1, 1], order=1).double()))
    with pytest.raises(ValueError, match="all nodes must hold one model, and that of node 4 differs"):
        simulate_inference(nodes, np.zeros((1, 6, 1)))


def test_an_inference_from_a_folder_without_torch(tmp_path, operation):
    """With torch blocked, not only unused."""
    model, graph = nn.GCNN([1, 3], order=2, activation="kernel-ga", hops=2, learn_gamma=True).double(), GRAPHS["line"]()
    folders = agents.split(model, graph, tmp_path / "nodes")
    x = np.random.default_rng(0).normal(size=(2, 6, 1))
    expected = model(torch.from_numpy(x), graph).detach().numpy()
    np.save(tmp_path / "x.npy", x)
    code = f"""
import sys
sys.modules["torch"] = None
import numpy as np
import graphact.agents, graphact.agents.learning
nodes = [graphact.agents.Deployment.load(folder) for folder in {[str(folder) for folder in folders]}]
x = np.load({str(tmp_path / "x.npy")!r})
np.save({str(tmp_path / "y.npy")!r}, graphact.agents.simulate_inference(nodes, x).outputs)
trained = graphact.agents.learning.simulate_training(nodes, x, x, steps=1)
graphact.agents.save_model(trained.model(nodes[0].model), {str(tmp_path / "trained.safetensors")!r})
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-12, atol=1e-12)
    assert graphact.load(tmp_path / "trained.safetensors").config() == model.config()
