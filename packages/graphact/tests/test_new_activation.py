"""A new activation is one class: everything that interprets descriptions works with it or refuses it in one line."""

import pytest
import torch

import graphact
from graphact import nn
from graphact.cli import main
from graphact.guarantees import check_equivariance, lipschitz_bound
from graphact.spec.reductions import MEAN, OPERATIONS, Operation
from support.general_models import check_as_alone
from support.graphs import random_graph
from support.tasks import make_tasks


@pytest.fixture(autouse=True)
def soft_max():
    @nn.register("softmax-ga")
    class GraphAdaptiveSoftMax(nn.GraphAdaptive):
        """The logarithm of the mean exponential over the neighbours of each shift, a soft maximum."""

        operation = Operation(
            "soft-max",
            lambda neighbors, xp, temperature: temperature * xp.log(xp.mean(xp.exp(neighbors / temperature), -2)),
            {"temperature": 0.5},
        )

    yield GraphAdaptiveSoftMax
    nn.unregister("softmax-ga")


def gcnn(**options):
    return nn.GCNN([1, 4, 4], order=1, activation={"name": "softmax-ga", **options}, hops=2, out_features=4)


def test_values():
    graph, x = random_graph(), torch.randn(12, 3, dtype=torch.float64)
    activation = nn.make_activation("softmax-ga", hops=1, temperature=2.0).double()
    shifted = graph.to_dense() @ x
    neighbors = [graph.incoming.col[a:b] for a, b in graph.incoming.rowptr.unfold(0, 2, 1).tolist()]
    soft = [2 * (shifted[n] / 2).exp().mean(0).log() if len(n) else torch.zeros(3) for n in neighbors]
    expected = torch.relu(x) + activation.weights[0] * torch.stack(soft)
    assert torch.allclose(activation(x, graph), expected, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("learn", [False, True])
def test_it_trains_in_a_fleet_as_alone(learn):
    tasks = make_tasks(4, graphs=2, samples=400, classes=4, dtype=torch.float64)
    fleet = check_as_alone(lambda: gcnn(learn_temperature=learn), tasks, epochs=2, batch_size=100)
    names = [name for name, _ in fleet.models[0].named_parameters()]
    assert any("log_temperature" in name for name in names) is learn


@pytest.mark.parametrize("learn", [False, True])
def test_it_is_saved_and_loaded(learn, tmp_path):
    model = gcnn(temperature=0.7, learn_temperature=learn)
    graphact.save(model, tmp_path / "model.safetensors")
    loaded = graphact.load(tmp_path / "model.safetensors")
    graph, x = random_graph(dtype=torch.float32), torch.randn(12, 1)
    assert torch.equal(loaded(x, graph), model(x, graph))


def test_it_is_refused_by_guarantees_in_one_line_but_checked():
    graph = random_graph(dtype=torch.float32)
    with pytest.raises(graphact.spec.UnsupportedModelError, match="soft-max") as caught:
        lipschitz_bound(gcnn(), graph)
    assert "\n" not in str(caught.value)
    assert check_equivariance(gcnn().double(), random_graph(), torch.randn(12, 1, dtype=torch.float64)).holds


def test_it_is_listed(capsys):
    assert main(["list"]) == 0
    assert "softmax-ga" in capsys.readouterr().out


def test_names_are_unique(soft_max):
    with pytest.raises(ValueError, match="'softmax-ga' is taken"):
        nn.register("softmax-ga")(nn.GraphAdaptiveMax)
    with pytest.raises(ValueError, match="'max-ga' is taken"):
        nn.register("max-ga")(soft_max)
    with pytest.raises(ValueError, match="'max' names another operation"):

        class Wrong(nn.GraphAdaptive):
            operation = Operation("max", lambda neighbors, xp: xp.amin(neighbors, -2))


def test_a_name_is_free_again_after_unregister(soft_max):
    nn.unregister("softmax-ga")
    assert "soft-max" not in OPERATIONS

    @nn.register("softmax-ga")
    class Elsewhere(nn.GraphAdaptive):
        operation = Operation("soft-max", lambda neighbors, xp: xp.mean(neighbors, -2))

    assert nn.make_activation("softmax-ga").operation is Elsewhere.operation


def test_unregister_keeps_an_operation_of_ours():
    @nn.register("plain-mean-ga")
    class GraphAdaptivePlainMean(nn.GraphAdaptive):
        operation = MEAN

    nn.unregister("plain-mean-ga")
    assert OPERATIONS["mean"] is MEAN
