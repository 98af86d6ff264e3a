"""A model with its scaling gives the same numbers in torch, in ONNX and on agents, also with missing readings."""

import json

import numpy as np
import pytest
import torch

import graphact
from agents.replay import replay_complete, replay_inference
from graphact import nn
from graphact.guarantees.layers import flatten
from graphact.spec import UnsupportedModelError
from graphact_agents import Deployment, simulate_inference
from local_agents import LocalAgents, free_addresses
from support.graphs import random_graph
from support.on_agents import deploy, split

GENERATOR = torch.Generator().manual_seed(1)
NAMES = [f"station {i}" for i in range(12)]
CASES = {
    "pointwise": {"network": {}},
    "median and std": {"network": {"bank": "adaptive", "ops": ["median", "std"], "residual": True}},
    "own scaling": {"network": {"bank": "adaptive", "ops": ["max", "min"]}, "nodes": NAMES},
    "two features": {"network": {"bank": "adaptive", "ops": ["median"]}, "features": 2},
    "own scaling of two features": {"network": {}, "nodes": NAMES, "features": 2},
}


def make(case, dtype, window=3, activation="gelu"):
    """A network for temperatures in kelvin, and readings of which a tenth is missing."""
    torch.manual_seed(3)
    settings = CASES[case]
    features = settings.get("features", 1)
    layers = [2 * window * features, 6, 6]
    network = nn.GCNN(layers, order=1, out_features=1, bias=True, activation=activation, **settings["network"])
    model = nn.ScaledNetwork(network, features, out_features=1, window=window, mask=True, nodes=settings.get("nodes"))
    for end, first in ((model.input, 281.0), (model.output, 279.5)):
        shape = end.mean.shape
        end.set(
            torch.linspace(first, first + 3, end.mean.numel()).view(shape),
            torch.linspace(3, 4, end.mean.numel()).view(shape),
        )
    generator = torch.Generator().manual_seed(4)
    x = 282 + 4 * torch.randn(5, 12, window * features, generator=generator, dtype=torch.float64)
    x[torch.rand(x.shape, generator=generator) < 0.1] = torch.nan
    graph = random_graph(num_nodes=12, seed=2).normalize("symmetric")
    return model.to(dtype), graph.to(dtype=dtype), x.to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("case", CASES)
def test_agents(case, dtype, tolerance):
    model, graph, x = make(case, dtype)
    with torch.no_grad():
        expected = model(x, graph).numpy()
    deployments = deploy(model, graph)
    answer = simulate_inference(deployments, x.numpy())
    scale = np.abs(expected).max()
    assert np.isfinite(expected).all()
    assert np.abs(answer.outputs - expected).max() <= tolerance * scale
    for replayed in (replay_inference(deployments, x.numpy(), answer.outcome), replay_complete(deployments, x.numpy())):
        assert np.abs(replayed - expected).max() <= tolerance * scale


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("case", CASES)
def test_onnx(case, dtype, tolerance, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    activation = "gelu" if dtype == torch.float32 else "relu"  # the runtime has no error function in float64
    model, graph, x = make(case, dtype, activation=activation)
    with torch.no_grad():
        expected = model(x, graph).numpy()
    graphact.export_onnx(model, x, graph, tmp_path / "model.onnx")
    (found,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["out"], {"x": x.numpy()})
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def test_the_formula():
    model, graph, x = make("pointwise", torch.float64)
    shifted = (x - 281) / 3
    inputs = torch.cat([shifted.nan_to_num(0.0), (~x.isnan()).double()], -1)
    torch.testing.assert_close(model(x, graph), model.network(inputs, graph) * 3 + 279.5, rtol=1e-12, atol=0)


@pytest.mark.parametrize("case", CASES)
def test_files(case, tmp_path):
    model, graph, x = make(case, torch.float32)
    graphact.save(model, tmp_path / "model.safetensors")
    same = graphact.load(tmp_path / "model.safetensors")
    assert torch.equal(same(x, graph), model(x, graph))
    assert [name for name, parameter in same.named_parameters() if not parameter.requires_grad] == [
        "input.mean", "input.std", "output.mean", "output.std"
    ]  # fmt: skip


def test_windows_hold_the_features_of_a_time_side_by_side():
    """The newest time first, each with all features, as SignalRegressor lays them out."""
    model, graph, _ = make("two features", torch.float64, window=3)
    model.input.set([280.0, 1000.0], [2.0, 50.0])
    latest, before = torch.tensor([284.0, 1100.0]), torch.tensor([282.0, 950.0])
    x = torch.cat([latest, before, torch.full((2,), torch.nan)]).double().expand(12, 6)
    assert model.input(x)[0].tolist() == [2.0, 2.0, 1.0, -1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    found = nn.Standardize(2, window=3)
    found.set([280.0, 1000.0], [2.0, 50.0])
    expected = graphact.guarantees.lipschitz_bound(found, graph).value
    assert expected == pytest.approx(1 / 2.0)
    (as_linear,) = flatten(found.describe())
    filled = x[0].float().nan_to_num(300.0)
    torch.testing.assert_close(
        (as_linear.weight @ filled.double() + as_linear.bias).float(),
        found(filled.expand(12, 6))[0],
        rtol=1e-5,
        atol=1e-5,
    )


def test_bounds_are_in_the_units_of_the_user():
    model, graph, _ = make("median and std", torch.float64, window=1)
    inside = graphact.guarantees.lipschitz_bound(model.network, graph).value
    model.output.set(0.0, 6.0)
    found = graphact.guarantees.lipschitz_bound(model, graph).value
    assert found <= inside * 6 / 3 * (1 + 1e-9)
    generator = torch.Generator().manual_seed(1)
    x, y = (280 + 5 * torch.randn(50, 12, 1, generator=generator, dtype=torch.float64) for _ in range(2))
    change = (model(x, graph) - model(y, graph)).abs().amax((1, 2)) / (x - y).abs().amax((1, 2))
    assert change.max() <= found


def test_bounds_with_a_scaling_of_each_node():
    """The network inside has bounds."""
    model, graph, _ = make("own scaling", torch.float64, window=1)
    with pytest.raises(UnsupportedModelError, match="each node has its own scaling: certify the network inside"):
        graphact.guarantees.lipschitz_bound(model, graph)
    assert graphact.guarantees.lipschitz_bound(model.network, graph).value > 0


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        (float("nan"), 1.0, "mean must hold finite numbers"),
        (0.0, 0.0, "std must hold positive numbers, got"),
        (0.0, [1.0, -1.0], "std must hold positive numbers"),
    ],
)
def test_values_that_scale_nothing(mean, std, message):
    with pytest.raises(ValueError, match=message):
        nn.Standardize(2).set(mean, std)


