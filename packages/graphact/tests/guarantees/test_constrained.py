"""A constrained module never exceeds its limit, and can be trained, copied, stored and released."""

import copy
import math

import pytest
import torch

import graphact
from graphact import Graph
from graphact.guarantees import lipschitz, lipschitz_bound, lipschitz_constrained, release
from graphact.guarantees.layers import read_layers
from graphact.nn import FIR, GCNN, GraphAdaptiveKernel, GraphAdaptiveMax, GraphFilter, ReLU
from graphact.registry import POINTWISE
from graphact.training import Fleet, TrainingSettings, fit
from support.activations import PAPER
from support.graphs import random_graph
from support.tasks import make_task

GRAPH = random_graph(8, 0.5)


def train_step(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x, GRAPH), y)
    loss.backward()
    optimizer.step()
    return loss.item()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*PAPER, *POINTWISE, "soft-maximum-ga", "trimmed-mean-ga"])
def test_no_step_of_training_exceeds_the_limit(name):
    """A large learning rate drives the network against its limit again and again."""
    torch.manual_seed(0)
    limit = 0.8
    model = lipschitz_constrained(GCNN([1, 3, 3], order=1, activation=name, bias=True).double(), GRAPH, limit)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x = torch.randn(20, 8, 1, dtype=torch.float64)
    y = 10 * x
    values, losses = [], []
    for _ in range(12):
        losses.append(train_step(model, optimizer, x, y))
        values.append(lipschitz_bound(model, GRAPH).value)
    assert max(values) <= limit
    assert max(values) > 0.5 * limit, "the limit is reached, so it is what holds the network back"
    assert losses[-1] < losses[0]


