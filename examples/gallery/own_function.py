"""
Your own neighbourhood activation
=================================

Any function of the neighbours' values can be an activation. Here it is their *spread*,
the largest minus the smallest: large where a signal changes quickly from node to node,
that is, at an edge. Then the function gets a trained parameter and a name, so that a
``GCNN``, a fleet, files and agents know it.
"""

from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import torch

import graphact
import graphact_agents
from graphact.spec.reductions import Operation, register_operation
from graphact_lab.tasks import source_localization_tasks

# %%
# A function and its name
# -----------------------
# Written for ``xp``, which is torch or NumPy, a function also runs on agents, which
# need no torch. ``register_operation`` gives the *function* a name: ``GraphAdaptive``
# and ``Localized`` take it, and files and agents find it again. (For a quick trial no
# name is needed: ``GraphAdaptive(lambda neighbors: ...)``.)


def spread(neighbors, xp):
    """Largest minus smallest, ``(..., neighbours, F)`` to ``(..., F)``."""
    return xp.amax(neighbors, -2) - xp.amin(neighbors, -2)


register_operation(Operation("gallery-spread", spread))

# %%
# A grid of 20 x 20 pixels, each connected with the pixels beside it, and a picture with
# a step along a circle. ``beta`` weighs the ReLU, ``weights`` the hops; training would
# find them.
side = 20
row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
number = row * side + column
right = torch.stack([number[:, :-1].flatten(), number[:, 1:].flatten()])
down = torch.stack([number[:-1].flatten(), number[1:].flatten()])
edges = torch.cat([right, down], 1)
edge_index = torch.cat([edges, edges.flip(0)], 1)
grid = graphact.Graph.from_edge_index(edge_index, num_nodes=side**2)
grid = grid.normalize("spectral")

inside = ((row - 9.5) ** 2 + (column - 9.5) ** 2 < 36).float()
generator = torch.Generator().manual_seed(0)
noise = 0.15 * torch.randn(side, side, generator=generator)
picture = (inside + noise).reshape(-1, 1)

activation = graphact.nn.GraphAdaptive("gallery-spread")
with torch.no_grad():
    activation.beta.fill_(0)
    activation.weights.fill_(1)
    outline = activation(picture, grid)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
shown = {"signal": picture, "spread of the neighbours": outline}
for axis, (title, values) in zip(axes, shown.items(), strict=True):
    image = axis.imshow(values.reshape(side, side), cmap="magma")
    figure.colorbar(image, ax=axis, shrink=0.8)
    axis.set_title(title)
    axis.set_axis_off()
plt.show()

# %%
# The same function on one agent a pixel, by messages between neighbours. Agents run
# without torch, so they are given the function in NumPy.


def spread_in_numpy(_own, neighbors):
    """The same function in NumPy."""
    return neighbors.max(-2) - neighbors.min(-2)


graphact_agents.operations.register_operation("gallery-spread", spread_in_numpy)
with TemporaryDirectory() as folder:
    model_file, graph_file = f"{folder}/model.safetensors", f"{folder}/graph.npz"
    graphact.save(activation, model_file)
    grid.save(graph_file)
    deployments = graphact_agents.deploy(model_file, graph_file)
found = graphact_agents.simulate_inference(deployments, picture[None].numpy())
print(f"largest difference: {abs(found.outputs[0] - outline.numpy()).max():.1e}")

# %%
# A trained parameter, and a module with a name
# ---------------------------------------------
# A parameter of the function is a positive number with the value that it starts from.
# ``learn_NAME=True`` trains it, through its logarithm, so that it stays positive;
# without it the number is a constant. ``nn.register`` gives a *module* a name, for
# ``GCNN(activation=...)``, ``make_activation``, fleets and ``graphact list``; the
# function of the class is registered along with it.


def soft_spread(neighbors, xp, t):
    """A spread to which all neighbours count, the less the smaller t is."""
    largest, smallest = xp.amax(neighbors, -2), xp.amin(neighbors, -2)
    below = xp.exp((neighbors - largest[..., None, :]) / t)  # at most 1: no overflow
    above = xp.exp((smallest[..., None, :] - neighbors) / t)
    softer = xp.log(xp.mean(below, -2)) + xp.log(xp.mean(above, -2))
    return largest - smallest + t * softer


@graphact.nn.register("gallery-soft-spread-ga")
class GraphAdaptiveSoftSpread(graphact.nn.GraphAdaptive):
    """The soft spread, with t for a parameter."""

    operation = Operation("gallery-soft-spread", soft_spread, parameters={"t": 0.5})


# %%
# Four small networks, one for each node that is read. Each tells from which of four
# communities a signal came (by chance 25 %), and has found a ``t`` of its own. This
# shows that the parameter is trained, not that the function is a good one for the task.
tasks = source_localization_tasks(graphs=1, splits=1, nodes=4)
softly = {"name": "gallery-soft-spread-ga", "learn_t": True}
shape = {"order": 3, "activation": softly, "out_features": 4}
torch.manual_seed(0)
models = [graphact.nn.GCNN([1, 8], **shape) for _ in tasks]
fleet = graphact.training.Fleet(models, tasks)
settings = graphact.training.TrainingSettings(epochs=15, learning_rate=0.02)
accuracy = fleet.train(settings).test
for model, percent in zip(models, accuracy, strict=True):
    t = model.activations[0].log_t.exp().item()
    print(f"{percent:.0f} % of the test signals right, t from 0.5 to {t:.2f}")
