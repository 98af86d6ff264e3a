"""Training of one cell: nested selection of the settings of an activation on one graph."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphact.training.fleet import FleetResult
from graphact_lab.classifiers.node_classifier import data_of, make_network, train_trials
from graphact_lab.protocols import TrainingJob
from graphact_lab.selection import TrainingTrial, grid, nested


def run_job(job: TrainingJob, device: str, directory: Path | None) -> list[dict[str, Any]]:
    """Choose the settings of an activation on one graph and report with them: the rows of its reported splits."""
    protocol, data = job.protocol, data_of(job, directory)
    points = grid(protocol.rates, protocol.decays, protocol.dropouts)
    tuning = range(protocol.tuning_splits)
    reporting = range(protocol.tuning_splits, protocol.tuning_splits + protocol.splits)

    def train(trials: Sequence[TrainingTrial]) -> FleetResult:
        return train_trials(job, trials, device, directory)[0]

    outcomes, validation = nested(train, points, tuning, reporting)
    network = make_network(job, data, reporting[0])
    common = {
        "metric": data.metric,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "exchanges": network.exchanges,
        "beta": None,
        "weights": None,
    }
    rows = [{**common, **outcome.row()} for outcome in outcomes]
    rows[0]["tuning"] = validation  # of each grid point on each split that chooses
    if protocol.task_options.get("split") == "fifth":  # nothing validated what was chosen on the reported nodes
        rows = [row | {"validation": None, "tuning": []} for row in rows]
    return rows
