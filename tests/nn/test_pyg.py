"""In PyG models: after convolutions, inside Sequential, on batches of many graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import ChebConv, GATConv, GCNConv, Sequential, global_mean_pool
from torch_geometric.utils import erdos_renyi_graph

from graphact import Graph, nn


def graphs(count=6, features=3):
    torch.manual_seed(1)
    made = []
    for size in range(4, 4 + count):
        edge_index = erdos_renyi_graph(size, 0.4)
        edge_weight = torch.rand(edge_index.size(1))
        x, y = torch.randn(size, features), torch.tensor([size % 2])
        made.append(Data(x=x, edge_index=edge_index, edge_weight=edge_weight, y=y))
    made.append(
        Data(
            x=torch.randn(2, features),
            edge_index=torch.empty(2, 0, dtype=torch.long),
            edge_weight=torch.empty(0),
            y=torch.tensor([0]),
        )
    )
    return made


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(3, 8), ChebConv(8, 8, K=2)
        self.activation = nn.GraphAdaptiveMedian(hops=2, features=8)
        self.last = nn.GraphAdaptiveMedian(hops=1)
        self.readout = torch.nn.Linear(8, 2)

    def forward(self, data):
        x = self.activation(self.first(data.x, data.edge_index, data.edge_weight), data.edge_index, data.edge_weight)
        x = self.last(self.second(x, data.edge_index, data.edge_weight), data.edge_index, data.edge_weight)
        batch = getattr(data, "batch", None)
        return x, self.readout(global_mean_pool(x, batch))


def test_a_batch_equals_each_graph_alone():
    model, data = Model().double(), graphs()
    data = [item.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor) for item in data]
    together, scores = model(Batch.from_data_list(data))
    alone = [model(item) for item in data]
    torch.testing.assert_close(together, torch.cat([nodes for nodes, _ in alone]))
    torch.testing.assert_close(scores, torch.cat([score for _, score in alone]))


def test_training_on_batches_of_different_graphs():
    torch.manual_seed(0)
    model, data = Model(), graphs(20)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(25):
        total = 0.0
        for batch in DataLoader(data, batch_size=7, shuffle=True):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch)[1], batch.y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_inside_sequential(name):
    data = graphs()[3]
    model = Sequential(
        "x, edge_index",
        [
            (GATConv(3, 6), "x, edge_index -> x"),
            (nn.make_activation(name, hops=1, features=6), "x, edge_index -> x"),
            (nn.GraphFilter(6, 4, order=2), "x, edge_index -> x"),
            (nn.make_activation(name), "x, edge_index -> x"),
            torch.nn.Linear(4, 2),
        ],
    )
    out = model(data.x, data.edge_index)
    assert out.shape == (data.num_nodes, 2)
    out.sum().backward()


@pytest.mark.parametrize("name", nn.ACTIVATIONS)
def test_edge_index_and_graph_give_the_same(name):
    data = graphs()[4]
    activation = nn.make_activation(name, hops=2)
    by_graph = activation(data.x, Graph.from_pyg(data))
    assert torch.equal(activation(data.x, data.edge_index, data.edge_weight), by_graph)
    static = torch.stack([data.x, data.x + 1])
    assert torch.equal(activation(static, data.edge_index, data.edge_weight)[0], by_graph)
