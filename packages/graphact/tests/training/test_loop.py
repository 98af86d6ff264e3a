"""Selection, early stopping, checkpoints, shuffling."""

import copy
import itertools
import math
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings, fit
from graphact.training.loop import train
from graphact.training.randomness import epoch_order, random_stream
from support.tasks import make_task, make_tasks


def test_every_order_is_a_permutation_and_all_differ():
    seeds = torch.tensor([0, 1, -5, 2**62])
    orders = torch.cat([epoch_order(seeds, epoch, 50) for epoch in range(20)])
    assert torch.equal(orders.sort(dim=1).values, torch.arange(50).expand(80, 50))
    assert len({tuple(row) for row in orders.tolist()}) == 80
    assert torch.equal(epoch_order(seeds[2:3], 7, 50)[0], epoch_order(seeds, 7, 50)[2])
    assert epoch_order(torch.tensor([1, 2]), epoch=0, count=5).tolist() == [[2, 1, 0, 3, 4], [4, 0, 1, 3, 2]]


def test_a_random_stream_depends_on_its_three_numbers_alone():
    drawn = []
    for _ in range(2):
        with random_stream(torch.device("cpu"), seed=1, epoch=2, batch=3):
            drawn.append(torch.rand(2))
    assert torch.equal(*drawn)


def test_each_of_the_three_numbers_makes_another_stream_and_the_generator_stays_as_it_was():
    drawn, before = set(), torch.default_generator.get_state()
    for numbers in ((1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0), (12, 3, 3), (1, 23, 3)):
        with random_stream(torch.device("cpu"), *numbers):
            drawn.add(torch.rand(1).item())
    assert len(drawn) == 6
    assert torch.equal(torch.default_generator.get_state(), before)


