"""One of three processes whose gradients ``graphact.distributed.replicate`` sums. Usage: replicated.py RANK DIR.

Processes 0 and 1 train in a group of their own, too. What each finds goes to DIR/replicated-RANK.json.
"""

import copy
import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import graphact
from graphact.distributed import PartitionedGraph, disconnect, replicate
from graphact.distributed.process_group import gradient_group
from graphact.nn import GCNN
from support.tolerances import TOLERANCE

EDGES = ((0, 1), (1, 2), (2, 3), (2, 4))
# Process 0 holds nodes that need no other process, process 1 none of them, process 2 nothing at all
OWNERS = {"no node": [0, 0, 0, 1, 1, 0], "three": [0, 0, 2, 1, 1, 0], "no interior": [0, 0, 0, 1, 1, 0]}


class InPass(torch.nn.Module):
    """A parameter that a pass over the neighbours uses: its gradient is ready while values of the halo travel."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([0.5], dtype=torch.float64))

    def forward(self, x, graph):
        return graph.one_hop(x, lambda y, local: (graphact.functional.shift(y, local) * self.scale,))[0]


class WideInPass(torch.nn.Module):
    """The same with a layer before it, and a bucket of its own."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(1, 400).double()
        self.weight = torch.nn.Parameter(torch.randn(400, 400, dtype=torch.float64) / 20)

    def forward(self, x, graph):
        y = self.linear(x)
        return graph.one_hop(y, lambda z, local: (graphact.functional.shift(z, local) @ self.weight,))[0]


def models():
    """Networks, some of them of several buckets (the first of DistributedDataParallel has a mebibyte)."""
    options = {"order": 2, "start": "uniform", "gamma": 0.7, "learn_gamma": True}
    torch.manual_seed(0)
    yield "in a pass", InPass()
    yield "wide, in a pass", WideInPass()
    for name, hops in (("kernel-ga", 1), ("max-l", 2), ("median-ga", 2)):
        yield name, GCNN([1, 3, 2], activation=name, hops=hops, **options).double()
    yield "several buckets", GCNN([1, 300, 300], activation="kernel-ga", **options).double()


def distance(model, whole, part, group):
    """Measure how far summed gradients are from those of the whole graph, in three steps; count the buckets."""
    x = torch.randn(6, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone, replicated, largest = copy.deepcopy(model), replicate(model, group), 0.0
    alone(x.clone().requires_grad_(), whole).square().sum().backward()
    for _ in range(3):  # buckets are rearranged after the first
        replicated.zero_grad()
        replicated(x[part.nodes].requires_grad_(), part).square().sum().backward()
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            scale = theirs.grad.abs().max().clamp_min(1e-12)
            largest = max(largest, float((ours.grad - theirs.grad).abs().max() / scale))
    buckets = replicated._get_ddp_logging_data().get("rebuilt_bucket_sizes", "").split(",")
    return largest, len(buckets)


def main(rank, directory):
    torch.set_num_threads(1)
    limit = timedelta(seconds=120)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=3, timeout=limit)
    dense = torch.zeros(6, 6, dtype=torch.float64)
    for i, j in EDGES:
        dense[i, j] = dense[j, i] = 0.4
    whole, pair, found = graphact.Graph.from_dense(dense), dist.new_group([0, 1]), {}
    for name, owner in OWNERS.items():
        group = pair if name == "no interior" else None
        if group is not None and rank == 2:
            continue
        part = PartitionedGraph.from_graph(whole, torch.tensor(owner), group=group)
        for title, model in models():
            found[f"{name}, {title}"] = distance(model, whole, part, group)
    own = gradient_group(None)
    assert own is gradient_group(None), "a group for each call would use up the sockets"
    assert own is not dist.group.WORLD
    found["timeout"] = own._get_backend(torch.device("cpu")).options._timeout == limit
    found["tolerance"] = TOLERANCE[torch.float64]
    Path(directory, f"replicated-{rank}.json").write_text(json.dumps(found))
    disconnect()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
