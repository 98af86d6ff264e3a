"""A script that a user runs under torchrun: read the parts, train with checkpoints, keep the parameters.

Usage: elastic_run.py PARTS OUT. Every process leaves its number in the file OUT/pid-RANK.
"""

import os
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

import graphact
from graphact.distributed import DistributedSettings, PartitionedGraph, connect, train


def slow_loss(outputs, targets):
    """Leaves time to be killed."""
    time.sleep(0.05)
    return (outputs - targets).square().sum()


def run(rank, parts, out):
    """Train on the parts with checkpoints and keep the parameters."""
    Path(out, f"pid-{rank}").write_text(str(os.getpid()))
    graph = PartitionedGraph.load(parts)
    torch.manual_seed(0)
    x = torch.randn(graph.total_nodes, 1, dtype=graph.dtype)
    model = graphact.nn.GCNN([1, 4, 4], order=2, activation="median-ga", hops=2, start="uniform").to(graph.dtype)
    settings = DistributedSettings(epochs=25, learning_rate=0.01, checkpoint_every=5)
    local = x[graph.nodes]
    losses = train(
        model, graph, local, local.abs(), loss=slow_loss, settings=settings, checkpoint=Path(out, "checkpoint")
    )
    if rank == 0:
        save_file({**model.state_dict(), "losses": torch.tensor(losses)}, Path(out, "trained.safetensors"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(connect(timeout=60)[0], sys.argv[1], sys.argv[2])
