"""
A fleet of models
=================

One network tells little: accuracy depends on the graph, the split, the node that is
read. A fleet trains many models of one shape as one batch, each exactly as if it were
alone. Here 40; with ``GRAPHS, SPLITS = 10, 10`` they are the 400 of an entry of the
paper's Table 1, which this number of epochs trains in about a minute on two cores.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
import torch

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings
from graphact_lab.tasks import source_localization_tasks

GRAPHS, SPLITS = 5, 2
tasks = source_localization_tasks(graphs=GRAPHS, splits=SPLITS, nodes=4)

# %%
start = time.perf_counter()
results = {}
for activation in ("prelu", "max-ga"):
    torch.manual_seed(0)
    shape = {"order": 4, "hops": 2, "out_features": 4, "bias": True}
    models = [GCNN([1, 8], activation=activation, **shape) for _ in tasks]
    fleet = Fleet(models, tasks)
    trained = fleet.train(TrainingSettings(epochs=20, learning_rate=0.02))
    results[activation] = np.array(trained.test)
seconds = time.perf_counter() - start
print(f"{2 * len(tasks)} networks in {seconds:.0f} s, computed {fleet.strategy}")

# %%
# PReLU is the best pointwise activation in this problem, and so the one to compare
# with. Both have the same tasks: compare in pairs. Networks on one graph are alike, so
# the graphs are what an interval counts; five of them leave a wide one.


def mean_and_interval(values):
    """The mean, and half of its 95 % interval over graphs (Student's t)."""
    means = values.reshape(GRAPHS, -1).mean(1)
    margin = scipy.stats.t.ppf(0.975, GRAPHS - 1) * scipy.stats.sem(means)
    return f"{means.mean():.1f} ± {margin:.1f}"


difference = results["max-ga"] - results["prelu"]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for (activation, accuracy), look in zip(results.items(), ("-", "--"), strict=True):
    label = f"{activation}: {mean_and_interval(accuracy)} %"
    outline = {"histtype": "step", "linewidth": 2, "linestyle": look}
    left.hist(accuracy, bins=np.arange(0, 101, 5), label=label, **outline)
left.set(xlabel="test accuracy (%)", ylabel="networks", xlim=(10, 90))
left.set_ylim(top=1.35 * left.get_ylim()[1])  # room for the legend
left.legend(loc="upper left")
right.axvline(0, color="grey", linewidth=1)
right.hist(difference, bins=np.arange(-30, 31, 5), histtype="step", linewidth=2)
right.set(xlabel="max-ga minus prelu (points)", ylabel="pairs of networks")
right.set_title(f"mean {mean_and_interval(difference)} (95 % interval)")
plt.show()
