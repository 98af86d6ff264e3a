"""Models and graphs of the library for agents, as users bring them there: through files."""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, save_npz

import graphact
import graphact_agents
from graphact_agents import Model, ShiftOperator, load_graph, load_model, save_model
from support.places import ROOT

sys.path.append(str(ROOT / "examples" / "agents"))  # where this is imported by a script
from local_agents import deploy_locally


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


def split(model, graph, out, addresses=None, **settings):
    """Write the folders of a model and a graph of the library, as an operator does, and return them.

    Certificates are made, too, where they can be: tests choose the transport when they run the nodes.
    """
    settings = ({"transport": "zenoh"} if find_spec("cryptography") else {}) | settings
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "model.safetensors", Path(folder) / "graph.npz"
        save_model(to_model(model), files[0])
        save_operator(to_operator(graph), files[1])
        return deploy_locally(*files, Path(out), addresses, **settings)


def save_operator(operator, path):
    """Write a shift operator as a graph file."""
    row = np.repeat(np.arange(operator.num_nodes), np.diff(operator.rowptr))
    own = np.flatnonzero(operator.diagonal)
    row, col = np.concatenate([row, own]), np.concatenate([operator.col, own])
    data = np.concatenate([operator.weight, operator.diagonal[own]])
    matrix = coo_array((data, (row, col)), shape=(operator.num_nodes,) * 2)
    save_npz(path, matrix.tocsr())
