"""The files that commands read: a graph and a model for it."""

import graphact
from support.graphs import random_graph


def write_network(folder, features=1, **options):
    """Write ``graph.npz`` of eight nodes and ``model.safetensors``; return the words that name them."""
    random_graph(8).save(folder / "graph.npz")
    model = graphact.nn.GCNN([features, 2], order=1, activation="max-ga", **options)
    graphact.save(model, folder / "model.safetensors")
    return [str(folder / "model.safetensors"), "--graph", str(folder / "graph.npz")]
