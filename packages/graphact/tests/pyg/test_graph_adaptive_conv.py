"""The adaptive filter bank under PyG's names."""

import pytest
import torch

from graphact import Graph, nn
from graphact.pyg import GraphAdaptiveConv
from support.graphs import random_graph

EDGE_INDEX, WEIGHT = random_graph(dtype=torch.float32).to_edge_index()
OPTIONS = {"K": 2, "aggr": ["max", "std"]}


def test_it_is_the_bank_on_the_normalized_graph():
    conv, x = GraphAdaptiveConv(3, 4, **OPTIONS), torch.randn(2, 12, 3)
    bank = nn.AdaptiveFilterBank(3, 4, 2, ops=["max", "std"])
    bank.load_state_dict(conv.state_dict())
    graph = Graph.from_edge_index(EDGE_INDEX, WEIGHT, 12)
    torch.testing.assert_close(conv(x, EDGE_INDEX, WEIGHT), bank(x, graph.normalize("symmetric")))
    raw = GraphAdaptiveConv(3, 4, **OPTIONS, normalize=False)
    raw.load_state_dict(conv.state_dict())
    torch.testing.assert_close(raw(x, EDGE_INDEX, WEIGHT), bank(x, graph))
    assert [layer.exchanges for layer in conv.layers()] == [2]
    assert (conv.in_channels, conv.out_channels) == (3, 4)
    assert GraphAdaptiveConv(**conv.config()).config() == conv.config()


def test_it_stands_in_models_of_pyg():
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    parts = [(GraphAdaptiveConv(3, 8, aggr="max"), "x, edge_index -> x"), torch.nn.ReLU(inplace=False)]
    model = pyg.Sequential("x, edge_index", [*parts, (GraphAdaptiveConv(8, 2), "x, edge_index -> x")])
    x = torch.randn(12, 3)
    first, _, last = (model[number] for number in range(3))
    graph = Graph.from_edge_index(EDGE_INDEX, num_nodes=12).normalize("symmetric")
    expected = last(torch.relu(first(x, graph)), graph)
    torch.testing.assert_close(model(x, EDGE_INDEX), expected)


def test_bad_arguments():
    with pytest.raises(ValueError, match="op must be one of .* got 'maximum'"):
        GraphAdaptiveConv(3, 4, aggr="maximum")
    with pytest.raises(ValueError, match="order must be at least 1"):
        GraphAdaptiveConv(3, 4, K=0)
