"""Fleets of modules that do not describe themselves: each ends as if it had been trained alone with fit."""

import copy
from dataclasses import replace

import pytest
import torch
from support.graphs import random_graph
from torch import nn
from torch_geometric.nn import BatchNorm, GCNConv

from graphact.analysis import lipschitz_constrained
from graphact.data import Task
from graphact.layers import UnsupportedModelError
from graphact.nn import GCNN, GraphAdaptive
from graphact.training import Fleet, StackedGraphs, TrainingSettings, fit

SETTINGS = TrainingSettings(epochs=4, batch_size=9, learning_rate=0.02, weight_decay=0.1)
GRAPHS = [random_graph(num_nodes=8, seed=seed, dtype=torch.float32).normalize("spectral") for seed in range(2)]


def make_tasks(count, graphs=1, at_node=True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(5)
    moved = [graph.to(dtype=dtype) for graph in GRAPHS[:graphs]]
    tasks = []
    for number in range(count):
        inputs = torch.randn(40, 8, 2, generator=generator, dtype=dtype)
        target = inputs.mean((1, 2), keepdim=True).expand(-1, 8, 1) + inputs[..., :1]
        tasks.append(
            Task(
                name="consensus",
                graph=moved[number % graphs],
                inputs=inputs,
                targets=target[:, number, 0].clone() if at_node else target.clone(),
                train=torch.arange(20),
                validation=torch.arange(20, 30),
                test=torch.arange(30, 40),
                node=number if at_node else None,
                out_features=1,
                loss="mse",
                metric="rmse",
                details={},
            )
        )
    return tasks


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


class NoisyInEvaluation(Normalized):
    def forward(self, x, graph):
        return super().forward(x, graph) + 0.1 * torch.randn(())


class Branching(Normalized):
    def forward(self, x, graph):
        outputs = super().forward(x, graph)
        return 2 * outputs if outputs.sum() > 0 else outputs


class Counting(Normalized):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, graph):
        self.calls += 1
        return super().forward(x, graph) * (1 + 0.01 * self.calls)


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


