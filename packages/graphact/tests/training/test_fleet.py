"""A fleet trains each of its models as if it were alone."""

import copy
import dataclasses

import pytest
import torch

from graphact import Graph
from graphact.nn import FIR, GCNN
from graphact.registry import POINTWISE
from graphact.training import Fleet, TrainingSettings, fit
from graphact.training.loop import train
from graphact.training.single import SeparateModels
from graphact_lab.tasks import Task, consensus_tasks, source_localization_tasks
from support.activations import PAPER

SETTINGS = TrainingSettings(epochs=9, batch_size=150, learning_rate=0.01)


def tasks_with_few_samples(tasks, train_size=600, validation=60, test=60):
    return [
        dataclasses.replace(
            task, train=task.train[:train_size], validation=task.validation[:validation], test=task.test[:test]
        )
        for task in tasks
    ]


def make_models(count, **options):
    torch.manual_seed(11)
    options = {"order": 2, "activation": "max-ga", "hops": 2, "out_features": 4, "bias": True, "gamma": 0.5, **options}
    return [GCNN([1, 3, 2], **options).double() for _ in range(count)]


def stacked(models, tasks, **options):
    """What a fleet trains."""
    return Fleet(models, tasks, **options, strategy="stacked").batch


def histories(batch, **changes):
    """Loss of each model in every step."""
    seen = []

    def make_step(batch, optimizer):
        def step(positions):
            optimizer.zero_grad()
            losses = batch.losses(positions)
            losses.sum().backward()
            optimizer.step()
            seen.append(losses.detach())
            return seen[-1]

        return step

    train(batch, dataclasses.replace(SETTINGS, epochs=13, **changes), make_step=make_step)
    return torch.stack(seen)


