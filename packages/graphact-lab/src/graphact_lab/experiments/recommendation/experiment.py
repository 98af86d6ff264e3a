"""Recommendation as an experiment: the paper's Table 2, and what does better."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from graphact._lazy import Imported
from graphact.training.settings import TrainingSettings
from graphact_lab.descriptions import Experiment, Measure, Variation
from graphact_lab.protocols import ACTIVATIONS, EVERY_METHOD, METHODS, Condition, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from graphact_lab.report.tables import PublishedTable

MAKE_TASKS = Imported("graphact_lab.experiments.recommendation.task:recommendation_tasks")

# 90 % of the users to train and 10 % to test, as the text says: no validation users, and the last epoch counts
PAPER = Protocol(
    experiment="recommendation",
    preset="paper",
    name="paper",
    methods=ACTIVATIONS,
    features=(32,),
    orders=(4,),
    splits=5,
    conditions=({"film": "toy-story"}, {"film": "contact"}, {"film": "return-of-the-jedi"}),
    readout_bias=False,
    task_options={"validation_fraction": 0.0},
    training=TrainingSettings(epochs=30, batch_size=5, learning_rate=1e-3),
)
# The rate of benchmarks/search_protocols.py (results/search/recommendation), as there with validation users, of whose
# epochs the best is kept, and whom the film graph does not know
CONVERGED = replace(
    PAPER,
    name="converged",
    methods=EVERY_METHOD,
    bias=True,
    readout_bias=True,
    task_options={"similarity": "co-rated-variance", "validation_fraction": 0.1, "graph_from": "training users"},
    training=replace(PAPER.training, learning_rate=1e-2),
)
# What a search on the validation samples of seed 0 found; to be judged on other seeds
BEST = replace(
    PAPER,
    preset="best",
    name="best",
    readout_bias=True,
    methods=METHODS,
    features=(4,),
    orders=(1,),
    splits=20,
    preparation="fill-in",
    training=TrainingSettings(epochs=20, batch_size=50, learning_rate=1e-2, schedule="cosine", weight_decay=1.0),
)
# A minute on two CPU cores: fewer runs, shorter training at a higher rate, the most telling settings
QUICK = replace(
    PAPER,
    preset="quick",
    readout_bias=True,
    task_options={},
    features=(8,),
    splits=2,
    conditions=({"film": "toy-story"},),
    training=TrainingSettings(epochs=15, batch_size=5, learning_rate=5e-3),
)

FILMS = {"toy-story": "Toy Story", "contact": "Contact", "return-of-the-jedi": "Return of the Jedi"}
# Test RMSE by (activation, hops) and film
TABLE_2: "PublishedTable" = {
    variant: dict(zip(FILMS, line, strict=True))
    for variant, line in {
        ("relu", None): ((0.976, 0.158), (1.022, 0.042), (1.018, 0.177)),
        ("max-l", 1): ((0.999, 0.166), (1.028, 0.029), (1.001, 0.162)),
        ("max-ga", 1): ((0.968, 0.168), (1.018, 0.038), (0.998, 0.172)),
        ("median-l", 1): ((0.987, 0.156), (1.039, 0.055), (1.020, 0.177)),
        ("median-ga", 1): ((0.989, 0.160), (1.020, 0.038), (1.021, 0.181)),
        ("kernel-ga", 1): ((0.977, 0.152), (1.021, 0.037), (1.014, 0.177)),
    }.items()
}


def make_tasks(protocol: Protocol, condition: Condition, seed: int, data: "Path | None", **options: Any) -> Any:
    """The tasks of a protocol for one film."""
    options = {**protocol.task_options, **options}
    return MAKE_TASKS((condition["film"],), protocol.splits, seed, directory=data, **options)


EXPERIMENT = Experiment(
    name="recommendation",
    title="Recommendation",
    explanation=(
        "MovieLens 100K: what will a user think of a film, from the user's ratings of other films? The ratings of a "
        "user are a signal on a graph of films that are rated alike. The error is in stars.",
        "The baselines need no network: a constant, the user's own mean with a constant, ridge regression, and what is "
        "filled in from similar films where networks start from that. An activation is worth its cost where its "
        "network is better than the best of them. L.: localized. G.A.: graph-adaptive.",
    ),
    measure=Measure("rmse", "Test RMSE (stars)", 3, overlap=1 / 9),
    protocols=(PAPER, CONVERGED, BEST, QUICK),
    dataset="ml-100k",
    make_tasks=make_tasks,
    # Filling in needs more than a task: the ratings of all other users
    make_prepared=partial(make_tasks, inputs="filled in"),
    baselines=Imported("graphact_lab.experiments.recommendation.task:baselines"),
    prepared_baselines=Imported("graphact_lab.experiments.recommendation.task:prepared_baselines"),
    # For each number of features and filter order; other films go by their number or name
    make_tables=partial(
        Imported("graphact_lab.report.sections:comparison"),
        exhibit="Table 2",
        title="recommendation",
        column="level",
        column_label=lambda film: FILMS.get(film) or f"Film {film}",
        column_order=tuple(FILMS),
        settings={"features": "F", "order": "K"},
    ),
    variation=Variation("film"),
    task_options=(*("similarity", "neighbors", "min_co_raters", "test_fraction", "validation_fraction", "graph_from"),),
    usual_options={
        **{"similarity": "pearson", "neighbors": 10, "min_co_raters": 10, "test_fraction": 0.1},
        **{"validation_fraction": 0.1, "graph_from": "all but test users"},
    },
    published=TABLE_2,
)
