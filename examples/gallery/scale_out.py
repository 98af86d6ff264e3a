"""
One graph on two processes
==========================

A graph that no machine can hold is divided: each process has its own nodes and, before
a shift, receives the values next to them (its halo). The model is not rewritten, and
the gradient is that of one process. Two processes on this machine stand for two
machines.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import graphact
from graphact.distributed import assign_nodes, divide, write_partition

generator = torch.Generator().manual_seed(0)
places = torch.rand(400, 2, generator=generator, dtype=torch.float64)
graph = graphact.Graph.nearest_neighbors(places, 6).normalize("spectral")
graph = graph.to(dtype=torch.float32)

# %%
# What every process runs. Under ``torchrun`` it finds the others by itself; alone it is
# the only one.
PROGRAM = """
import json, sys, torch, graphact
from graphact.distributed import PartitionedGraph, DistributedSettings, connect, train

rank, processes = connect("cpu")
graph = PartitionedGraph.load(sys.argv[1])  # this process's share
torch.manual_seed(0)
x = torch.randn(400, 1)[graph.nodes]
model = graphact.nn.GCNN([1, 8], order=2, activation="max-ga", hops=2)
settings = DistributedSettings(epochs=30, learning_rate=0.02)
losses = train(model, graph, x, x.abs(), settings=settings)
if rank == 0:
    print(json.dumps(losses))
"""


def losses_with(processes, owner):
    """Divide the graph, train, and return the loss before each step."""
    with tempfile.TemporaryDirectory() as folder:
        parts, script = Path(folder, "parts"), Path(folder, "train.py")
        write_partition(divide(graph, owner, processes), parts, method="example")
        script.write_text(PROGRAM)
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
        torchrun = [*torchrun, str(processes)] if processes > 1 else []
        command = [sys.executable, *torchrun, str(script), str(parts)]
        options = {"capture_output": True, "text": True, "check": False}
        options["env"] = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, **options)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


halves, method = assign_nodes(graph, 2)
alone = losses_with(1, np.zeros_like(halves))
together = losses_with(2, halves)
apart = max(abs(a - b) for a, b in zip(alone, together, strict=True))
print(f"largest difference of the losses: {apart:.1e}")

# %%
source, target = graph.to_edge_index()[0].numpy()
cut = halves[source] != halves[target]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
for is_cut, colour in ((False, "lightgrey"), (True, "crimson")):
    chosen = cut == is_cut
    pairs = places.numpy()[np.stack([source[chosen], target[chosen]])]
    left.plot(pairs[..., 0], pairs[..., 1], color=colour, linewidth=0.6, zorder=0)
left.scatter(*places.numpy().T, c=halves, cmap="coolwarm", s=12)
left.set_title(f"{cut.mean():.1%} of the edges cross ({method})")
left.set_axis_off()
right.plot(alone, label="one process", linewidth=4, alpha=0.4)
right.plot(together, label="two processes", linestyle="--")
right.set(xlabel="step", ylabel="loss")
right.legend()
plt.show()
