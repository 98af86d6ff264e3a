"""
Graph classification with a DataLoader
======================================

Two nodes of each graph are hot. Are they neighbours (class 1) or not (class 0)? The
transform ``AttachGraph`` builds the graph of every sample, and a batch is one joined
``Graph``. As the transform of a data set it runs in the workers of the loader.
"""

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCN, global_max_pool

import graphact


def draw_sample(seed):
    """24 nodes, each joined with its three nearest, noise, and two hot nodes."""
    generator, label = torch.Generator().manual_seed(seed), seed % 2
    places = torch.rand(24, 2, generator=generator, dtype=torch.float64)
    edge_index = graphact.Graph.nearest_neighbors(places, 3).to_edge_index()[0]
    joined = torch.zeros(24, 24, dtype=torch.bool)
    joined[edge_index[0], edge_index[1]] = True
    pairs = (joined if label else ~joined).triu(1).nonzero()
    x = 0.2 * torch.randn(24, 1, generator=generator).abs()
    x[pairs[torch.randint(len(pairs), (), generator=generator)]] += 1
    return Data(x=x, edge_index=edge_index, y=torch.tensor([label]))


attach = graphact.pyg.AttachGraph(normalize="symmetric")
samples = [attach(draw_sample(seed)) for seed in range(900)]
train_loader = DataLoader(samples[:600], batch_size=60, shuffle=True)
test_loader = DataLoader(samples[600:], batch_size=300)

# %%
# PyG's ready models call ``act(x)``. ``PassGraph`` hands every activation inside the
# graph of the call, and ``PerLayer`` gives each layer parameters of its own.


class Classifier(torch.nn.Module):
    """PyG's GCN, the largest values of each graph, and a linear map."""

    def __init__(self, act):
        super().__init__()
        each_layer = graphact.pyg.PerLayer(act, layers=2)
        self.gnn = graphact.pyg.PassGraph(GCN(1, 16, 2, jk="cat", act=each_layer))
        self.readout = torch.nn.Linear(16, 2)

    def forward(self, batch):
        x = self.gnn(batch.x, batch.edge_index, graph=batch.graph)
        return self.readout(global_max_pool(x, batch.batch))


def accuracies(name, epochs=15, seed=0):
    """Train; the accuracy on graphs not seen before after each epoch, in percent."""
    torch.manual_seed(seed)
    model = Classifier(graphact.nn.make_activation(name, features=16))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    found = []
    for _ in range(epochs):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            F.cross_entropy(model(batch), batch.y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            (batch,) = test_loader
            right = (model(batch).argmax(1) == batch.y).float().mean().item()
        found.append(100 * right)
    return found


activations = ("identity", "relu", "max-ga", "max-l")
curves = {name: accuracies(name) for name in activations}

# %%
# ReLU is not the strongest baseline here: leaving the activation out does better. Over
# ten seeds the localized max had 3.7 ± 1.4 points more than ReLU (95 % interval,
# paired), and 0.4 ± 2.2 more than no activation: no certain gain. The graph-adaptive
# max had 1.2 ± 2.2 points less than no activation. The figure has one of the seeds.
styles = ("-.s", "k-o", "-^", "--v")
plt.figure(layout="constrained")
for (name, found), style in zip(curves.items(), styles, strict=True):
    label = "no activation" if name == "identity" else name
    label = f"{label}: {found[-1]:.0f} %"
    plt.plot(range(1, len(found) + 1), found, style, markersize=5, label=label)
plt.axhline(50, color="grey", linestyle=":", label="chance")
plt.xlabel("epoch")
plt.ylabel("test accuracy (%)")
plt.legend()
plt.show()
