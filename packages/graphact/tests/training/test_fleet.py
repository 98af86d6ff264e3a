"""A fleet trains each of its models as if it were alone."""

from functools import partial

import pytest
import torch

from graphact import Graph
from graphact.nn import GCNN
from graphact.registry import POINTWISE
from graphact.training import Fleet, StackedGraphs
from support.general_models import check_as_alone
from support.tasks import make_graph, make_task, make_tasks


def classification_tasks(count, graphs):
    """Four classes at a node; an epoch has four steps."""
    return make_tasks(count, graphs=graphs, samples=400, classes=4, dtype=torch.float64)


def make_models(count, **options):
    torch.manual_seed(11)
    options = {"order": 2, "activation": "max-ga", "hops": 2, "out_features": 4, "bias": True, "gamma": 0.5, **options}
    return [GCNN([1, 3, 2], **options).double() for _ in range(count)]


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


def tasks_on(graphs, at_a_node, features=1):
    """Three tasks on two graphs."""
    options = {"samples": 20, "features": features, "dtype": torch.float64}
    return [
        make_task(graph, seed=number, node=number + 1 if at_a_node else None, **options)
        for number, graph in enumerate([graphs[0], graphs[1], graphs[0]])
    ]


@pytest.mark.parametrize("features", [[1, 3, 2], [2, 1], [2, 3, 3]], ids=str)
@pytest.mark.parametrize("at_a_node", [False, True], ids=["all nodes", "one node"])
@pytest.mark.parametrize("kind", SMALL_GRAPHS)
def test_two_epochs_of_a_small_fleet_are_those_of_its_models_alone(kind, at_a_node, features):
    """Three models on two graphs. Adam enlarges rounding where a gradient is zero, so not to the last digit."""
    rng = torch.Generator().manual_seed(1)
    graphs = [SMALL_GRAPHS[kind](rng) for _ in "ab"]
    settings = {"epochs": 2, "batch_size": 5, "learning_rate": 0.01, "schedule": "cosine"}
    tasks = tasks_on(graphs, at_a_node, features[0])
    banks = {"bank": "adaptive", "ops": ["max", "std", ("kernel", {"gamma": 2.0})], "order": [2] * (len(features) - 1)}
    for activation, hops, changes in (
        ("max-ga", 2, {}),
        ("median-l", 1, {}),
        ("kernel-ga", 2, {}),
        ("relu", 1, {"order": 12}),
        ({"name": "median-ga", "unshifted": True}, 1, {"residual": True}),
        ("gelu", 1, {**banks, "residual": True, "closed": True}),
    ):
        options = {"order": 3, "activation": activation, "hops": hops, "bias": kind != "directed", "gamma": 2.0}
        make = partial(GCNN, features, **options | changes, out_features=1, learn_gamma=True)
        check_as_alone(make, tasks, "stacked", tolerance=1e-6, **settings)


EVERY = [*((name, 1) for name in POINTWISE), *((name, hops) for name in ("max-l", "median-l") for hops in (2, 3, 4))]
EVERY += [(name, 2) for name in ("max-ga", "median-ga", "kernel-ga", "soft-maximum-ga")]


@pytest.mark.parametrize("per_feature", [True, False], ids=["per-feature", "shared"])
@pytest.mark.parametrize("at_a_node", [False, True], ids=["all nodes", "one node"])
@pytest.mark.parametrize(("name", "hops"), EVERY)
def test_every_activation_is_trained_as_if_alone(name, hops, at_a_node, per_feature):
    """Every model ends with parameters of its own: those that training it alone gives, to the last digits."""
    rng = torch.Generator().manual_seed(4)
    graphs = [SMALL_GRAPHS["undirected"](rng) for _ in "ab"]
    tasks = tasks_on(graphs, at_a_node)
    options = {"activation": name, "hops": hops, "bias": True, "per_feature": per_feature, "start": "uniform"}
    options |= {"closed": hops == 3, "gamma": 2.0, "learn_gamma": True}

    def make():
        """Slopes and lines that differ, and no ties."""
        model = GCNN([1, 3, 2], order=2, **options)
        for title, parameter in model.activations.named_parameters():
            if not title.endswith("log_gamma"):
                torch.nn.init.normal_(parameter)
        return model

    settings = {"epochs": 3, "batch_size": 5, "learning_rate": 0.01, "weight_decay": 0.0}
    check_as_alone(make, tasks, "stacked", tolerance=1e-12, **settings)


@pytest.mark.parametrize("dtype", [torch.float64, None])
def test_a_fleet_computes_in_the_precision_it_is_told(dtype):
    fleet = Fleet([GCNN([1, 2])], [make_task()], dtype=dtype)
    found = {fleet.inputs.dtype, fleet.parameters[0].dtype, fleet.losses(torch.arange(3).unsqueeze(0)).dtype}
    assert found == {dtype or torch.float32}


@pytest.mark.parametrize(
    ("options", "drop"),
    [
        ({"order": 4, "activation": "max-ga"}, 0.2),
        ({"order": 2, "activation": "median-l", "hops": 2, "start": "uniform"}, 0.8),
    ],
)
def test_other_graphs_change_shifts_and_hops(options, drop):
    task, model = make_task(make_graph(sizes=(20, 20)), dtype=torch.float64), GCNN([1, 3], **options).double()
    thin = task.graph.drop_edges(drop, generator=torch.Generator().manual_seed(0))
    expected = (model(task.inputs[task.test], thin) - task.targets[task.test]).square().mean().sqrt()
    torch.testing.assert_close(Fleet([model], [task]).metric("test", StackedGraphs([thin]))[0], expected.detach())


def with_frozen_taps(model):
    model.filters[0].taps.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("models", "sizes", "message"),
    [
        (lambda: [], [], "equally many and at least one, got 0 and 0"),
        (lambda: make_models(1), [3, 3], "got 1 and 2"),
        (lambda: [GCNN([1, 2]), GCNN([1, 3])], [3, 3], "models must have one configuration"),
        (lambda: [GCNN([1, 2]), GCNN([1, 2])], [3, 4], "inputs of the tasks must have one shape"),
        (
            lambda: [with_frozen_taps(GCNN([1, 2])), GCNN([1, 2])],
            [3, 3],
            r"one configuration, got filters.0.taps as untrained \(3, 1, 2\) in the first and as trained",
        ),
        (lambda: [GCNN([1, 2])] * 2, [3, 3], "models must not share parameters, got filters.0.taps in 0 and 1"),
        (
            lambda: [GCNN([1, 2], activation=name) for name in ("max-ga", "median-ga")],
            [3, 3],
            "models must have one configuration",
        ),
    ],
)
def test_bad_fleets(models, sizes, message):
    with pytest.raises(ValueError, match=message):
        Fleet(models(), [make_task(Graph.from_dense(torch.ones(size, size))) for size in sizes])


@pytest.mark.parametrize("seeds", [[3], [1, 2, 3]])
def test_a_fleet_needs_a_seed_for_each_model(seeds):
    with pytest.raises(ValueError, match=f"seeds must have one number for each of the 2 models, got {len(seeds)}"):
        Fleet(make_models(2), classification_tasks(2, graphs=1), seeds)
