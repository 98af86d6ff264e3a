"""
Graph classification with a DataLoader
======================================

Does the sign at each node follow the two communities of its graph (class 1), or was it dealt at random (class 0)?
The transform ``AttachGraph`` builds the graph of every sample; a batch is one joined ``Graph``. Every
activation solves this problem, ReLU too; what is shown is how they are wired.
"""

import matplotlib.pyplot as plt
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_add_pool

import graphact


def draw_graph(seed):
    """Two communities of eight nodes, with signs and noise."""
    generator = torch.Generator().manual_seed(seed)
    graph = graphact.Graph.stochastic_block_model([8, 8], p=0.5, q=0.1, generator=generator)
    sign, label = torch.tensor([1.0, -1.0]).repeat_interleave(8), seed % 2
    if label == 0:
        sign = sign[torch.randperm(16, generator=generator)]
    x = sign[:, None] + 0.5 * torch.randn(16, 4, generator=generator)
    return Data(x=x, edge_index=graph.to_edge_index()[0], y=torch.tensor([label]))


attach = graphact.data.AttachGraph(normalize="symmetric")
graphs = [attach(draw_graph(seed)) for seed in range(500)]
train_loader = DataLoader(graphs[:400], batch_size=32, shuffle=True)
test_loader = DataLoader(graphs[400:], batch_size=100)

# %%
# PyG's ready models call ``act(x)``. ``PassGraph`` hands every activation inside the graph of the call, and
# ``PerLayer`` gives each layer parameters of its own.


class Classifier(torch.nn.Module):
    """PyG's GCN, a sum over the nodes of each graph, and a linear map."""

    def __init__(self, act):
        super().__init__()
        self.gnn = graphact.nn.PassGraph(GCN(4, 16, 2, jk="cat", act=graphact.nn.PerLayer(act, 2)))
        self.readout = torch.nn.Linear(16, 2)

    def forward(self, batch):
        x = self.gnn(batch.x, batch.edge_index, graph=batch.graph)
        return self.readout(global_add_pool(x.square(), batch.batch))


def accuracies(act, epochs=5):
    """Train; the accuracy on graphs not seen before after each epoch."""
    torch.manual_seed(0)
    model = Classifier(act)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    found = []
    for _ in range(epochs):
        for batch in train_loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
        with torch.no_grad():
            (batch,) = test_loader
            found.append((model(batch).argmax(1) == batch.y).float().mean().item())
    return found


curves = {name: accuracies(graphact.nn.make_activation(name, features=16)) for name in ("max-ga", "median-ga")}
curves["relu"] = accuracies(graphact.nn.ReLU())

# %%
plt.figure(layout="constrained")
for name, found in curves.items():
    plt.plot(range(1, len(found) + 1), found, marker="o", label=f"{name}: {found[-1]:.0%}")
plt.axhline(0.5, color="grey", linestyle=":", label="chance")
plt.xticks(range(1, 6))
plt.xlabel("epoch")
plt.ylabel("test accuracy")
plt.legend()
plt.show()
