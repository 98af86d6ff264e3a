"""
Lost links
==========

Nodes agree on the mean of their values (the paper's consensus) while links fail. Networks are trained on the whole
graph and tested on graphs that have lost some links: how gracefully does each activation degrade?
"""

import matplotlib.pyplot as plt
import torch

import graphact
from graphact.data import metric_of
from graphact.tasks import consensus_tasks
from graphact.training import TrainingSettings, fit

(task,) = consensus_tasks(graphs=1, splits=1, communities=3, community_size=10)
share = [0.0, 0.05, 0.1, 0.15, 0.2]


def errors(activation):
    """Train on the whole graph; the error with each share of the links lost, on average over five losses."""
    torch.manual_seed(0)
    model = graphact.nn.GCNN([1, 8], order=5, activation=activation, hops=1)
    fit(model, task, TrainingSettings(epochs=12, learning_rate=0.01))
    generator = torch.Generator().manual_seed(1)
    x, y = task.inputs[task.test], task.targets[task.test]
    with torch.no_grad():
        lossy = [[task.graph.drop_edges(p, generator=generator) for _ in range(5)] for p in share]
        return [sum(metric_of("rmse", model(x, graph), y).item() for graph in each) / 5 for each in lossy]


# %%
plt.figure(layout="constrained")
for name in ("relu", "max-ga", "median-ga", "kernel-ga"):
    plt.plot([100 * p for p in share], errors(name), marker="o", label=name)
spread = task.targets[task.test].square().mean().sqrt()
plt.axhline(spread, color="grey", linestyle=":", label="answering 0")
plt.xlabel("lost links, %")
plt.ylabel("RMSE")
plt.ylim(bottom=0)
plt.legend()
plt.show()