def test_nodes_that_do_not_fit():
    with pytest.raises(ValueError, match="different names, got 'a' more than once"):
        nn.Rescale(1, nodes=["a", "b", "a"])
    with pytest.raises(ValueError, match="a row for each of the 2 nodes of the scaling, got 3"):
        nn.Rescale(1, nodes=["a", "b"])(torch.zeros(3, 1))
    model, _, _ = make("own scaling", torch.float32)
    with pytest.raises(ValueError, match="graph must have the 12 nodes that the model has a scaling for, got 11"):
        deploy(model, random_graph(num_nodes=11))


def test_a_node_keeps_its_name(tmp_path):
    model, graph, _ = make("own scaling", torch.float32)
    folders = split(model, graph, tmp_path)
    assert Deployment.load(folders[3]).row.name == "station 3"


@pytest.mark.slow
def test_processes_answer_with_windows_and_missing_readings(tmp_path):
    torch.manual_seed(0)
    network = nn.GCNN([6, 4], order=1, bank="adaptive", ops=["median"], out_features=1, bias=True)
    model = nn.ScaledNetwork(network, 1, out_features=1, window=3, mask=True).double()
    model.input.set(280.0, 4.0)
    model.output.set(280.0, 4.0)
    graph = graphact.Graph.from_edge_index([[0, 1], [1, 0]], torch.full((2,), 0.5, dtype=torch.float64))
    readings = [[281.0, 282.0, None, 284.0], [279.0, None, 277.0, 276.0]]
    signals = [tmp_path / f"readings-{node}.txt" for node in range(2)]
    for path, own in zip(signals, readings, strict=True):
        path.write_text("".join(f"{json.dumps(reading)}\n" for reading in own))
    folders = split(model, graph, tmp_path / "nodes", addresses=free_addresses(2))
    with LocalAgents(folders, ["--period", "0", "--slot", "3", "--transport", "udp"], signals) as agents:
        events = agents.wait(timeout=60)
    found = {(event["run"], event["node"]): event for event in events if event["event"] == "result"}
    past = np.full((4, 2, 3), np.nan)
    for lag in range(3):
        past[lag:, :, lag] = np.array(readings, float).T[: 4 - lag]
    with torch.no_grad():
        expected = model(torch.from_numpy(past), graph)[..., 0].numpy()
    assert {*found} == {(run, node) for run in range(4) for node in range(2)}
    for place, event in found.items():
        assert event["output"][0] == pytest.approx(expected[place], rel=1e-12)
        assert ("no_reading" in event) == (place in ((2, 0), (1, 1)))
