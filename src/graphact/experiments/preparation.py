"""What nodes make of their signals before a network sees them, by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from graphact._plain_checks import check_choice

if TYPE_CHECKING:
    from torch import Tensor

    from graphact.data import Task
    from graphact.graph import Graph

# Functions of signals and graph: the same for all splits, and repeated with the links that are left when some are lost
OF_SIGNALS = {
    "local-contrast": "graphact.experiments.source_localization.task:local_contrast",
    "by-centrality": "graphact.experiments.consensus.task:by_centrality",
}
# Functions of a task, which learn from its training samples
OF_TASKS = {"local-estimate": "graphact.experiments.denoising.local_estimate:with_local_estimate"}
PREPARATIONS = ("none", *OF_SIGNALS, *OF_TASKS)


def signal_preparation(name: str) -> "Callable[[Tensor, Graph], Tensor] | None":
    """The function of signals and graph of this name; None where the preparation is of another kind."""
    return resolve_name(OF_SIGNALS[name]) if name in OF_SIGNALS else None


def prepared(tasks: "Sequence[Task]", preparation: str) -> "list[Task]":
    """Tasks whose inputs nodes make of their signals, themselves and with their neighbours.

    - "none": the tasks as they are;
    - "local-contrast": see :func:`~graphact.experiments.source_localization.task.local_contrast`;
    - "by-centrality": see :func:`~graphact.experiments.consensus.task.by_centrality`;
    - "local-estimate": see :func:`~graphact.tasks.with_local_estimate`.

    Tasks that share signals and graph share the prepared signals, too. Metrics stay in the units of the task.
    """
    check_choice("preparation", preparation, PREPARATIONS)
    if preparation in OF_TASKS:
        return [resolve_name(OF_TASKS[preparation])(task) for task in tasks]
    make = signal_preparation(preparation)
    if make is None:
        return list(tasks)
    shared = {(id(task.inputs), id(task.graph)): task for task in tasks}
    made = {key: make(task.inputs, task.graph) for key, task in shared.items()}
    return [
        replace(
            task, inputs=made[id(task.inputs), id(task.graph)], details={**task.details, "preparation": preparation}
        )
        for task in tasks
    ]