class Tied(nn.Module):
    """One parameter under two names, and one that is never used."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.second.weight = self.first.weight
        self.unused, self.last = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x, graph):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Shrinking(Tied):
    """A call that writes to a parameter."""

    def forward(self, x, graph):
        with torch.no_grad():
            self.last.weight.mul_(0.99)
        return super().forward(x, graph)


class WithExtraState(Normalized):
    def __init__(self):
        super().__init__()
        self.seen = 0

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        self.seen = state

    def forward(self, x, graph):
        self.seen += self.training * len(x)
        return super().forward(x, graph) + 1e-4 * self.seen


class PyG(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = GCNConv(2, 6, node_dim=-2), GCNConv(6, 1, node_dim=-2)
        self.norm, self.dropout = BatchNorm(6), nn.Dropout(0.2)

    def forward(self, x, graph):
        edges = graph.to_edge_index()
        hidden = self.first(x, *edges)
        hidden = self.norm(hidden.flatten(0, 1)).view(hidden.shape)
        return self.last(self.dropout(torch.relu(hidden)), *edges)


def span(neighbors):
    return neighbors.amax(-2) - neighbors.amin(-2)


class Positive(nn.Module):
    def forward(self, weight):
        return nn.functional.softplus(weight)


def with_positive_weights():
    model = Normalized()
    nn.utils.parametrize.register_parametrization(model.last, "weight", Positive())
    return model


def weight_normalized():
    model = Normalized()
    nn.utils.parametrizations.weight_norm(model.last)
    return model


def partly_frozen():
    model = Normalized()
    model.first.filters[0].taps.requires_grad_(False)
    model.norm.bias.requires_grad_(False)
    return model


def with_a_clipped_gradient():
    model = GCNN([2, 4])
    model.filters[0].taps.register_hook(lambda grad: grad.clamp(-0.01, 0.01))
    return model


MODELS = {
    "batch norm": (Normalized, "vmap", "nothing is known about what a Normalized computes"),
    "bias before batch norm": (lambda: Normalized(bias=True), "loop", "torch.vmap gives other values"),
    "dropout": (Dropped, "loop", "random operation"),
    "noise in evaluation": (NoisyInEvaluation, "loop", "random operation"),
    "control flow": (Branching, "loop", "data-dependent control flow"),
    "own attribute": (Counting, "loop", "torch.vmap gives other values"),
    "own buffers": (OwnMean, "vmap", "nothing is known"),
    "tied and unused": (Tied, "vmap", "nothing is known"),
    "written parameter": (Shrinking, "loop", "a call changes parameters"),
    "extra state": (WithExtraState, "loop", "modules keep a state of their own besides buffers"),
    "frozen": (partly_frozen, "vmap", "nothing is known"),
    "parametrized": (with_positive_weights, "vmap", "nothing is known"),
    "no batching rule": (weight_normalized, "loop", "batching rule"),
    "constrained": (
        lambda: lipschitz_constrained(GCNN([2, 4]), GRAPHS[0], 0.5),
        "vmap",
        "a parameter is computed from others, shared or unused",
    ),
    "hook on a gradient": (with_a_clipped_gradient, "loop", "filters.0.taps: it carries hooks"),
    "localized, two hops": (
        lambda: GCNN([2, 4], activation="max-l", hops=2),
        "vmap",
        "localized activations are stacked with one hop, got 2",
    ),
    "own operation": (
        lambda: GCNN([2, 4], activation=lambda features: GraphAdaptive(span, features=features)),
        "vmap",
        "the operation 'span' is not stacked",
    ),
    "PyG": (PyG, "loop", "nothing is known about what a PyG computes"),
}


def make_seeded(make, dtype):
    def made(seed):
        torch.manual_seed(seed)
        return make().to(dtype)

    return made


def check_as_alone(make, tasks, way=None, **options):
    """Train a fleet and each model alone; compare everything. The fleet."""
    models, alone = ([*map(make_seeded(make, tasks[0].inputs.dtype), range(len(tasks)))] for _ in range(2))
    settings = replace(SETTINGS, **options)
    fleet = Fleet(models, tasks, seeds=[3 + number for number in range(len(tasks))], way=way)
    result = fleet.train(settings)
    for number, (model, task) in enumerate(zip(alone, tasks, strict=True)):
        single = fit(model, task, settings, seed=3 + number)
        compare(models[number], model, fleet.way)
        assert result.best_epoch[number] == single.best_epoch
        assert result.validation[number] == pytest.approx(single.validation, rel=1e-6)
        assert result.test[number] == pytest.approx(single.test, rel=1e-6)
    return fleet


def compare(model, expected, way):
    """To the bit in a loop, to rounding otherwise."""
    theirs = {**dict(expected.named_parameters()), **dict(expected.named_buffers())}
    largest = max(parameter.abs().max().item() for parameter in expected.parameters())
    for name, ours in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items():
        if way == "loop":
            assert torch.equal(ours, theirs[name]), name
        else:
            limit = (1e-9 if ours.dtype == torch.float64 else 1e-6) * largest
            torch.testing.assert_close(ours, theirs[name], rtol=0, atol=limit)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_module_is_trained_as_alone(name):
    make, way, reason = MODELS[name]
    fleet = check_as_alone(make, make_tasks(3))
    assert fleet.way == way
    assert reason in fleet.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, way, _) in MODELS.items() if way == "vmap"])
def test_every_node_several_graphs_and_double_precision(name):
    fleet = check_as_alone(MODELS[name][0], make_tasks(4, graphs=2, at_node=False, dtype=torch.float64), epochs=8)
    assert fleet.way == "vmap"


def test_without_a_common_graph_models_are_trained_in_turn():
    fleet = check_as_alone(Normalized, make_tasks(2, graphs=2))
    assert (fleet.way, fleet.reason.split("; ")[1]) == ("loop", "no two models share a graph")


@pytest.mark.parametrize("way", ["stacked", "vmap", "loop"])
def test_all_ways_agree_where_all_are_possible(way):
    tasks = make_tasks(3, dtype=torch.float64)
    torch.manual_seed(0)
    models = [GCNN([2, 4, 3], activation="median-ga", hops=2, bias=True).double() for _ in tasks]
    models = [partly(model) for model in models]
    frozen = [model.filters[0].taps.clone() for model in models]
    expected = [fit(copy.deepcopy(models[number]), tasks[number], SETTINGS, seed=number) for number in range(3)]
    fleet = Fleet(models, tasks, way=way)
    assert fleet.way == way
    result = fleet.train(SETTINGS)
    assert result.test == pytest.approx([single.test for single in expected], rel=1e-9)
    assert result.best_epoch == [single.best_epoch for single in expected]
    for before, model in zip(frozen, models, strict=True):
        assert torch.equal(before, model.filters[0].taps)
        assert not model.filters[0].taps.requires_grad


def partly(model):
    model.filters[0].taps.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("way", "make", "reason"),
    [
        ("stacked", Normalized, "nothing is known about what a Normalized computes"),
        ("vmap", Dropped, "random operation"),
        ("vmap", with_a_clipped_gradient, "filters.0.taps: it carries hooks"),
    ],
)
def test_a_way_that_is_asked_for_is_taken_or_refused(way, make, reason):
    tasks = make_tasks(2)
    with pytest.raises(UnsupportedModelError, match=reason):
        Fleet([make() for _ in tasks], tasks, way=way)
    with pytest.raises(ValueError, match="way must be one of 'stacked', 'vmap', 'loop', got 'fast'"):
        Fleet([make() for _ in tasks], tasks, way="fast")


@pytest.mark.parametrize("make", [OwnMean, Dropped, Tied], ids=lambda make: make.__name__)
def test_a_resumed_fleet_equals_an_undisturbed_one(make, tmp_path):
    tasks, path = make_tasks(3), tmp_path / "checkpoint.safetensors"
    torch.manual_seed(0)
    models = [make() for _ in tasks]
    undisturbed = copy.deepcopy(models)
    expected = Fleet(undisturbed, tasks).train(SETTINGS)

    def die(epoch, epochs, loss):
        if epoch == 2:
            raise KeyboardInterrupt

    fleet, before = Fleet(models, tasks), copy.deepcopy(models)
    with pytest.raises(KeyboardInterrupt):
        fleet.train(SETTINGS, progress=die, checkpoint=path, every=lambda: True)
    for model, start in zip(models, before, strict=True):
        compare(model, start, "loop")
    seen = []
    models = copy.deepcopy(before)
    resumed = Fleet(models, tasks).train(SETTINGS, checkpoint=path, progress=lambda epoch, *_: seen.append(epoch))
    assert seen == [3, 4]  # the checkpoint of the second epoch was written before the stop
    assert resumed == expected
    for model, other in zip(models, undisturbed, strict=True):
        compare(model, other, "loop")


def test_a_checkpoint_of_other_modules_or_other_starts_is_ignored(tmp_path):
    tasks, path = make_tasks(2), tmp_path / "checkpoint.safetensors"
    models = [Normalized() for _ in tasks]

    def epochs_run(models):
        seen = []
        Fleet(copy.deepcopy(models), tasks).train(
            SETTINGS, checkpoint=path, progress=lambda epoch, *_: seen.append(epoch), every=lambda: True
        )
        return len(seen)

    assert epochs_run(models) == 4
    assert epochs_run(models) == 0
    assert epochs_run([Normalized() for _ in tasks]) == 4
    for model in models:
        model.norm.eps = 0.1
    assert epochs_run(models) == 4
    with pytest.raises(ValueError, match="checkpoint must be None for modules that keep a state of their own"):
        Fleet([WithExtraState() for _ in tasks], tasks).train(SETTINGS, checkpoint=path)


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
    Fleet([Recorded() for _ in tasks], tasks, way="loop").train(replace(SETTINGS, epochs=2))
    assert len({tuple(mask.tolist()) for mask in masks}) == len(masks) == 2 * 2 * 3


@pytest.mark.parametrize("make", [Normalized, Dropped])
@pytest.mark.parametrize("training", [True, False])
def test_modules_come_back_in_the_mode_they_were_in(make, training):
    tasks = make_tasks(2)
    models = [make().train(training) for _ in tasks]
    for model in models:
        model.norm.train(not training)
    single = copy.deepcopy(models[0])
    fit(single, tasks[0], SETTINGS)
    fleet = Fleet(models, tasks)
    fleet.train(SETTINGS)
    fleet.metric("test")
    for model in (single, *models):
        assert [model.training, model.norm.training, model.last.training] == [training, not training, training]


@pytest.mark.parametrize("make", [Normalized, Dropped])
def test_the_best_epoch_comes_back_with_its_buffers(make):
    tasks = make_tasks(2)
    models = [make() for _ in tasks]
    result = Fleet(models, tasks).train(replace(SETTINGS, epochs=12, learning_rate=0.3))
    for number, (model, task) in enumerate(zip(models, tasks, strict=True)):
        model.eval()
        with torch.no_grad():
            answers = task.read(model(task.inputs[task.validation], task.graph)).squeeze(-1)
        found = (answers - task.targets[task.validation]).square().mean().sqrt().item()
        assert found == pytest.approx(result.validation[number], rel=1e-5)
        assert model.norm.num_batches_tracked == 3 * result.best_epoch[number]


@pytest.mark.parametrize("way", ["stacked", "vmap", "loop"])
def test_other_graphs_and_inputs(way):
    tasks = make_tasks(2)
    models = [GCNN([2, 3]) for _ in tasks]
    fleet = Fleet(models, tasks, way=way)
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


@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_another_precision_than_that_of_the_modules(way):
    tasks = make_tasks(2)
    models = [Normalized() for _ in tasks]
    alone = [copy.deepcopy(model).double() for model in models]
    Fleet(models, tasks, dtype=torch.float64, way=way).train(SETTINGS)
    for number, (model, task) in enumerate(zip(alone, tasks, strict=True)):
        fit(model, task.to(dtype=torch.float64), SETTINGS, seed=number)
        for ours, theirs in zip(models[number].parameters(), model.parameters(), strict=True):
            assert ours.dtype == torch.float32
            torch.testing.assert_close(ours, theirs.float(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("way", ["stacked", "vmap", "loop"])
def test_frozen_parameters_keep_all_their_digits_in_a_lower_precision(way):
    tasks = make_tasks(2)
    models = [partly(GCNN([2, 3]).double()) for _ in tasks]
    before = copy.deepcopy(models)
    Fleet(models, tasks, way=way).train(SETTINGS)
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
    with pytest.raises(ValueError, match=rf"{name} must be finite numbers, got nan at {name}\[25, 3, 0\]"):
        fit(model, tasks[1], SETTINGS)
    with pytest.raises(ValueError, match=rf"{name} of task 1 must be finite numbers, got nan"):
        Fleet([GCNN([2, 3]) for _ in tasks], tasks)
    compare(model, before, "loop")
    with pytest.raises(ValueError, match=rf"{name} must be finite numbers, got nan at {name}\[25, 3, 0\]"):
        replace(tasks[1], validation=torch.arange(26, 30))
