"""
Link scheduling
===============

Links of a wireless network that disturb each other must not send in the same slot. Each
link sends if its key is the largest around it. The classical key is the utility of the
link over one plus the number of links it disturbs. Here a network learns a better one:
two layers of an adaptive filter bank. With the exchange of keys, a schedule then takes
three rounds of messages.
"""

import matplotlib.pyplot as plt
import torch

from graphact_lab.experiments.scheduling.conflicts import draw_geometric, draw_random
from graphact_lab.experiments.scheduling.greedy_rules import (
    greedy,
    load,
    local_greedy,
    rule_key,
)
from graphact_lab.experiments.scheduling.keys import KeyFleet, train

# %%
# The loss is minus the expected load of a soft version of the rule "the largest key
# around it sends". No schedule has to be known, and every step draws fresh graphs.
fleet = KeyFleet("bank", layers=2, width=16, seeds=[0, 1, 2])
train(
    fleet,
    iterations=1,
    steps=300,
    rate=1e-2,
    graphs=8,
    nodes=100,
    seed=0,
    device="cpu",
)

# %%
# Both keys on 40 graphs of each of two kinds that training did not see. Bars are means
# over the graphs, relative to a centralised greedy that knows all utilities. One
# iteration of the classical rule takes one round, two take three. On random graphs, the
# kind of the training, the learned keys carry more in three rounds; on geometric ones
# the rule does.
generator = torch.Generator().manual_seed(1)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True, layout="constrained")
kinds = {"random graphs": draw_random, "geometric graphs": draw_geometric}
for axis, (title, draw) in zip(axes, kinds.items(), strict=True):
    conflicts = draw(40, 100, generator)
    utility = torch.rand(len(conflicts.member), generator=generator)
    rule = rule_key("w / (1 + d)", utility, conflicts.degree)
    keys = fleet(utility.expand(3, -1), conflicts)
    schedules = {
        "rule, 1 round": local_greedy(rule, utility > 0, conflicts, 1),
        "rule, 3 rounds": local_greedy(rule, utility > 0, conflicts, 2),
        "learned, 3 rounds": local_greedy(keys, keys > -torch.inf, conflicts, 1),
    }
    best = load(greedy(utility.log(), utility, conflicts), utility, conflicts)
    bars = {
        name: (load(sends, utility, conflicts) / best).mean().item()
        for name, sends in schedules.items()
    }
    axis.bar(bars.keys(), bars.values(), color=["#7d8590", "#1f2328", "#0072b2"])
    axis.set(title=title, ylim=(0, 1.15))
    axis.tick_params(axis="x", labelsize=8)
    for place, value in enumerate(bars.values()):
        axis.text(place, value + 0.02, f"{value:.3f}", ha="center")
axes[0].set_ylabel("load over the greedy's")
plt.show()
