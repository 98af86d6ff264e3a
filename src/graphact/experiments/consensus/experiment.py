"""Finite-time consensus as an experiment: the paper's Figure 2a, and 2b, where links are lost."""

from dataclasses import replace

from graphact._lazy import Imported
from graphact.experiments.protocol import METHODS, Protocol
from graphact.experiments.registry import Experiment
from graphact.training.settings import TrainingSettings

PAPER = Protocol(
    experiment="consensus",
    preset="paper",
    name="paper",
    methods=METHODS,
    features=(32,),
    orders=(20, 25, 30, 35),
    layers=2,
    graphs=10,
    splits=10,
    loss_probabilities=(0.025, 0.05, 0.075, 0.1, 0.125, 0.15),
    loss_realizations=10,
    training=TrainingSettings(epochs=400, batch_size=100, learning_rate=1e-3),
)
# What a search on the validation samples of seed 0 found; to be judged on other seeds
BEST = replace(
    PAPER,
    preset="best",
    name="best",
    orders=(10,),
    later_order=2,
    preparation="by-centrality",
    training=TrainingSettings(epochs=40, batch_size=25, learning_rate=2e-2, schedule="cosine"),
)
# A minute on two CPU cores: fewer runs, shorter training at a higher rate, the most telling settings
QUICK = replace(
    PAPER,
    preset="quick",
    features=(8,),
    orders=(5, 20),
    graphs=2,
    splits=1,
    loss_probabilities=(0.05, 0.1, 0.15),
    loss_realizations=3,
    training=TrainingSettings(epochs=15, batch_size=100, learning_rate=5e-3),
)


EXPERIMENT = Experiment(
    name="consensus",
    title="Finite-time consensus",
    metric="rmse",
    protocols=(PAPER, BEST, QUICK),
    make_tasks=Imported("graphact.experiments.consensus.task:make_tasks"),
    baselines=Imported("graphact.experiments.consensus.task:simple_answers"),
    prepared_baselines=Imported("graphact.experiments.consensus.task:answers_of_prepared"),
    evaluate_further=Imported("graphact.experiments.consensus.task:under_link_loss"),
)
