"""Homophily of the graphs of node classification, by hand and against PyG."""

import importlib
import json

import pytest
import torch

from graphact.graph import Graph
from graphact_lab.data.node_sets import NodeData, read_nodes
from support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("graph_statistics")


def test_homophily_of_a_graph_by_hand(script):
    """Classes 0 0 1 1 and none; edges 0-1, 2-3 inside and 1-2 between, and one of the node without a class."""
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3, 1, 2, 3, 4], [1, 0, 3, 2, 2, 1, 4, 3]]), num_nodes=5)
    data = NodeData("by hand", torch.zeros(5, 1), torch.tensor([0, 0, 1, 1, 0]), torch.arange(5) < 4, graph)
    found = script.statistics_of(data)
    assert (found["nodes"], found["edges"], found["classes"]) == (5, 4, 2)
    assert found["homophily"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["adjusted_homophily"] == pytest.approx((2 / 3 - 1 / 2) / (1 - 1 / 2), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cora", "squirrel_filtered"])
def test_published_homophily_is_that_of_pyg(script, name, results, real_data):
    from torch_geometric.utils import homophily

    data = read_nodes(name, real_data)
    found = script.statistics_of(data)
    assert found == json.loads((results / "benchmarks" / "graphs.json").read_text())[name]
    assert found["homophily"] == pytest.approx(
        homophily(data.graph.to_edge_index()[0], data.y, method="edge"), abs=1e-4
    )
