"""Trained networks on graphs that lost links."""

import torch

from graphact.data import Task
from graphact.experiments.preparation import OF_SIGNALS
from graphact.experiments.protocol import Condition, TrainingJob, seed_of
from graphact.training import Fleet, StackedGraphs


def under_link_loss(job: TrainingJob, fleet: Fleet, plain: list[Task]) -> list[tuple[Condition, list[float]]]:
    """The test metric at every loss probability; see :class:`~graphact.experiments.experiment.Experiment`."""
    probabilities = job.protocol.loss_probabilities
    return [({"loss_probability": p}, lossy_metric(fleet, plain, p, job)) for p in probabilities]


def lossy_metric(fleet: Fleet, plain: list[Task], probability: float, job: TrainingJob) -> list[float]:
    """The test metric of each model, averaged over graphs that lost links; models on one graph lose the same ones.

    What nodes make of their signals, they then make with the links that are left.
    """
    total = torch.zeros(len(fleet), dtype=torch.float64)
    graphs = {id(task.graph): task.graph for task in plain}
    prepare = OF_SIGNALS.get(job.protocol.preparation)
    for realization in range(job.protocol.loss_realizations):
        thinned = {}
        for number, (key, graph) in enumerate(graphs.items()):
            generator = torch.Generator().manual_seed(seed_of("loss", job.seed, number, realization, probability))
            thin = graph.drop_edges(probability, generator=generator)
            thinned[key] = thin.to(fleet.seeds.device, fleet.inputs.dtype)
        stacked = StackedGraphs([thinned[id(task.graph)] for task in plain])
        inputs = None
        if prepare is not None:
            owners = [plain[number] for number in fleet.first_owners()]
            signals = [(task.inputs.to(fleet.inputs), thinned[id(task.graph)]) for task in owners]
            inputs = torch.stack([prepare(signal, graph) for signal, graph in signals])
        total += fleet.metric("test", stacked, inputs).double().cpu()
    return (total / job.protocol.loss_realizations).tolist()
