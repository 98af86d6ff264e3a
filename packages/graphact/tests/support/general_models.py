"""Modules that do not describe themselves, tasks for them, and how two of them are compared."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings, fit
from support import tasks

SETTINGS = TrainingSettings(epochs=4, batch_size=9, learning_rate=0.02, weight_decay=0.1)
GRAPHS = [tasks.make_graph(seed) for seed in range(2)]


def make_tasks(count, graphs=1, at_node=True, dtype=torch.float32):
    """Tasks with two input features."""
    return tasks.make_tasks(count, graphs=graphs, at_node=at_node, features=2, dtype=dtype)


class Normalized(nn.Module):
    """Batch norm after a layer; with a bias before it, whose gradient is nothing but rounding."""

    def __init__(self, bias=False):
        super().__init__()
        self.first = GCNN([2, 6], order=2, out_features=6, readout_bias=bias)
        self.norm, self.last = nn.BatchNorm1d(6), nn.Linear(6, 1)

    def forward(self, x, graph):
        hidden = self.first(x, graph)
        return self.last(torch.relu(self.norm(hidden.flatten(0, 1)).view(hidden.shape)))


class Dropped(Normalized):
    def forward(self, x, graph):
        return super().forward(nn.functional.dropout(x, 0.3, self.training), graph)


class OwnMean(Normalized):
    """A buffer that is replaced rather than written to, and one that no file holds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("largest", torch.zeros(()), persistent=False)

    def forward(self, x, graph):
        outputs = super().forward(x, graph)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * outputs.detach().mean()
            self.largest.copy_(torch.maximum(self.largest, outputs.detach().abs().max()))
        return outputs - self.mean + 0.01 * self.largest


def with_a_clipped_gradient():
    model = GCNN([2, 4])
    model.filters[0].taps.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    return model


def partly(model):
    model.filters[0].taps.requires_grad_(False)
    return model


def compare(model, expected, strategy, tolerance=None):
    """To the bit in a loop, to rounding otherwise, or to a tolerance."""
    theirs = {**dict(expected.named_parameters()), **dict(expected.named_buffers())}
    largest = max(parameter.abs().max().item() for parameter in expected.parameters())
    for name, ours in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items():
        if strategy == "loop":
            assert torch.equal(ours, theirs[name]), name
        else:
            limit = tolerance or (1e-9 if ours.dtype == torch.float64 else 1e-6) * largest
            torch.testing.assert_close(ours, theirs[name], rtol=0, atol=limit)


def epochs_run(fleet, path, settings=SETTINGS):
    """Train with a checkpoint after each epoch; the epochs that were not in it."""
    seen = []
    fleet.train(settings, checkpoint=path, every=lambda: True, progress=lambda epoch, *_: seen.append(epoch))
    return seen


def make_seeded(make, seed, dtype):
    torch.manual_seed(seed)
    return make().to(dtype)


def check_as_alone(make, tasks, strategy=None, tolerance=None, **options):
    """Train a fleet and each model alone; compare everything. The fleet."""
    dtype = tasks[0].inputs.dtype
    models, alone = ([make_seeded(make, seed, dtype) for seed in range(len(tasks))] for _ in range(2))
    settings = replace(SETTINGS, **options)
    fleet = Fleet(models, tasks, seeds=[3 + number for number in range(len(tasks))], strategy=strategy)
    result = fleet.train(settings)
    for number, (model, task) in enumerate(zip(alone, tasks, strict=True)):
        single = fit(model, task, settings, seed=3 + number)
        compare(models[number], model, fleet.strategy, tolerance)
        assert result.best_epoch[number] == single.best_epoch
        assert result.validation[number] == pytest.approx(single.validation, rel=tolerance or 1e-6)
        assert result.test[number] == pytest.approx(single.test, rel=tolerance or 1e-6)
    return fleet
