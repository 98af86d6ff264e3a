"""What nodes make of their signals before a network sees them, by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graphact._checks import check_choice
from graphact._lazy import Imported

if TYPE_CHECKING:
    from torch import Tensor

    from graphact.data import Task
    from graphact.graph import Graph

# Functions of signals and graph: the same for all splits, and repeated with the links that are left when some are lost
OF_SIGNALS: "dict[str, Callable[[Tensor, Graph], Tensor]]" = {
    "local-contrast": Imported("graphact.experiments.source_localization.task:local_contrast"),
    "by-centrality": Imported("graphact.experiments.consensus.task:by_centrality"),
}
# Functions of a task, which learn from its training samples
OF_TASKS: "dict[str, Callable[[Task], Task]]" = {
    "local-estimate": Imported("graphact.experiments.denoising.task:with_local_estimate")
}
PREPARATIONS = ("none", *OF_SIGNALS, *OF_TASKS)


def prepared(tasks: "Sequence[Task]", preparation: str) -> "list[Task]":
    """Tasks whose inputs nodes make of their signals, themselves and with their neighbours.

    - "none": the tasks as they are;
    - "local-contrast": see :func:`~graphact.experiments.source_localization.task.local_contrast`;
    - "by-centrality": see :func:`~graphact.experiments.consensus.task.by_centrality`;
    - "local-estimate": see :func:`~graphact.tasks.with_local_estimate`.

    Tasks that share signals and graph share the prepared signals, too. Metrics stay in the units of the task.
    """
    check_choice("preparation", preparation, PREPARATIONS)
    if preparation == "none":
        return list(tasks)
    if preparation in OF_TASKS:
        return [OF_TASKS[preparation](task) for task in tasks]
    distinct = {(id(task.inputs), id(task.graph)): task for task in tasks}
    made = {key: OF_SIGNALS[preparation](task.inputs, task.graph) for key, task in distinct.items()}
    details = {"preparation": preparation}
    return [
        replace(task, inputs=made[id(task.inputs), id(task.graph)], details={**task.details, **details})
        for task in tasks
    ]