@pytest.mark.slow
@pytest.mark.parametrize("per_feature", [True, False], ids=["per-feature", "shared"])
@pytest.mark.parametrize("name", [*PAPER, *POINTWISE])
def test_losses_of_fleet_and_alone_agree_for_fifty_steps(name, per_feature):
    tasks = tasks_with_few_samples(source_localization_tasks(graphs=2, splits=1, nodes=2, dtype=torch.float64))
    hops = 1 if name.endswith("-l") else 2
    models = make_models(4, activation=name, hops=hops, per_feature=per_feature, learn_gamma=True)
    alone = [copy.deepcopy(model) for model in models]
    together = histories(stacked(models, tasks, seeds=[5, 6, 7, 8]))
    assert len(together) >= 50
    for number in range(4):
        single = histories(SeparateModels([alone[number]], [tasks[number]], [5 + number]))
        torch.testing.assert_close(together[:, number], single[:, 0], rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fir", "gcnn"])
def test_regression_at_all_nodes_with_high_order(model):
    tasks = tasks_with_few_samples(consensus_tasks(graphs=2, splits=1, dtype=torch.float64), 300, 30, 30)
    torch.manual_seed(2)
    models = [
        FIR([1, 3, 2], order=12).double()
        if model == "fir"
        else GCNN([1, 3, 2], order=12, activation="median-ga").double()
        for _ in tasks
    ]
    alone = [copy.deepcopy(model) for model in models]
    together = histories(stacked(models, tasks))
    for number in range(2):
        single = histories(SeparateModels([alone[number]], [tasks[number]], [number]))
        torch.testing.assert_close(together[:, number], single[:, 0], rtol=0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["max-ga", "kernel-ga", "relu"])
def test_several_input_features_with_decay_and_schedule(activation):
    tasks = tasks_with_few_samples(consensus_tasks(graphs=2, splits=1, dtype=torch.float64), 300, 30, 30)
    tasks = [
        dataclasses.replace(task, inputs=torch.cat([task.inputs, task.inputs.square(), task.inputs.abs()], dim=-1))
        for task in tasks
    ]
    torch.manual_seed(4)
    models = [GCNN([3, 4, 2], order=[3, 1], activation=activation, bias=True, gamma=0.5).double() for _ in tasks]
    alone = [copy.deepcopy(model) for model in models]
    options = {"schedule": "cosine", "weight_decay": 0.3}
    together = histories(stacked(models, tasks), **options)
    for number in range(2):
        single = histories(SeparateModels([alone[number]], [tasks[number]], [number]), **options)
        torch.testing.assert_close(together[:, number], single[:, 0], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_results_equal_those_of_fit_and_are_written_back():
    tasks = tasks_with_few_samples(source_localization_tasks(graphs=1, splits=2, nodes=2, dtype=torch.float64))
    models = make_models(4)
    alone = [copy.deepcopy(model) for model in models]
    result = Fleet(models, tasks, seeds=[1, 2, 3, 4]).train(SETTINGS)
    for number in range(4):
        single = fit(alone[number], tasks[number], SETTINGS, seed=number + 1)
        assert result.test[number] == pytest.approx(single.test)
        assert result.validation[number] == pytest.approx(single.validation)
        assert result.best_epoch[number] == single.best_epoch
        for ours, theirs in zip(models[number].parameters(), alone[number].parameters(), strict=True):
            torch.testing.assert_close(ours, theirs)


def tiny_task(graph, **changes):
    inputs = torch.randn(20, graph.num_nodes, 1)
    options = {
        "name": "consensus",
        "graph": graph,
        "inputs": inputs,
        "targets": inputs.mean(1, keepdim=True).expand_as(inputs).clone(),
        "train": torch.arange(12),
        "validation": torch.arange(12, 16),
        "test": torch.arange(16, 20),
        "node": None,
        "out_features": 1,
        "loss": "mse",
        "metric": "rmse",
        "details": {},
    }
    return Task(**{**options, **changes})


def frozen(model):
    model.filters[0].taps.requires_grad_(False)
    return model


@pytest.mark.parametrize("kind", ["directed", "laplacian", "large"])
def test_graphs_without_an_eigenbasis_and_large_ones(kind):
    generator = torch.Generator().manual_seed(3)
    if kind == "directed":
        graphs = [
            Graph.from_dense(torch.rand(6, 6, generator=generator).bernoulli(0.4, generator=generator)) for _ in "ab"
        ]
    elif kind == "laplacian":
        graphs = [
            Graph.stochastic_block_model([4, 4], 0.6, 0.3, generator=generator).normalize("laplacian") for _ in "ab"
        ]
    else:
        graphs = [
            Graph.stochastic_block_model([300], 0.02, 0.0, generator=generator).normalize("laplacian") for _ in "ab"
        ]
        graphs = [
            Graph.from_edge_index(*graph.to_edge_index(), graph.num_nodes).normalize("spectral") for graph in graphs
        ]
    tasks = [tiny_task(graph.to(dtype=torch.float32)) for graph in graphs]
    tasks = [task.to(dtype=torch.float64) for task in tasks]
    models = [GCNN([1, 3, 2], order=2, activation="max-ga", hops=2).double() for _ in tasks]
    fleet = Fleet(models, tasks)
    outputs = fleet.forward(fleet.inputs[fleet.owner])
    for number, (model, task) in enumerate(zip(models, tasks, strict=True)):
        torch.testing.assert_close(outputs[number], model(task.inputs, task.graph))


SMALL_GRAPHS = {
    "undirected": lambda rng, sizes=(4, 4): Graph.stochastic_block_model(
        list(sizes), 0.6, 0.3, generator=rng
    ).normalize("spectral"),
    "with a diagonal": lambda rng: Graph.from_dense(
        torch.eye(9) / 2 + SMALL_GRAPHS["undirected"](rng, [5, 4]).to_dense()
    ),
    "directed": lambda rng: Graph.from_dense(0.3 * torch.rand(7, 7, generator=rng).bernoulli(0.4, generator=rng)),
    "large": lambda rng: Graph.stochastic_block_model([290], 0.02, 0.0, generator=rng).normalize("spectral"),
}


@pytest.mark.parametrize("features", [[1, 3, 2], [2, 1], [2, 3, 3]], ids=str)
@pytest.mark.parametrize("at_a_node", [False, True], ids=["all nodes", "one node"])
@pytest.mark.parametrize("kind", SMALL_GRAPHS)
def test_two_epochs_of_a_small_fleet_are_those_of_its_models_alone(kind, at_a_node, features):
    """Three models on two graphs. Adam enlarges rounding where a gradient is zero, so not to the last digit."""
    rng = torch.Generator().manual_seed(1)
    graphs, settings = [SMALL_GRAPHS[kind](rng) for _ in "ab"], TrainingSettings(2, 5, 0.01, weight_decay=0.1)
    tasks = []
    for number, graph in enumerate([graphs[0], graphs[1], graphs[0]]):
        inputs = torch.randn(20, graph.num_nodes, features[0], generator=rng)
        changes = {
            "inputs": inputs,
            "targets": inputs.mean((1, 2), keepdim=True).expand(-1, graph.num_nodes, 1).clone(),
        }
        if at_a_node:
            changes |= {"targets": inputs.mean((1, 2)), "node": number + 1}
        tasks.append(tiny_task(graph, **changes).to(dtype=torch.float64))
    for activation, hops in (("max-ga", 2), ("median-l", 1), ("kernel-ga", 2), ("relu", 1)):
        options = {"order": 3, "activation": activation, "hops": hops, "bias": kind != "directed", "gamma": 2.0}
        torch.manual_seed(0)
        models = [GCNN(features, **options, out_features=1, learn_gamma=True).double() for _ in tasks]
        alone = [copy.deepcopy(model) for model in models]
        result = Fleet(models, tasks, seeds=[5, 6, 7], strategy="stacked").train(settings)
        for number, (model, other, task) in enumerate(zip(models, alone, tasks, strict=True)):
            single = fit(other, task, settings, seed=5 + number)
            actual = [result.test[number], result.validation[number], result.best_epoch[number]]
            assert actual == pytest.approx([single.test, single.validation, single.best_epoch], rel=1e-6)
            for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_models_do_not_influence_each_other():
    tasks = tasks_with_few_samples(source_localization_tasks(graphs=1, splits=1, nodes=2, dtype=torch.float64))
    models = make_models(2)
    twin = [copy.deepcopy(models[0]), make_models(3)[2]]
    first = Fleet(models, tasks).train(TrainingSettings(epochs=2, batch_size=200))
    second = Fleet(twin, tasks).train(TrainingSettings(epochs=2, batch_size=200))
    assert first.test[0] == second.test[0]
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), twin[0].parameters(), strict=True))


