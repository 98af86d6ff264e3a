"""
Accelerate a PyG model
======================

``graphact.pyg.accelerate`` replaces PyG's ``SAGEConv``, ``PNAConv``, ``GINConv`` and
``GraphConv`` in place: the same parameters, the same values, and no message is ever
materialized. Nothing else in a program changes.
"""

import copy
import time

import matplotlib.pyplot as plt
import torch
from torch_geometric.nn import PNA, GraphSAGE
from torch_geometric.utils import degree

import graphact

torch.set_num_threads(1)  # so that processor time is the time of a step
generator = torch.Generator().manual_seed(0)
nodes, edges, width = 2_000, 20_000, 32
edge_index = torch.randint(nodes, (2, edges), generator=generator)
x = torch.randn(nodes, width, generator=generator)
counts = torch.bincount(degree(edge_index[1], nodes, dtype=torch.long))

torch.manual_seed(0)
scalers = {"aggregators": ["mean", "max", "min", "std"], "scalers": ["identity"]}
models = {
    "GraphSAGE, max": GraphSAGE(width, width, num_layers=2, aggr="max"),
    "GraphSAGE, median": GraphSAGE(width, width, num_layers=2, aggr="median"),
    "PNA, four functions": PNA(width, width, num_layers=2, deg=counts, **scalers),
}

# %%
# One line for each model; ``report`` says what was replaced, and why something was not.
accelerated = {
    name: graphact.pyg.accelerate(copy.deepcopy(model))
    for name, model in models.items()
}
for conv in graphact.pyg.report(accelerated["PNA, four functions"]):
    print(conv.name, conv.kind, "fused" if conv.is_fused else conv.reason)


# %%
# A step is a forward and a backward pass: processor time of one thread, the least of
# five steps.


def milliseconds(model):
    """The time of a step, after one that is not counted."""
    found = []
    for _ in range(6):
        model.zero_grad()
        start = time.process_time()
        model(x, edge_index).square().mean().backward()
        found.append(1e3 * (time.process_time() - start))
    return min(found[1:])


times = {}
for name, model in models.items():
    faster = accelerated[name]
    apart = (model(x, edge_index) - faster(x, edge_index)).abs().max().item()
    times[name] = milliseconds(model), milliseconds(faster)
    print(f"{name}: {times[name][0]:.0f} ms, then {times[name][1]:.0f} ms;", end=" ")
    print(f"largest difference {apart:.0e}")

# %%
figure, axis = plt.subplots(figsize=(7, 3.2), layout="constrained")
for place, (before, after) in enumerate(times.values()):
    axis.plot([after, before], [place, place], color="#c9ccd1", linewidth=6, zorder=0)
    axis.scatter(before, place, s=110, color="C1", label="" if place else "PyG")
    axis.scatter(after, place, s=110, color="C0", label="" if place else "accelerated")
    text = f"{before / after:.0f} times as fast"
    axis.annotate(text, (after * 1.15, place + 0.16), fontsize=10)
axis.set_yticks(range(len(times)), list(times))
axis.set(
    xscale="log",
    xlabel="milliseconds per step, one thread",
    ylim=(-0.4, len(times) - 0.4),
)
axis.xaxis.set_major_formatter("{x:g}")
axis.grid(axis="x")
axis.legend(loc="lower right")
plt.show()
