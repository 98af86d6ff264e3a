"""
Adaptive filter banks: more from the same rounds
================================================

Something started at one node of a network and has spread since. In which of four
communities? One node must say so, from what reaches it in a few rounds of messages. A
linear filter bank sums what neighbours send; an adaptive one also forms the largest and
the smallest of the same values, without a further message.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from graphact.nn import GCNN
from graphact.training import Fleet, TrainingSettings
from graphact_lab.tasks import source_localization_tasks

tasks = source_localization_tasks(graphs=3, splits=1, nodes=4)
kinds = {
    "linear bank": {"bank": "linear"},
    "adaptive bank": {"bank": "adaptive", "ops": ["max", "min"]},
}

# %%
# A layer of order 1 is a round, so networks of one, two and four layers spend as many.
# All twelve networks of a setting are trained at once, as a fleet.
rounds = (1, 2, 4)
found = {name: [] for name in kinds}
for name, bank in kinds.items():
    for count in rounds:
        torch.manual_seed(0)
        shape = {"order": 1, "activation": "gelu", "bias": True, "out_features": 4}
        shape["residual"] = count > 2
        models = [GCNN([1, *[8] * count], **shape, **bank) for _ in tasks]
        settings = TrainingSettings(epochs=20, learning_rate=0.02)
        found[name].append(np.array(Fleet(models, tasks).train(settings).test))
    print(f"{name}: {', '.join(f'{each.mean():.0f} %' for each in found[name])}")

# %%
# Left: a signal some steps after its start at the ringed node, on the first of the
# graphs. Right: short training of few networks, so the marks of single networks count
# more than the lines; intervals over more graphs are on the page of results.
graph, signals = tasks[0].graph, tasks[0].inputs[..., 0]
signal, source = signals[3], int(signals[0].argmax())
corner = np.pi / 4 + np.pi / 2 * (np.arange(40) // 10)
turn = 2 * np.pi * (np.arange(40) % 10) / 10
x, y = (2.2 * side(corner) + side(turn) for side in (np.cos, np.sin))
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for a, b in graph.to_edge_index()[0].T.tolist():
    left.plot(x[[a, b]], y[[a, b]], color="#d5d9de", linewidth=0.5, zorder=0)
left.scatter(x, y, c=signal, cmap="magma_r", s=70, edgecolors="grey")
ring = {"facecolors": "none", "edgecolors": "#0072b2", "linewidths": 2.5}
left.scatter(x[source], y[source], s=230, **ring)
left.set_title("where did it start?")
left.set_axis_off()
for (name, runs), offset in zip(found.items(), (-0.05, 0.05), strict=True):
    (line,) = right.plot(rounds, [each.mean() for each in runs], "o-", label=name)
    for count, each in zip(rounds, runs, strict=True):
        beside = np.full(len(each), count + offset)
        right.scatter(beside, each, s=10, alpha=0.5, color=line.get_color())
right.axhline(25, color="grey", linestyle=":", label="chance")
right.set(xlabel="rounds of messages", ylabel="test accuracy (%)", xticks=rounds)
right.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0))
plt.show()
