"""Tasks whose inputs are prepared by the nodes: what makes networks better than those of the paper."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from graphact._checks import check_choice
from graphact.graph import Graph
from graphact.tasks.local_estimate import with_local_estimate
from graphact.tasks.own_inputs import by_centrality, local_contrast
from graphact.tasks.task import Task

# The same for all splits, or from the training samples of each
OF_SIGNALS: dict[str, Callable[[Tensor, Graph], Tensor]] = {
    "local-contrast": local_contrast,
    "by-centrality": by_centrality,
}
OF_TASKS: dict[str, Callable[[Task], Task]] = {"local-estimate": with_local_estimate}
PREPARATIONS = ("none", *OF_SIGNALS, *OF_TASKS)


def prepared(tasks: Sequence[Task], preparation: str) -> list[Task]:
    """Tasks whose inputs nodes make of their signals, themselves and with their neighbours.

    - "none": the tasks as they are;
    - "local-contrast": see :func:`~graphact.tasks.own_inputs.local_contrast`;
    - "by-centrality": see :func:`~graphact.tasks.own_inputs.by_centrality`;
    - "local-estimate": see :func:`~graphact.tasks.with_local_estimate`.

    Tasks that share signals and graph share the prepared signals, too. Metrics stay in the units of the task.
    """
    check_choice("preparation", preparation, PREPARATIONS)
    if preparation in OF_TASKS:
        return [OF_TASKS[preparation](task) for task in tasks]
    if preparation == "none":
        return list(tasks)
    make, made = OF_SIGNALS[preparation], {}
    for task in tasks:
        key = id(task.inputs), id(task.graph)
        if key not in made:
            made[key] = make(task.inputs, task.graph)
    return [
        replace(
            task, inputs=made[id(task.inputs), id(task.graph)], details={**task.details, "preparation": preparation}
        )
        for task in tasks
    ]
