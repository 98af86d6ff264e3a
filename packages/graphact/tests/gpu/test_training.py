"""Fleets on a GPU: recorded steps, random streams, modules that stay on the CPU outside of training."""

import copy
from dataclasses import replace

import pytest
import torch

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings, fit
from support.tasks import make_tasks

SETTINGS = TrainingSettings(epochs=6, batch_size=70, learning_rate=0.01, schedule="cosine", weight_decay=0.1)


class Dropped(GCNN):
    def forward(self, x, graph, edge_weight=None):
        return super().forward(torch.nn.functional.dropout(x, 0.2, self.training), graph, edge_weight)


def few_samples(count):
    return make_tasks(count, samples=400, classes=4, dtype=torch.float64)


@pytest.mark.parametrize(("make", "strategy"), [(GCNN, "stacked"), (Dropped, "loop")])
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