KINDS = {
    "max": lambda: GraphAdaptiveMax(hops=2, features=3),
    "kernel": lambda: GraphAdaptiveKernel(hops=1, gamma=0.3, learn_gamma=True),
    "filter": lambda: GraphFilter(1, 2, order=2),
    "fir": lambda: FIR([1, 2], order=1, out_features=None),
    "relu network": lambda: GCNN([1, 2], activation="relu", out_features=None),
    "median network": lambda: GCNN([1, 2], activation="median-l", out_features=None),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_module(kind):
    free = KINDS[kind]().double()
    value = lipschitz_bound(free, GRAPH).value
    tight = lipschitz_constrained(copy.deepcopy(free), GRAPH, value / 3)
    assert 0.5 * value / 3 < lipschitz_bound(tight, GRAPH).value <= value / 3
    loose = lipschitz_constrained(copy.deepcopy(free), GRAPH, value * 3)
    x = torch.randn(8, 3 if kind == "max" else 1, dtype=torch.float64)
    torch.testing.assert_close(loose(x, GRAPH), free(x, GRAPH))


def test_gradients_flow_through_the_factor():
    """At the limit, growing a filter cannot grow the output: the gradient along the parameters themselves vanishes."""
    model = lipschitz_constrained(FIR([1, 1], order=2, out_features=1, readout_bias=False).double(), GRAPH, 1e-3)
    model(torch.randn(5, 8, 1, dtype=torch.float64), GRAPH).square().sum().backward()
    taps = model.filters[0].taps
    assert taps.grad.abs().max() > 0
    assert (taps.grad * taps).sum().abs() < 1e-10 * taps.grad.norm() * taps.norm() + 1e-18


def test_copies_and_released_modules(tmp_path):
    torch.manual_seed(0)
    model = lipschitz_constrained(GCNN([1, 2, 2], activation="max-ga"), GRAPH, 0.1)
    x = torch.randn(3, 8, 1)
    graph = GRAPH.to(torch.float32)
    expected = model(x, graph)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.filters[0].taps.mul_(100)
    assert lipschitz_bound(twin, GRAPH).value <= 0.1
    torch.testing.assert_close(model(x, graph), expected, rtol=0, atol=0)
    with pytest.raises(ValueError, match="release it first"):
        lipschitz_constrained(model, GRAPH, 1.0)
    release(model)
    torch.testing.assert_close(model(x, graph), expected)
    graphact.save(model, tmp_path / "model.safetensors")
    torch.testing.assert_close(graphact.load(tmp_path / "model.safetensors")(x, graph), expected)


def test_the_trainer_takes_it():
    task = make_task()
    model = lipschitz_constrained(GCNN([1, 2], order=2, activation="relu"), task.graph, 0.2)
    result = fit(model, task, TrainingSettings(epochs=5, batch_size=20, learning_rate=0.05))
    assert result.test < 1.0
    assert lipschitz_bound(model, task.graph).value <= 0.2


def test_a_fleet_trains_them_one_after_the_other():
    tasks = [make_task(), make_task()]
    models = [lipschitz_constrained(GCNN([1, 2], order=2), task.graph, 0.2) for task in tasks]
    fleet = Fleet(models, tasks, seeds=[0, 1])
    assert fleet.strategy == "loop"
    fleet.train(TrainingSettings(epochs=5, batch_size=20, learning_rate=0.05))
    for model, task in zip(models, tasks, strict=True):
        assert 0.1 < lipschitz_bound(model, task.graph).value <= 0.2


def test_mistakes():
    with pytest.raises(TypeError, match="must have coefficients to rescale, got ReLU"):
        lipschitz_constrained(ReLU(), GRAPH, 1.0)
    with pytest.raises(ValueError, match="limit must be a finite number above 0, got 0"):
        lipschitz_constrained(GraphFilter(1, 1, order=1), GRAPH, 0)
    for dtype in (torch.float16, torch.bfloat16):
        with pytest.raises(TypeError, match=f"must have a limit in float32 or float64, got {dtype}; autocast"):
            lipschitz_constrained(GraphFilter(1, 1, order=1).to(dtype), GRAPH, 1.0)


@pytest.mark.parametrize("share", [1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_limits_hold_where_coefficients_cancel(share, dtype):
    """Of what two taps do, a small share is left: rounding each of them changes the constant by a large one."""
    graph, least = Graph.from_dense(torch.eye(3).double()), 1.0
    for seed in range(20):
        torch.manual_seed(seed)
        module = GraphFilter(1, 1, order=1).to(dtype)
        with torch.no_grad():
            first = 1 + torch.rand((), dtype=dtype)
            module.taps.copy_(torch.stack([first, -first * (1 - share)]).view(2, 1, 1))
        limit = 0.3 * lipschitz_bound(module, graph).value
        tight = lipschitz_constrained(module, graph, limit)
        value = lipschitz_bound(tight, graph).value
        assert value <= limit
        assert lipschitz_bound(release(tight), graph).value <= limit
        least = min(least, value / limit)
    assert least > 0.5


def test_single_precision_stays_near_the_limit():
    torch.manual_seed(0)
    for kind in KINDS.values():
        free = kind()
        limit = lipschitz_bound(free, GRAPH).value / 3
        assert 0.99 * limit < lipschitz_bound(lipschitz_constrained(free, GRAPH, limit), GRAPH).value <= limit


def test_save_says_what_to_do(tmp_path):
    model = lipschitz_constrained(GCNN([1, 3]).double(), GRAPH, 0.5)
    with pytest.raises(TypeError, match=r"graphact\.guarantees\.release\(model\)"):
        graphact.save(model, tmp_path / "model.safetensors")
    graphact.save(release(model), tmp_path / "model.safetensors")
    assert lipschitz_bound(graphact.load(tmp_path / "model.safetensors"), GRAPH).value <= 0.5


def test_save_of_other_parametrizations_says_what_to_do(tmp_path):
    model = GCNN([1, 3])
    torch.nn.utils.parametrizations.weight_norm(model.readout)
    with pytest.raises(TypeError, match=r"torch\.nn\.utils\.parametrize\.remove_parametrizations"):
        graphact.save(model, tmp_path / "model.safetensors")


@pytest.mark.parametrize("name", ["relu", "max-ga", "median-l", "kernel-ga"])
def test_wide_inputs_take_a_bound_whose_cost_grows_with_the_edges(name, monkeypatch):
    """With Cora's 1,433 features the product of the layers took 5 s and 3 GB in each step of training."""
    torch.manual_seed(0)
    graph = random_graph(50, 0.6)
    free = GCNN([1000, 16, 4], order=1, activation=name, start="uniform", bias=True, out_features=3).double()
    layers, features = read_layers(free)
    assert not lipschitz.is_affordable(layers, features, graph)
    expected = lipschitz.magnitudes(layers, features, graph)[0].max().item()
    monkeypatch.setattr(lipschitz, "layer_constants", lambda *_: pytest.fail("the entries of all filters are computed"))
    tight = lipschitz_constrained(copy.deepcopy(free), graph, expected / 100)
    x = torch.randn(50, 1000, dtype=torch.float64)
    torch.testing.assert_close(
        tight(x, graph) - tight.readout.bias, (free(x, graph) - free.readout.bias) / 100, rtol=2e-6, atol=1e-9
    )
    tight(x, graph).square().sum().backward()
    taps = tight.filters[0].taps
    assert taps.grad.isfinite().all()
    assert taps.grad.abs().max() > 0
    monkeypatch.undo()
    assert lipschitz_bound(tight, graph).value <= expected / 100


@pytest.mark.parametrize("name", ["relu", "max-ga", "median-ga", "kernel-ga", "max-l"])
@pytest.mark.parametrize("features", [[1, 3, 2], [5, 3]])
def test_sums_of_magnitudes_are_those_of_the_dense_matrices(name, features):
    """Row sums of the product of all matrices without signs, one for each way through the network."""
    torch.manual_seed(1)
    graph = random_graph(8, 0.5)
    model = GCNN(features, order=2, activation=name, start="uniform", bias=True, out_features=2).double()
    size, near = graph.to_dense().double().abs(), torch.ones(8, features[0], dtype=torch.float64)
    with torch.no_grad():
        for bank, activation in zip(model.filters, model.activations, strict=True):
            near = sum(torch.linalg.matrix_power(size, k) @ near @ tap.abs() for k, tap in enumerate(bank.taps))
            if name != "relu":
                reads, total = near if name == "max-l" else size @ near, activation.beta.abs() * near
                for node in range(8):
                    others = [j for j in range(8) if j != node and size[node, j] != 0]
                    if name == "kernel-ga":
                        slope = (reads[others] + reads[node]).square().sum(0).sqrt() * math.exp(-0.5) / 0.1
                    else:
                        slope = reads[others].amax(0)
                    total[node] += activation.weights[0].abs() * slope
                near = total
        expected = near @ model.readout.weight.abs().T
        found, _ = lipschitz.magnitudes(*read_layers(model), graph.to(torch.float64))
    torch.testing.assert_close(found, expected)
