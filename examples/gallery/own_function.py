"""
Your own neighbourhood function
===============================

Any function of the neighbours' values can be an activation. Here it is their *spread*, the largest minus the
smallest: large where a signal changes quickly from node to node, that is, at an edge. Written for ``xp``, which is
torch or NumPy, it also runs on agents.
"""

import matplotlib.pyplot as plt
import torch

import graphact
from graphact.operations import Operation, register_operation


def spread(neighbors, xp):
    """Largest minus smallest value of the neighbours, ``(..., neighbours, F)`` to ``(..., F)``."""
    return xp.amax(neighbors, -2) - xp.amin(neighbors, -2)


register_operation(Operation("gallery-spread", spread))

# %%
# A grid of 20 x 20 pixels, each connected with the pixels beside it, and a picture with a step along a circle.
side = 20
row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
number = row * side + column
right = torch.stack([number[:, :-1].flatten(), number[:, 1:].flatten()])
down = torch.stack([number[:-1].flatten(), number[1:].flatten()])
edges = torch.cat([right, down], 1)
grid = graphact.Graph.from_edge_index(torch.cat([edges, edges.flip(0)], 1), num_nodes=side**2).normalize("spectral")

inside = ((row - 9.5) ** 2 + (column - 9.5) ** 2 < 36).float()
generator = torch.Generator().manual_seed(0)
picture = (inside + 0.15 * torch.randn(side, side, generator=generator)).reshape(-1, 1)

# %%
# ``beta`` weighs the ReLU, ``weights`` the hops; training would find them.
activation = graphact.nn.GraphAdaptive("gallery-spread")
with torch.no_grad():
    activation.beta.fill_(0)
    activation.weights.fill_(1)
    outline = activation(picture, grid)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
for axis, values, title in zip(axes, (picture, outline), ("signal", "spread of the neighbours"), strict=True):
    axis.imshow(values.reshape(side, side), cmap="magma")
    axis.set_title(title)
    axis.set_axis_off()
plt.show()

# %%
# The same function on one agent a pixel, by messages between neighbours:
answer = graphact.agents.simulate_inference(graphact.agents.deploy(activation, grid), picture[None].numpy())
print(f"largest difference: {abs(answer.outputs[0] - outline.numpy()).max():.1e}")
