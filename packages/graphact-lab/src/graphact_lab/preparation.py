"""Preparation of signals by nodes, before a network sees them, by name."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graphact._checks import check_choice
from graphact._lazy import Imported

if TYPE_CHECKING:
    from torch import Tensor

    from graphact.graph import Graph
    from graphact.training import Task

# Functions of signals and graph: the same for all splits, and repeated with the links that are left when some are lost
SIGNAL_PREPARATIONS: "dict[str, Callable[[Tensor, Graph], Tensor]]" = {
    "local-contrast": Imported("graphact_lab.data.diffused_sources:local_contrast"),
    "by-centrality": Imported("graphact_lab.experiments.consensus.task:by_centrality"),
}
# Functions of a task, which learn from its training samples
TASK_PREPARATIONS: "dict[str, Callable[[Task], Task]]" = {
    "local-estimate": Imported("graphact_lab.experiments.denoising.task:with_local_estimate")
}
PREPARATIONS = ("none", *SIGNAL_PREPARATIONS, *TASK_PREPARATIONS)


def shifted_by(tasks: "Sequence[Task]", shift: str) -> "list[Task]":
    r"""Tasks whose networks shift by another operator; signals, targets and splits stay.

    - "adjacency": the tasks as they are, with :math:`A / \lambda_{max}(A)`;
    - "laplacian": :math:`L / \lambda_{max}(L)` with the Laplacian L of the same graph, eigenvalues in [0, 1];
    - "translated": :math:`2 L / \lambda_{max}(L) - I`, the Laplacian scaled and translated so that its eigenvalues fill
      [-1, 1], as in Chebyshev filters (Defferrard et al. 2016).
    """
    import torch

    from graphact.graph import Graph

    if shift == "adjacency":
        return list(tasks)

    def changed(graph: "Graph") -> "Graph":
        laplacian = graph.to(dtype=torch.float64).normalize("laplacian").normalize("spectral")
        if shift == "translated":
            laplacian = Graph.from_dense(2 * laplacian.to_dense() - torch.eye(graph.num_nodes, dtype=torch.float64))
        return laplacian.to(dtype=graph.weight.dtype)

    made = {id(task.graph): changed(task.graph) for task in tasks}
    return [replace(task, graph=made[id(task.graph)]) for task in tasks]


def prepared(tasks: "Sequence[Task]", preparation: str) -> "list[Task]":
    """Tasks whose inputs nodes make of their signals, themselves and with their neighbours.

    - "none": the tasks as they are;
    - "local-contrast": see :func:`~graphact_lab.data.diffused_sources.local_contrast`;
    - "by-centrality": see :func:`~graphact_lab.experiments.consensus.task.by_centrality`;
    - "local-estimate": see :func:`~graphact_lab.tasks.with_local_estimate`.

    Tasks that share signals and graph share the prepared signals, too. Metrics stay in the units of the task.
    """
    check_choice("preparation", preparation, PREPARATIONS)
    if preparation == "none":
        return list(tasks)
    if preparation in TASK_PREPARATIONS:
        return [TASK_PREPARATIONS[preparation](task) for task in tasks]
    distinct = {(id(task.inputs), id(task.graph)): task for task in tasks}
    made = {key: SIGNAL_PREPARATIONS[preparation](task.inputs, task.graph) for key, task in distinct.items()}
    details = {"preparation": preparation}
    return [
        replace(task, inputs=made[id(task.inputs), id(task.graph)], details={**task.details, **details})
        for task in tasks
    ]
