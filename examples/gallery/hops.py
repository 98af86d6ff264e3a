"""
Who is heard
============

An activation with K hops looks at the signal shifted 1, ..., K times. Which nodes decide the output of one node?
The gradient tells: through a max it flows to one neighbour, and from there along the shift.
"""

import matplotlib.pyplot as plt
import torch

import graphact

generator = torch.Generator().manual_seed(3)
places = torch.rand(40, 2, generator=generator, dtype=torch.float64)
graph = graphact.Graph.nearest_neighbors(places, 3).normalize("spectral").to(dtype=torch.float32)
x = torch.randn(40, 1, generator=generator)
node = int((places - 0.5).norm(dim=1).argmin())
x[node] = 1.0  # where a ReLU lets through

# %%
# Three activations with all weights h at 1, and the gradient of the output at the marked node.
activations = {
    "ReLU": graphact.nn.ReLU(),
    "max, 1 hop": graphact.nn.GraphAdaptiveMax(hops=1),
    "max, 3 hops": graphact.nn.GraphAdaptiveMax(hops=3),
    "kernel, 3 hops": graphact.nn.GraphAdaptiveKernel(hops=3, gamma=1.0),
}
figure, axes = plt.subplots(2, 2, figsize=(8, 7), layout="constrained")
source, target = graph.to_edge_index()[0]
lines = places.numpy()[torch.stack([source, target]).numpy()]
for axis, (title, activation) in zip(axes.flat, activations.items(), strict=True):
    for name, parameter in activation.named_parameters():
        torch.nn.init.constant_(parameter, 1.0 if name in ("beta", "weights") else parameter.item())
    signal = x.clone().requires_grad_()
    activation(signal, graph)[node].sum().backward()
    influence = signal.grad.abs().flatten()
    axis.plot(lines[..., 0], lines[..., 1], color="lightgrey", linewidth=0.7, zorder=0)
    dots = axis.scatter(*places.T, c=influence, s=40, cmap="Reds", edgecolors="grey", linewidths=0.5, vmin=0, vmax=1)
    axis.scatter(*places[node], s=160, facecolors="none", edgecolors="royalblue", linewidths=2)
    axis.set_title(f"{title}: {int((influence > 0).sum())} heard")
    axis.set_axis_off()
figure.colorbar(dots, ax=axes, shrink=0.6, label="absolute gradient")
plt.show()
