"""Model and graph files for agents, which know nothing else of the library."""

import sys
import tempfile
from pathlib import Path

import graphact
import graphact_agents as agents

sys.path.append(str(Path(__file__).parents[1] / "examples" / "agents"))
from local_agents import deploy_locally


def write_files(model, graph, folder):
    """Write a model and a graph to a folder, and return their files."""
    files = Path(folder) / "model.safetensors", Path(folder) / "graph.npz"
    graphact.save(model, files[0])
    graph.save(files[1])
    return files


def write_nodes(model, graph, folder, **settings):
    """Write the folders of nodes on free ports of this machine, and return them."""
    return deploy_locally(*write_files(model, graph, folder), Path(folder) / "nodes", **settings)


def deploy(model, graph):
    """Return the deployments of a model and a graph of the library."""
    with tempfile.TemporaryDirectory() as folder:
        return agents.deploy(*write_files(model, graph, folder))
