"""Finite-time consensus as an experiment: the paper's Figure 2a, and 2b, where links are lost."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphact.experiments.experiment import Experiment
from graphact.experiments.protocol import METHODS, Condition, Protocol, TrainingJob
from graphact.training.settings import TrainingSettings

if TYPE_CHECKING:
    from graphact.data import Task
    from graphact.training import Fleet

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


class Consensus(Experiment):
    """See :func:`graphact.tasks.consensus`."""

    def make_tasks(self, protocol: Protocol, condition: Condition, seed: int, data: Path | None = None) -> "list[Task]":
        """All graphs and splits."""
        from graphact.experiments.consensus.task import consensus_tasks

        del condition, data
        return consensus_tasks(protocol.graphs, protocol.splits, seed, **protocol.task_options)

    def baselines(self, task: "Task", order: int) -> dict[str, float]:
        """Zero, the expectation of the mean; and the best filter of one order."""
        from graphact.experiments.consensus.task import simple_answers

        return simple_answers(task, order)

    def prepared_baselines(self, task: "Task", preparation: str, order: int) -> dict[str, float]:
        """The best filter of the prepared signals."""
        from graphact.experiments.baselines import score_on_test
        from graphact.experiments.consensus.task import least_squares_fir

        if preparation != "by-centrality":
            return {}
        return {"least-squares FIR of the prepared signals": score_on_test(task, least_squares_fir(task, order))}

    def evaluate_further(
        self, job: TrainingJob, fleet: "Fleet", plain: "list[Task]"
    ) -> list[tuple[Condition, list[float]]]:
        """The error on graphs that lost links."""
        from graphact.experiments.consensus.link_loss import lossy_metric

        return [
            ({"loss_probability": probability}, lossy_metric(fleet, plain, probability, job))
            for probability in job.protocol.loss_probabilities
        ]


EXPERIMENT = Consensus(name="consensus", title="Finite-time consensus", metric="rmse", protocols=(PAPER, BEST, QUICK))
