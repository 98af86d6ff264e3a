"""One of two processes, of which the second fails in its second epoch. Usage: ends_differently.py RANK DIR."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist

import graphact
from graphact.distributed import DistributedSettings, PartitionedGraph, PartitionError, train
from support.graphs import random_graph


def main(rank, directory):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    graph = PartitionedGraph.from_graph(random_graph(12).normalize("spectral"))
    model = graphact.nn.GCNN([1, 2], order=1, activation="max-ga").double()
    x, calls = torch.ones(graph.num_nodes, 1, dtype=torch.float64), []

    def loss(outputs, targets):
        calls.append(outputs)
        if rank == 1 and len(calls) == 2:
            raise ValueError("this process has had enough")
        return (outputs - targets).square().sum()

    try:
        train(model, graph, x, x, settings=DistributedSettings(epochs=4 + rank))
    except PartitionError as error:
        sys.stderr.write(f"{error}\n")
    checkpoint = directory / "checkpoint"
    train(model, graph, x, x, loss=loss, settings=DistributedSettings(epochs=4), checkpoint=checkpoint)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
