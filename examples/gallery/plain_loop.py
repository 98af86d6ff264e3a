"""
A plain training loop
=====================

No PyG, no Lightning: torch and a ``Graph``. The target of every node is the largest
value among itself and its neighbours. The localized max is made for it. The
graph-adaptive one reads shifted values, sums in which single neighbours are no longer
seen, and does no better here than ReLU: an activation must fit the problem.
"""

import matplotlib.pyplot as plt
import torch

import graphact

generator = torch.Generator().manual_seed(0)
places = torch.rand(60, 2, generator=generator, dtype=torch.float64)
raw = graphact.Graph.nearest_neighbors(places, 4)
graph = raw.normalize("spectral").to(dtype=torch.float32)
x = torch.randn(300, 60, 1, generator=generator)
y = graphact.functional.neighborhood_max(x, graph, closed=True)

# %%
curves = {}
for activation in ("relu", "median-ga", "max-ga", "max-l"):
    torch.manual_seed(0)
    shape = {"order": 1, "activation": activation, "out_features": 1, "closed": True}
    model = graphact.nn.GCNN([1, 8], bias=True, **shape)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(80):
        optimizer.zero_grad()
        loss = (model(x[:200], graph) - y[:200]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        error = (model(x[200:], graph) - y[200:]).square().mean().sqrt().item()
    curves[f"{activation}: test RMSE {error:.2f}"] = losses

# %%
plt.figure(layout="constrained")
for (label, losses), style in zip(curves.items(), ("k-", "-.", "--", "-"), strict=True):
    plt.plot(losses, style, label=label)
plt.xlabel("step")
plt.ylabel("training loss, mean squared error")
plt.ylim(0, 1)
plt.legend()
plt.show()
