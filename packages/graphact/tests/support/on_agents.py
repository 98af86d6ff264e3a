"""Models and graphs of the library for agents, as users bring them there: through files."""

import tempfile
from pathlib import Path

import graphact
import graphact_agents
from graphact_agents import Model, ShiftOperator, load_graph, load_model


def to_model(model):
    """Return a model of agents from one of the library; one of agents stays."""
    if isinstance(model, Model):
        return model
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        graphact.save(model, path)
        return load_model(path)


def to_operator(graph):
    """Return the shift operator of agents from a graph of the library; one of agents stays."""
    if isinstance(graph, ShiftOperator):
        return graph
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "graph.npz")
        return load_graph(Path(folder) / "graph.npz")


def deploy(model, graph, **options):
    """Return the deployments of a model and a graph of the library."""
    return graphact_agents.deploy(to_model(model), to_operator(graph), **options)


def split(model, graph, out, **options):
    """Write the folders of a model and a graph of the library."""
    return graphact_agents.split(to_model(model), to_operator(graph), out, **options)