def test_a_fleet_computes_in_the_precision_it_is_told():
    graph = Graph.from_dense(torch.rand(4, 4)).normalize("spectral")
    inputs = torch.randn(20, 4, 1).to(torch.float32)
    tasks = [tiny_task(graph, inputs=inputs, targets=inputs.clone())]
    for dtype in (torch.float64, None):
        fleet = Fleet([GCNN([1, 2])], tasks, dtype=dtype)
        expected = dtype or torch.float32
        assert (fleet.inputs.dtype, fleet.parameters[0].dtype) == (expected, expected)
        assert fleet.losses(torch.arange(3).unsqueeze(0)).dtype == expected


def test_link_loss_evaluation_uses_the_other_graphs():
    from graphact.training import StackedGraphs

    tasks = tasks_with_few_samples(consensus_tasks(graphs=1, splits=1, dtype=torch.float64), 100, 20, 20)
    model = GCNN([1, 3], order=4, activation="max-ga").double()
    fleet = Fleet([model], tasks)
    thin = tasks[0].graph.drop_edges(0.2, generator=torch.Generator().manual_seed(0))
    metric = fleet.metric("test", StackedGraphs([thin]))
    outputs = model(tasks[0].inputs[tasks[0].test], thin)
    expected = (outputs - tasks[0].targets[tasks[0].test]).square().mean().sqrt()
    torch.testing.assert_close(metric[0], expected.detach())


