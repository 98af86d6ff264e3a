"""Training of one cell: nested selection of the settings of an activation on one graph."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphact.training.fleet import FleetResult
from graphact_lab.classifiers.node_classifier import data_of, make_network, train_trials
from graphact_lab.protocols import TrainingJob
from graphact_lab.selection import TrainingTrial, nested_rows


def train_cell(job: TrainingJob, device: str, directory: Path | None) -> list[dict[str, Any]]:
    """Choose the settings of an activation on one graph and report with them: the rows of its reported splits."""
    data = data_of(job, directory)

    def train(trials: Sequence[TrainingTrial]) -> FleetResult:
        return train_trials(job, trials, device, directory)[0]

    rows = nested_rows(job, train, make_network(job, data, job.protocol.tuning_splits), data.metric)
    if job.protocol.task_options.get("split") == "fifth":  # nothing validated what was chosen on the reported nodes
        rows = [row | {"validation": None, "tuning": []} for row in rows]
    return rows
