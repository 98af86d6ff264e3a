"""
Receptive field
===============

An activation with K hops reads the signal shifted 1, ..., K times. Which nodes can
change the output of one node? The gradient tells: through a max it flows to one
neighbour, and from there along the shift.
"""

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import LogNorm

import graphact

generator = torch.Generator().manual_seed(3)
places = torch.rand(60, 2, generator=generator, dtype=torch.float64)
graph = graphact.Graph.nearest_neighbors(places, 4).normalize("spectral")
graph = graph.to(dtype=torch.float32)
x = torch.randn(60, 1, generator=generator)
node = int((places - 0.5).norm(dim=1).argmin())
x[node] = 1.0  # where a ReLU lets through

# %%
# Four activations with all weights h at 1, and the gradient of the output at the ringed
# node, on a logarithmic scale. Hollow nodes have no influence.
activations = {
    "ReLU": graphact.nn.ReLU(),
    "max, 1 hop": graphact.nn.GraphAdaptiveMax(hops=1),
    "max, 3 hops": graphact.nn.GraphAdaptiveMax(hops=3),
    "kernel, 3 hops": graphact.nn.GraphAdaptiveKernel(hops=3, gamma=1.0),
}
figure, axes = plt.subplots(2, 2, figsize=(7.5, 6.5), layout="constrained")
lines = places.numpy()[graph.to_edge_index()[0].numpy()]
colours = {"norm": LogNorm(1e-3, 1), "cmap": "viridis_r", "edgecolors": "grey"}
for axis, (title, activation) in zip(axes.flat, activations.items(), strict=True):
    for name, parameter in activation.named_parameters():
        if name in ("beta", "weights"):
            torch.nn.init.ones_(parameter)
    signal = x.clone().requires_grad_()
    activation(signal, graph)[node].sum().backward()
    influence = signal.grad.abs().flatten()
    seen = influence > 0
    axis.plot(*lines.transpose(2, 0, 1), color="lightgrey", linewidth=0.7, zorder=0)
    axis.scatter(*places[~seen].T, s=30, facecolors="white", edgecolors="lightgrey")
    dots = axis.scatter(*places[seen].T, c=influence[seen], s=45, **colours)
    axis.scatter(*places[node], s=170, facecolors="none", edgecolors="crimson")
    axis.set_title(f"{title}: {int(seen.sum())} of {len(x)} nodes")
    axis.set_axis_off()
figure.colorbar(dots, ax=axes, shrink=0.6, extend="min", label="absolute gradient")
plt.show()
