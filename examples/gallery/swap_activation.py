"""
Swap an activation on Cora
==========================

A two-layer GCN of PyG, once with ReLU and once with a graph-adaptive max. The module begins as the ReLU that it
replaces, so both curves start together. On Cora they also end together: in node classification on citations nothing
is gained, and nothing lost. Without the data set (``graphact data fetch``) a small random graph of communities
takes its place.
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

import graphact
from graphact.data import DataError, locate, read_planetoid

try:
    cora = read_planetoid(locate("planetoid", download=False), "cora", normalize_features=True)
    name, x, y, edge_index, (train, _, test) = "Cora", cora.x, cora.y, cora.edge_index, cora.split
except DataError:
    generator = torch.Generator().manual_seed(0)
    graph = graphact.Graph.stochastic_block_model([60] * 4, p=0.1, q=0.02, generator=generator)
    y = torch.arange(4).repeat_interleave(60)
    x = F.one_hot(y, 16) + 1.5 * torch.randn(240, 16, generator=generator)
    order = torch.randperm(240, generator=generator)
    name, edge_index, train, test = "a random graph", graph.to_edge_index()[0], order[:40], order[40:]

# %%
# The activation is one line; it is called with the graph, as a convolution is.


class GCN(torch.nn.Module):
    """Two convolutions with an activation between them."""

    def __init__(self, activation):
        super().__init__()
        self.first, self.activation = GCNConv(x.size(1), 16), activation
        self.second = GCNConv(16, int(y.max()) + 1)

    def forward(self, x, edge_index):
        x = F.dropout(x, 0.5, self.training)
        x = self.activation(self.first(x, edge_index), edge_index)
        return self.second(F.dropout(x, 0.5, self.training), edge_index)


def accuracies(activation):
    """Train for 60 epochs; the accuracy on the test nodes after each."""
    torch.manual_seed(0)
    model = GCN(activation)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    found = []
    for _ in range(60):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edge_index)[train], y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            found.append((model(x, edge_index)[test].argmax(1) == y[test]).float().mean().item())
    return found


curves = {
    "ReLU": accuracies(graphact.nn.ReLU()),
    "graph-adaptive max": accuracies(graphact.nn.GraphAdaptiveMax(features=16)),
}

# %%
for label, found in curves.items():
    plt.plot(range(1, 61), found, label=f"{label}: {found[-1]:.1%}")
plt.xlabel("epoch")
plt.ylabel("test accuracy")
plt.title(f"GCN on {name}, one seed")
plt.legend()
plt.show()
