"""Fleets on a GPU: recorded steps, random streams, modules that stay on the CPU outside of training."""

import copy
from dataclasses import replace

import pytest
import torch

from graphact import Graph
from graphact.nn import ACTIVATIONS, GCNN
from graphact.training import Fleet, TrainingSettings, fit
from graphact.training.splits import Split
from graphact_lab.classifiers.node_classifier import NodeNetwork
from graphact_lab.classifiers.stacked_layers import node_graph
from graphact_lab.fleets.features import SparseFeatures
from graphact_lab.fleets.nodes import NodeFleet
from graphact_lab.tasks import source_localization_tasks

SETTINGS = TrainingSettings(epochs=6, batch_size=70, learning_rate=0.01, schedule="cosine", weight_decay=0.1)


class Doubled(GCNN):
    def forward(self, x, graph, edge_weight=None):
        return 2 * super().forward(x, graph, edge_weight)


class Dropped(GCNN):
    def forward(self, x, graph, edge_weight=None):
        return super().forward(torch.nn.functional.dropout(x, 0.2, self.training), graph, edge_weight)


def few_samples(count):
    tasks = source_localization_tasks(graphs=1, splits=1, nodes=count, dtype=torch.float64)
    return [replace(task, train=task.train[:200], validation=task.validation[:50]) for task in tasks]


@pytest.mark.parametrize(("make", "strategy"), [(GCNN, "stacked"), (Doubled, "vmap"), (Dropped, "loop")])
def test_a_fleet_on_a_gpu_equals_training_alone_there(make, strategy):
    tasks = few_samples(3)
    models = [make([1, 4, 4], activation="max-ga", hops=2, out_features=4, bias=True).double() for _ in tasks]
    alone = copy.deepcopy(models)
    before = torch.cuda.get_rng_state()
    fleet = Fleet(models, tasks, device="cuda")
    assert fleet.strategy == strategy
    result = fleet.train(SETTINGS)
    for number, (model, task) in enumerate(zip(alone, tasks, strict=True)):
        single = fit(model.cuda(), task.to("cuda"), SETTINGS, seed=number)
        assert (result.test[number], result.best_epoch[number]) == (pytest.approx(single.test), single.best_epoch)
        for ours, theirs in zip(models[number].parameters(), model.parameters(), strict=True):
            assert ours.device.type == "cpu"
            torch.testing.assert_close(ours, theirs.cpu(), rtol=0, atol=1e-9)
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_a_checkpoint_of_recorded_steps_goes_on_exactly(tmp_path):
    tasks, path = few_samples(2), tmp_path / "checkpoint.safetensors"
    models = [GCNN([1, 4], out_features=4).double() for _ in tasks]
    settings = replace(SETTINGS, schedule="constant")
    whole = Fleet(copy.deepcopy(models), tasks, device="cuda").train(settings)
    first = Fleet(copy.deepcopy(models), tasks, device="cuda")
    first.train(replace(settings, epochs=3), checkpoint=path, every=lambda: True)
    assert Fleet(models, tasks, device="cuda").train(settings, checkpoint=path) == whole


@pytest.mark.parametrize("options", [{"activation": name} for name in ACTIVATIONS] + [{"norm": "batch", "layers": 3}])
def test_recorded_epochs_of_node_classifiers_are_those_of_the_cpu(options):
    """All of an epoch is one CUDA graph: dropout, scores, the choice of the best, Adam.

    A flow is exponential in what DiGRAF learns: on a CPU, too, a relative change of 1e-15 in the signals is 0.2 in its
    parameters after 70 epochs. After 20 it is up to 1e-5, as the numbers are drawn, and 2e-15 with this seed.
    """
    torch.manual_seed(1)
    graph = Graph.stochastic_block_model([30, 30], 0.2, 0.05, generator=torch.Generator().manual_seed(0))
    x = torch.randn(60, 20, dtype=torch.float64).relu()
    y = torch.arange(60) // 30
    order = torch.randperm(60)
    splits = [Split(order[:20], order[20:40], order[40:]), Split(order[40:], order[:25], order[25:40])]
    models = [NodeNetwork(20, 6, 2, hops=2, **options).double() for _ in splits]
    settings = {"seeds": [3, 4], "rates": [0.05, 0.02], "decays": [0.0, 0.01], "dropouts": [0.5, 0.3]}
    found = []
    for device in ("cpu", "cuda"):
        graphs = node_graph(graph.to(dtype=torch.float64), "gcn")
        features = SparseFeatures.from_dense(x)
        fleet = NodeFleet(models, features, graphs, y, splits, **settings, device=device, dtype=torch.float64)
        epochs = 20 if options.get("activation") == "digraf" else 70
        found.append((fleet.train(epochs), [fleet.model(number).cpu() for number in range(2)]))
    assert fleet.way == "recorded"
    assert found[1][0].best_epoch == found[0][0].best_epoch
    assert found[1][0].validation == pytest.approx(found[0][0].validation)
    for ours, theirs in zip(found[1][1], found[0][1], strict=True):
        for name, tensor in ours.state_dict().items():
            torch.testing.assert_close(tensor, theirs.state_dict()[name], rtol=0, atol=1e-7)
