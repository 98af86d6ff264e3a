"""Small tasks that can be learned in a fraction of a second, each drawn from a seed."""

import torch

from graphact import Graph
from graphact.training import Task


def make_graph(seed=0, sizes=(4, 4)):
    """A connected-looking graph of communities, normalized."""
    generator = torch.Generator().manual_seed(seed)
    return Graph.stochastic_block_model(list(sizes), 0.8, 0.3, generator=generator).normalize("spectral")


def make_task(graph=None, *, seed=0, samples=40, features=1, node=None, classes=0, dtype=torch.float32, **changes):
    """A task on a graph: the mean of the signal at all nodes, or a number or a class at one of them.

    Half of the samples are for training, a quarter each for validation and testing; ``changes`` are other fields.
    """
    graph = (make_graph() if graph is None else graph).to(dtype=dtype)
    inputs = torch.randn(samples, graph.num_nodes, features, generator=torch.Generator().manual_seed(seed)).to(dtype)
    means = inputs.mean((1, 2), keepdim=True) + inputs[..., :1] / 2
    targets = means.expand(-1, graph.num_nodes, 1).clone() if node is None else means[:, node, 0].clone()
    if classes:
        targets = targets.argsort().argsort() * classes // samples
    train, validation, test = torch.arange(samples).tensor_split([samples // 2, 3 * samples // 4])
    fields = {
        "name": "classes" if classes else "means",
        "graph": graph,
        "inputs": inputs,
        "targets": targets,
        "train": train,
        "validation": validation,
        "test": test,
        "node": node,
        "out_features": classes or 1,
        "loss": "cross_entropy" if classes else "mse",
        "metric": "accuracy" if classes else "rmse",
        "details": {},
    }
    return Task(**{**fields, **changes})


def make_tasks(count, *, graphs=1, at_node=True, **options):
    """Tasks on graphs that they share in turn, each with signals, and a node, of its own."""
    shared = [make_graph(seed).to(dtype=options.get("dtype", torch.float32)) for seed in range(graphs)]
    return [
        make_task(shared[number % graphs], seed=number, node=number if at_node else None, **options)
        for number in range(count)
    ]
