"""Recommendation as an experiment: the paper's Table 2, and what does better."""

from dataclasses import replace
from functools import partial

from graphact._lazy import Imported
from graphact.experiments.protocol import ACTIVATIONS, METHODS, Protocol
from graphact.experiments.registry import Experiment, Measure, Variation
from graphact.training.settings import TrainingSettings

PAPER = Protocol(
    experiment="recommendation",
    preset="paper",
    name="paper",
    methods=ACTIVATIONS,
    features=(32,),
    orders=(4,),
    splits=5,
    conditions=({"film": "toy-story"}, {"film": "contact"}, {"film": "return-of-the-jedi"}),
    training=TrainingSettings(epochs=30, batch_size=5, learning_rate=1e-3),
)
CONVERGED = replace(
    PAPER,
    name="converged",
    splits=20,
    bias=True,
    task_options={"similarity": "co-rated-variance", "validation_fraction": 0.0},
)
# What a search on the validation samples of seed 0 found; to be judged on other seeds
BEST = replace(
    PAPER,
    preset="best",
    name="best",
    methods=METHODS,
    features=(4,),
    orders=(1,),
    splits=20,
    preparation="fill-in",
    task_options={"validation_fraction": 0.0},
    training=TrainingSettings(epochs=20, batch_size=50, learning_rate=1e-2, schedule="cosine", weight_decay=1.0),
)
# A minute on two CPU cores: fewer runs, shorter training at a higher rate, the most telling settings
QUICK = replace(
    PAPER,
    preset="quick",
    features=(8,),
    splits=2,
    conditions=({"film": "toy-story"},),
    training=TrainingSettings(epochs=15, batch_size=5, learning_rate=5e-3),
)

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
    make_tasks=Imported("graphact.experiments.recommendation.task:make_tasks"),
    # Filling in is no function of a task: it needs the ratings of all other users
    make_prepared=partial(Imported("graphact.experiments.recommendation.task:make_tasks"), inputs="filled in"),
    baselines=Imported("graphact.experiments.recommendation.task:simple_answers"),
    prepared_baselines=Imported("graphact.experiments.recommendation.task:answers_of_prepared"),
    content=Imported("graphact.experiments.recommendation.section:content"),
    variation=Variation("film", is_text=True),
)
