"""
One cell of the paper
=====================

Table 1 of the paper, source localization with 8 features: graph-adaptive max with two hops. A signal that started
in one of four communities has diffused over the graph; one node must say where it began. The paper averages 400
networks of 400 epochs; this page trains 8 of 40 epochs, so it is not yet where the paper is. All of it is one
command: ``graphact run source-localization --preset paper --protocol converged --device cuda``.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from graphact.nn import GCNN
from graphact.tasks import source_localization_tasks
from graphact.training import Fleet, TrainingSettings

PAPER = 73.9, 6.8  # mean and standard deviation in Table 1
tasks = source_localization_tasks(graphs=2, splits=1, nodes=4)

# %%
torch.manual_seed(0)
settings = {"order": 4, "hops": 2, "out_features": 4, "bias": True, "per_feature": False, "start": "uniform"}
fleet = Fleet([GCNN([1, 8, 8], activation="max-ga", **settings) for _ in tasks], tasks)
losses = []
result = fleet.train(TrainingSettings(epochs=40, learning_rate=0.02), progress=lambda *epoch: losses.append(epoch[-1]))
ours = np.array(result.test)
print(f"{ours.mean():.1f} ± {ours.std():.1f} % (the paper: {PAPER[0]} ± {PAPER[1]} %)")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(np.array([np.mean(loss) for loss in losses]))
left.set(xlabel="epoch", ylabel="mean training loss")
right.bar(["8 networks, 40 epochs", "the paper"], [ours.mean(), PAPER[0]], yerr=[ours.std(), PAPER[1]], capsize=6)
right.axhline(25, color="grey", linestyle=":", label="chance")
right.set(ylabel="test accuracy, %", ylim=(0, 100))
right.legend()
plt.show()
