"""
A fleet of models
=================

One network tells little: accuracy depends on the graph, the split, the node that answers. A fleet trains many
models of one shape as one batch, each exactly as if it were alone. Here 40; with ``GRAPHS, SPLITS = 10, 10`` they
are the 400 of a cell of the paper's Table 1, which this number of epochs trains in about a minute on two cores.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import torch

from graphact.nn import GCNN
from graphact.tasks import source_localization_tasks
from graphact.training import Fleet, TrainingSettings

GRAPHS, SPLITS = 5, 2
tasks = source_localization_tasks(graphs=GRAPHS, splits=SPLITS, nodes=4)

# %%
start = time.perf_counter()
results = {}
for activation in ("relu", "max-ga"):
    torch.manual_seed(0)
    models = [GCNN([1, 8], order=4, activation=activation, hops=2, out_features=4, bias=True) for _ in tasks]
    fleet = Fleet(models, tasks)
    results[activation] = np.array(fleet.train(TrainingSettings(epochs=20, learning_rate=0.02)).test)
print(f"{2 * len(tasks)} networks in {time.perf_counter() - start:.0f} s, computed {fleet.way}")

# %%
# The same tasks for both: compare in pairs. The spread between graphs and nodes is larger than the difference.
difference = results["max-ga"] - results["relu"]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for activation, accuracy in results.items():
    left.hist(accuracy, bins=np.arange(0, 101, 5), alpha=0.6, label=f"{activation}: {accuracy.mean():.1f} %")
left.set(xlabel="test accuracy, %", ylabel="networks")
left.legend()
right.axvline(0, color="grey")
right.hist(difference, bins=np.arange(-30, 31, 5))
right.set(xlabel="max-ga minus relu, points", title=f"mean {difference.mean():+.1f}")
plt.show()