def splitmix(number):
    """The output of SplitMix64 for a state, in Python's integers."""
    number = (number * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31


@pytest.mark.parametrize("seed", [0, 7, 2**62 + 1, -3])
def test_orders_are_those_of_splitmix(seed):
    """Results depend on them: another order of samples would be another training."""
    for epoch in (1, 400):
        stream = splitmix(splitmix(seed) + epoch)
        keys = [splitmix(stream + sample) for sample in range(100)]
        signed = [key - 2**64 if key >= 2**63 else key for key in keys]
        expected = sorted(range(100), key=signed.__getitem__)
        assert epoch_order(torch.tensor([seed]), epoch, 100)[0].tolist() == expected


class Scripted:
    """A batch of models whose validation metric follows a script, one column a model."""

    def __init__(self, script, higher_is_better=True):
        self.script, self.higher_is_better = iter(script), higher_is_better
        self.parameters, self.without_decay = [torch.zeros(2, requires_grad=True)], []
        self.seeds, self.num_samples = torch.tensor([0, 1]), 4
        self.calls, self.has_validation = 0, True

    def snapshot(self):
        return [parameter.detach().clone() for parameter in self.parameters]

    def begin_step(self, epoch, number):
        pass

    def backward(self, positions):
        losses = self.parameters[0] * 1.0
        losses.sum().backward()
        return losses.detach()

    def validate(self):
        self.calls += 1
        return torch.tensor(next(self.script))

    def keep(self, better, kept):
        kept[0].copy_(torch.where(better, float(self.calls), kept[0]))


def run(script, patience=None, higher_is_better=True):
    batch = Scripted(script, higher_is_better)
    return batch, train(batch, TrainingSettings(epochs=len(script), batch_size=4, patience=patience))


def test_best_epoch_of_each_model_is_kept_and_the_first_among_equals():
    _, selection = run([(1.0, 5.0), (3.0, 4.0), (3.0, 6.0), (2.0, 6.0)])
    assert selection.epoch.tolist() == [2, 3]
    assert selection.metric.tolist() == [3.0, 6.0]
    assert selection.state[0].tolist() == [2.0, 3.0]


def test_lower_is_better_for_errors_and_nan_never_wins():
    nan = float("nan")
    _, selection = run([(nan, 5.0), (3.0, nan), (nan, 4.0), (2.0, 4.5)], higher_is_better=False)
    assert selection.epoch.tolist() == [4, 3]


def test_patience_is_counted_for_each_model():
    script = [(1.0, 1.0), (0.0, 2.0), (0.0, 3.0), (9.0, 4.0), (9.0, 0.0), (9.0, 0.0), (9.0, 9.0), (9.0, 9.0)]
    batch, selection = run(script, patience=2)
    assert selection.epoch.tolist() == [1, 4]
    assert batch.calls == 6


SETTINGS = TrainingSettings(epochs=3, batch_size=10)
MODEL = {"out_features": 4, "activation": "max-ga"}


def classes(count):
    return make_tasks(count, samples=80, classes=4)


CHANGES = ("seeds", "activation", "other width", "samples", "graph", "fewer epochs", "damaged", "empty", "garbage")
CHANGED_SETTINGS = {"learning_rate": 0.5, "batch_size": 20, "weight_decay": 0.1}


@pytest.mark.parametrize("change", [*CHANGES, *CHANGED_SETTINGS])
def test_a_checkpoint_of_another_run_changes_nothing(change, tmp_path):
    tasks, seeds, settings, path = classes(2), [5, 6], SETTINGS, tmp_path / "checkpoint.safetensors"
    torch.manual_seed(0)
    models = [GCNN([1, 3], **MODEL) for _ in tasks]
    Fleet(copy.deepcopy(models), tasks, seeds).train(settings, checkpoint=path, every=lambda: True)
    if change == "seeds":
        seeds = [6, 5]
    elif change == "activation":
        others = [GCNN([1, 3], **{**MODEL, "activation": "median-ga"}) for _ in tasks]
        for other, model in zip(others, models, strict=True):
            other.load_state_dict(model.state_dict())
        models = others
    elif change == "other width":
        models = [GCNN([1, 5], **MODEL) for _ in tasks]
    elif change == "samples":
        tasks = [replace(task, train=task.train.flip(0)) for task in tasks]
    elif change == "graph":
        graph = tasks[0].graph.drop_edges(0.1, generator=torch.Generator().manual_seed(0))
        tasks = [replace(task, graph=graph) for task in tasks]
    elif change == "fewer epochs":
        settings = replace(settings, epochs=2)
    elif change == "damaged":
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        save_file({**load_file(path), "2.best": torch.zeros(7)}, path, metadata)
    elif change in ("empty", "garbage"):
        path.write_bytes(b"garbage" * 10 * (change == "garbage"))
    else:
        settings = replace(settings, **{change: CHANGED_SETTINGS[change]})
    expected = Fleet(copy.deepcopy(models), tasks, seeds).train(settings)
    found = Fleet(copy.deepcopy(models), tasks, seeds).train(settings, checkpoint=path)
    assert found == expected
    assert found.seconds_before == 0


def test_the_time_before_interruptions_adds_up(tmp_path, monkeypatch):
    tasks, model, path = classes(1), GCNN([1, 3], **MODEL), tmp_path / "checkpoint.safetensors"
    clock = itertools.count(0.0, 10.0)  # ten seconds from each look to the next
    monkeypatch.setattr("graphact.training.loop.time.perf_counter", lambda: next(clock))
    for epochs, before in ((1, 0.0), (2, 10.0), (3, 20.0)):
        settings = replace(SETTINGS, epochs=epochs)
        found = Fleet([copy.deepcopy(model)], tasks).train(settings, checkpoint=path, every=lambda: True)
        assert found.seconds_before == before


@pytest.mark.parametrize(("schedule", "goes_on"), [("constant", True), ("cosine", False)])
def test_a_checkpoint_goes_on_to_more_epochs_where_they_do_not_change_the_steps(schedule, goes_on, tmp_path):
    tasks, model, settings = classes(1), GCNN([1, 3], **MODEL), replace(SETTINGS, epochs=2, schedule=schedule)
    path = tmp_path / "checkpoint.safetensors"
    Fleet([copy.deepcopy(model)], tasks).train(settings, checkpoint=path, every=lambda: True)
    seen = []
    longer = replace(settings, epochs=3)
    result = Fleet([copy.deepcopy(model)], tasks).train(
        longer, checkpoint=path, progress=lambda epoch, *_: seen.append(epoch)
    )
    assert seen == ([3] if goes_on else [1, 2, 3])
    assert result == Fleet([copy.deepcopy(model)], tasks).train(longer)


def test_fit_trains_and_leaves_the_best_parameters():
    torch.manual_seed(0)
    (task,), model, losses = classes(1), GCNN([1, 8], out_features=4, bias=True), []
    settings = TrainingSettings(epochs=15, learning_rate=0.02, batch_size=10)
    result = fit(model, task, settings, progress=lambda epoch, epochs, loss: losses.append(loss))
    assert losses[-1] < losses[0]
    assert result.metric == "accuracy"
    with torch.no_grad():
        right = task.read(model(task.inputs[task.test], task.graph)).argmax(-1) == task.targets[task.test]
    assert result.test == pytest.approx(100 * right.float().mean().item())
    with pytest.raises(ValueError, match="model must have parameters to train, got ReLU with none"):
        fit(torch.nn.ReLU(), task)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number above 0, got 0.0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"schedule": "linear"}, "schedule must be one of 'constant', 'cosine', got 'linear'"),
        ({"weight_decay": -1.0}, "weight_decay must be a number from 0, got -1.0"),
        ({"weight_decay": float("nan")}, "weight_decay must be a number from 0, got nan"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**options)


def test_a_model_that_diverges_has_no_result():
    tasks = make_tasks(2, at_node=False)
    networks = [GCNN([1, 3], order=1) for _ in tasks]
    with torch.no_grad():
        networks[1].readout.bias.fill_(float("nan"))
    result = Fleet(copy.deepcopy(networks), tasks).train(TrainingSettings(epochs=2))
    assert math.isfinite(result.test[0])
    assert math.isnan(result.test[1])
    assert result.best_epoch[1] == 0
    alone = fit(networks[1], tasks[1], TrainingSettings(epochs=1))
    assert math.isnan(alone.test)


def test_fit_shows_a_bar_on_request(capsys):
    fit(GCNN([1, 2]), make_task(), TrainingSettings(epochs=2), progress=True)
    shown = capsys.readouterr().out
    assert "2/2" in shown
    assert "loss" in shown