@pytest.mark.parametrize(
    ("models", "tasks", "message"),
    [
        (lambda: [], lambda: [], "equally many and at least one, got 0 and 0"),
        (lambda: make_models(1), lambda: [tiny_task(Graph.from_dense(torch.ones(3, 3)))] * 2, "got 1 and 2"),
        (
            lambda: [GCNN([1, 2]), GCNN([1, 3])],
            lambda: [tiny_task(Graph.from_dense(torch.ones(3, 3)))] * 2,
            "models must have one configuration",
        ),
        (
            lambda: [GCNN([1, 2]), GCNN([1, 2])],
            lambda: [tiny_task(Graph.from_dense(torch.ones(n, n))) for n in (3, 4)],
            "inputs of the tasks must have one shape",
        ),
        (
            lambda: [frozen(GCNN([1, 2])), GCNN([1, 2])],
            lambda: [tiny_task(Graph.from_dense(torch.ones(3, 3)))] * 2,
            r"one configuration, got filters.0.taps as untrained \(3, 1, 2\) in the first and as trained",
        ),
        (
            lambda: [GCNN([1, 2])] * 2,
            lambda: [tiny_task(Graph.from_dense(torch.ones(3, 3)))] * 2,
            "models must not share parameters, got filters.0.taps in 0 and 1",
        ),
        (
            lambda: [GCNN([1, 2], activation="max-ga"), GCNN([1, 2], activation="median-ga")],
            lambda: [tiny_task(Graph.from_dense(torch.ones(3, 3)))] * 2,
            "models must have one configuration",
        ),
    ],
)
def test_bad_fleets(models, tasks, message):
    with pytest.raises(ValueError, match=message):
        Fleet(models(), tasks())


EVERY = [*((name, 1) for name in POINTWISE), *((name, hops) for name in ("max-l", "median-l") for hops in (2, 3, 4))]


@pytest.mark.parametrize("per_feature", [True, False], ids=["per-feature", "shared"])
@pytest.mark.parametrize("at_a_node", [False, True], ids=["all nodes", "one node"])
@pytest.mark.parametrize(("name", "hops"), EVERY)
def test_pointwise_and_localized_activations_are_trained_as_if_alone(name, hops, at_a_node, per_feature):
    """Every model ends with parameters of its own: those that training it alone gives, to the last digits."""
    rng = torch.Generator().manual_seed(4)
    graphs = [SMALL_GRAPHS["undirected"](rng) for _ in "ab"]
    tasks = []
    for number, graph in enumerate([graphs[0], graphs[1], graphs[0]]):
        changes = {"targets": torch.randn(20, generator=rng), "node": number + 1} if at_a_node else {}
        tasks.append(tiny_task(graph, **changes).to(dtype=torch.float64))
    torch.manual_seed(0)
    options = {"activation": name, "hops": hops, "bias": True, "per_feature": per_feature, "start": "uniform"}
    options["closed"] = hops == 3
    models = [GCNN([1, 3, 2], order=2, **options).double() for _ in tasks]
    for model in models:  # slopes and lines that differ, and no ties
        for part in model.activations:
            for parameter in part.parameters():
                torch.nn.init.normal_(parameter, generator=rng)
    alone = [copy.deepcopy(model) for model in models]
    settings = TrainingSettings(3, 5, 0.01)
    result = Fleet(models, tasks, seeds=[5, 6, 7], strategy="stacked").train(settings)
    for number, (model, other, task) in enumerate(zip(models, alone, tasks, strict=True)):
        single = fit(other, task, settings, seed=5 + number)
        assert result.test[number] == pytest.approx(single.test, rel=1e-12)
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_lost_links_change_the_hops_of_localized_activations():
    from graphact.training import StackedGraphs

    tasks = tasks_with_few_samples(consensus_tasks(graphs=1, splits=1, dtype=torch.float64), 100, 20, 20)
    model = GCNN([1, 3], order=2, activation="median-l", hops=2, start="uniform").double()
    fleet = Fleet([model], tasks)
    thin = tasks[0].graph.drop_edges(0.8, generator=torch.Generator().manual_seed(0))
    expected = (model(tasks[0].inputs[tasks[0].test], thin) - tasks[0].targets[tasks[0].test]).square().mean().sqrt()
    torch.testing.assert_close(fleet.metric("test", StackedGraphs([thin]))[0], expected.detach())
