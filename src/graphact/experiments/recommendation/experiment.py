"""Recommendation as an experiment: the paper's Table 2, and what does better."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphact.experiments.experiment import Experiment
from graphact.experiments.protocol import ACTIVATIONS, METHODS, Condition, Protocol
from graphact.training.settings import TrainingSettings

if TYPE_CHECKING:
    from graphact.data import Task

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


class Recommendation(Experiment):
    """See :func:`graphact.tasks.recommendation`."""

    def make_tasks(self, protocol: Protocol, condition: Condition, seed: int, data: Path | None = None) -> "list[Task]":
        """All splits of one film."""
        from graphact.experiments.recommendation.task import recommendation_tasks

        film = (condition["film"],)
        return recommendation_tasks(film, protocol.splits, seed, directory=data, **protocol.task_options)

    def prepare_tasks(
        self, protocol: Protocol, condition: Condition, plain: "list[Task]", seed: int, data: Path | None = None
    ) -> "list[Task]":
        """Filled-in ratings are no function of a task: they need those of all other users."""
        if protocol.preparation != "fill-in":
            return super().prepare_tasks(protocol, condition, plain, seed, data)
        filled = replace(protocol, task_options={**protocol.task_options, "inputs": "filled in"})
        return self.make_tasks(filled, condition, seed, data)

    def baselines(self, task: "Task", order: int) -> dict[str, float]:
        """A constant, a constant above the user's mean, and linear regression on all other ratings of the user."""
        from graphact.experiments.recommendation.baselines import simple_answers

        del order
        return simple_answers(task)

    def prepared_baselines(self, task: "Task", preparation: str, order: int) -> dict[str, float]:
        """Filling in, corrected by a constant."""
        from graphact.experiments.baselines import constant_answer

        del order
        return {"fill-in alone": constant_answer(task)} if preparation == "fill-in" else {}


EXPERIMENT = Recommendation(
    name="recommendation",
    title="Recommendation",
    metric="rmse",
    protocols=(PAPER, CONVERGED, BEST, QUICK),
    dataset="ml-100k",
    overlap=1 / 9,
)
