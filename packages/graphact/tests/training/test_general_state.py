"""State of fleets of any modules: checkpoints, random streams, modes, buffers, precisions; and refused tasks."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from graphact.nn import GCNN
from graphact.training import Fleet, StackedGraphs, fit
from support.general_models import (
    SETTINGS,
    Dropped,
    Normalized,
    OwnMean,
    compare,
    epochs_run,
    make_tasks,
    partly,
)


def make_stacked():
    return GCNN([2, 3], activation="median-ga")


@pytest.mark.parametrize("make", [make_stacked, OwnMean, Dropped], ids=lambda make: make.__name__)
def test_a_resumed_fleet_equals_an_undisturbed_one(make, tmp_path):
    tasks, path = make_tasks(3), tmp_path / "checkpoint.safetensors"
    torch.manual_seed(0)
    before = [make() for _ in tasks]
    undisturbed = copy.deepcopy(before)
    expected = Fleet(undisturbed, tasks).train(SETTINGS)
    assert expected.seconds_before == 0
    for stop in (1, 3):
        models = copy.deepcopy(before)

        def die(epoch, epochs, loss, stop=stop):
            if epoch == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Fleet(models, tasks).train(SETTINGS, progress=die, checkpoint=path, every=lambda: True)
        for model, start in zip(models, before, strict=True):
            compare(model, start, "loop")
    models, seen = copy.deepcopy(before), []
    resumed = Fleet(models, tasks).train(SETTINGS, checkpoint=path, progress=lambda epoch, *_: seen.append(epoch))
    assert seen == [4]  # the checkpoint of the third epoch was written before the stop
    assert resumed == expected
    assert resumed.seconds_before > 0
    for model, other in zip(models, undisturbed, strict=True):
        compare(model, other, "loop")


def test_a_checkpoint_of_other_modules_or_other_starts_is_ignored(tmp_path):
    tasks, path = make_tasks(2), tmp_path / "checkpoint.safetensors"
    models = [Normalized() for _ in tasks]

    def count_epochs(models):
        return len(epochs_run(Fleet(copy.deepcopy(models), tasks), path))

    assert [count_epochs(each) for each in (models, models, [Normalized() for _ in tasks])] == [4, 0, 4]
    for model in models:
        model.norm.eps = 0.1
    assert count_epochs(models) == 4


def test_a_state_that_would_not_go_back_is_refused():
    class Counting(Normalized):
        def get_extra_state(self):
            return 1

    tasks = make_tasks(2)
    for train in (lambda: fit(Counting(), tasks[0]), lambda: Fleet([Counting() for _ in tasks], tasks)):
        with pytest.raises(ValueError, match="model must keep its state in buffers, got get_extra_state of Counting"):
            train()


def test_random_streams_depend_on_the_seed_alone_and_leave_the_generator():
    task = make_tasks(1)[0]
    model = Dropped()
    results = []
    for global_seed in (0, 1):
        torch.manual_seed(global_seed)
        state = torch.get_rng_state()
        trained = copy.deepcopy(model)
        fit(trained, task, SETTINGS, seed=7)
        results.append(trained.last.weight)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(*results)
    other = copy.deepcopy(model)
    fit(other, task, SETTINGS, seed=8)
    assert not torch.equal(other.last.weight, results[0])


def test_dropout_differs_from_step_to_step_and_from_model_to_model():
    masks = []

    class Recorded(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(2, 1)

        def forward(self, x, graph):
            if self.training:
                masks.append(nn.functional.dropout(torch.ones(64)))
            return self.last(x)

    tasks = make_tasks(2)
    Fleet([Recorded() for _ in tasks], tasks, strategy="loop").train(replace(SETTINGS, epochs=2))
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks) == 2 * 2 * 3


@pytest.mark.parametrize("training", [True, False])
def test_modules_come_back_in_the_mode_they_were_in(training):
    tasks = make_tasks(2)
    models = [Normalized().train(training) for _ in tasks]
    for model in models:
        model.norm.train(not training)
    single = copy.deepcopy(models[0])
    fit(single, tasks[0], SETTINGS)
    fleet = Fleet(models, tasks)
    fleet.train(SETTINGS)
    fleet.metric("test")
    for model in (single, *models):
        assert [model.training, model.norm.training, model.last.training] == [training, not training, training]


def test_the_best_epoch_comes_back_with_its_buffers():
    tasks = make_tasks(2)
    models = [Normalized() for _ in tasks]
    result = Fleet(models, tasks).train(replace(SETTINGS, epochs=12, learning_rate=0.3))
    for number, (model, task) in enumerate(zip(models, tasks, strict=True)):
        model.eval()
        with torch.no_grad():
            answers = task.read(model(task.inputs[task.validation], task.graph)).squeeze(-1)
        found = (answers - task.targets[task.validation]).square().mean().sqrt().item()
        assert found == pytest.approx(result.validation[number], rel=1e-5)
        assert model.norm.num_batches_tracked == 3 * result.best_epoch[number]


@pytest.mark.parametrize("strategy", ["stacked", "loop"])
def test_other_graphs_and_inputs(strategy):
    tasks = make_tasks(2)
    models = [GCNN([2, 3]) for _ in tasks]
    fleet = Fleet(models, tasks, strategy=strategy)
    thin = tasks[0].graph.drop_edges(0.4, generator=torch.Generator().manual_seed(1))
    other = 2 * fleet.inputs
    found = fleet.metric("test", StackedGraphs([thin, tasks[1].graph]), other)
    unthinned = fleet.metric("test", inputs=other)
    for number, (model, task) in enumerate(zip(models, tasks, strict=True)):
        for metric, graph in ((found, [thin, task.graph][number]), (unthinned, task.graph)):
            with torch.no_grad():
                answers = task.read(model(2 * task.inputs[task.test], graph)).squeeze(-1)
            expected = (answers - task.targets[task.test]).square().mean().sqrt()
            torch.testing.assert_close(metric[number], expected)
    x = torch.randn(2, 5, 8, 2)
    answers = torch.stack([tasks[r].read(models[r](x[r], tasks[r].graph)) for r in range(2)])
    torch.testing.assert_close(fleet.forward(x), answers)
    samples = torch.tensor([[1, 2], [3, 4]])
    said, targets = fleet.answers(samples)
    assert said.shape == (2, 2, 1)
    assert torch.equal(targets[1], tasks[1].targets[[3, 4]])


def test_another_precision_than_that_of_the_modules():
    tasks = make_tasks(2)
    models = [Normalized() for _ in tasks]
    alone = [copy.deepcopy(model).double() for model in models]
    Fleet(models, tasks, dtype=torch.float64).train(SETTINGS)
    for number, (model, task) in enumerate(zip(alone, tasks, strict=True)):
        fit(model, task.to(dtype=torch.float64), SETTINGS, seed=number)
        for ours, theirs in zip(models[number].parameters(), model.parameters(), strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, theirs.float(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("strategy", ["stacked", "loop"])
def test_frozen_parameters_keep_all_their_digits_in_a_lower_precision(strategy):
    tasks = make_tasks(2)
    models = [partly(GCNN([2, 3]).double()) for _ in tasks]
    before = copy.deepcopy(models)
    Fleet(models, tasks, strategy=strategy).train(SETTINGS)
    for model, start in zip(models, before, strict=True):
        assert torch.equal(model.filters[0].taps, start.filters[0].taps)
        assert not torch.equal(model.readout.weight, start.readout.weight)
        assert model.readout.weight.dtype == torch.float64


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_nan_is_refused_before_training(name):
    tasks = make_tasks(2, at_node=False)
    tensor = getattr(tasks[1], name)
    tensor[25, 3, 0] = float("nan")
    model = GCNN([2, 3])
    before = copy.deepcopy(model)
    with pytest.raises(ValueError, match=rf"{name} must be finite, got nan at index \[25, 3, 0\]"):
        fit(model, tasks[1], SETTINGS)
    with pytest.raises(ValueError, match=rf"{name} of task 1 must be finite, got nan"):
        Fleet([GCNN([2, 3]) for _ in tasks], tasks)
    compare(model, before, "loop")
    with pytest.raises(ValueError, match=rf"{name} must be finite, got nan at index \[25, 3, 0\]"):
        replace(tasks[1], validation=torch.arange(26, 30))


@pytest.mark.parametrize("name", ["inputs", "targets"])
def test_numbers_that_overflow_in_the_precision_of_training_are_refused(name):
    (task,) = make_tasks(1, at_node=False, dtype=torch.float64)
    getattr(task, name)[25, 3, 0] = 1e300
    with pytest.raises(ValueError, match=rf"{name} in torch.float32 must be finite, got inf"):
        Fleet([GCNN([2, 3])], [task], dtype=torch.float32)
    assert Fleet([GCNN([2, 3])], [task]).inputs.dtype == torch.float64
