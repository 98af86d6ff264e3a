"""
A sensor network: trained, certified, run on its own nodes
==========================================================

Weather stations in Brittany (Molène) measure with noise, and each estimates its
temperature from what its neighbours send. The network is trained, its outputs get
guaranteed intervals, and then it runs as one agent a station, through lost messages.
Without the data set (``graphact-lab data fetch molene``) stations and temperatures are
drawn at random.
"""

from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import torch

import graphact
from graphact.guarantees import certify, lipschitz_bound
from graphact.training import Task, TrainingSettings, fit
from graphact_agents import Faults, deploy, simulate_inference
from graphact_lab.data.download import DataError, locate
from graphact_lab.data.molene import read_molene
from graphact_lab.tasks import denoising

try:
    task = denoising(download=False)
    latitude, longitude = read_molene(locate("molene", download=False)).degrees.T
except DataError:
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(32, 2, generator=generator, dtype=torch.float64)
    graph = graphact.Graph.nearest_neighbors(places, 8).normalize("spectral")
    graph = graph.to(dtype=torch.float32)
    slopes = torch.randn(744, 1, 2, generator=generator)
    clean = 3 * (slopes * places.float()).sum(-1, keepdim=True)
    noisy = clean + 1.5 * torch.randn(clean.shape, generator=generator)
    order = torch.randperm(744, generator=generator)
    train, validation, test = order[:596], order[596:670], order[670:]
    settings = {"node": None, "out_features": 1, "loss": "mse", "metric": "rmse"}
    data = (graph, noisy, clean, train, validation, test)
    task = Task("denoising", *data, details={}, **settings)
    latitude, longitude = places.T

# %%
# Train
# -----
torch.manual_seed(0)
model = graphact.nn.GCNN([1, 8], order=2, activation="max-ga", hops=2, bias=True)
result = fit(model, task, TrainingSettings(epochs=60, learning_rate=0.01))
noise = (task.inputs - task.targets)[task.test].square().mean().sqrt()
print(f"RMSE of the measurements {noise:.2f} K, of the network {result.test:.2f} K")

# %%
# Certify
# -------
# Whatever every sensor's reading does within 0.1 K, no estimate leaves its interval.
model, graph = model.double(), task.graph.to(dtype=torch.float64)
x = task.inputs[task.test].double()
safe = certify(model, graph, x[:1], radius=0.1)
print(f"Lipschitz constant at most {lipschitz_bound(model, graph).value:.2f}")
print(f"half the widest interval {(safe.upper - safe.lower).max() / 2:.3f} K")

# %%
# Run it on the stations
# ----------------------
# Agents read the two files that the library writes. Each holds the parameters and its
# own readings. Of the messages four in ten are lost. Agents send them again; a link
# over which nothing came by the deadline of a round counts as not there in that round.
with TemporaryDirectory() as folder:
    graphact.save(model, f"{folder}/model.safetensors")
    graph.save(f"{folder}/graph.npz")
    deployments = deploy(f"{folder}/model.safetensors", f"{folder}/graph.npz")
exact = simulate_inference(deployments, x[:3].numpy())
lossy = simulate_inference(deployments, x[:3].numpy(), faults=Faults(loss=0.4), seed=1)
outputs = model(x[:3], graph).detach().numpy()
apart = abs(exact.outputs - outputs).max()
print(f"without loss, largest difference to one machine: {apart:.1e}")
missed = lossy.outcome.counters.links_missed
off = ((lossy.outputs - outputs) ** 2).mean() ** 0.5
print(f"with loss, {missed} links missed a round; RMS of the difference: {off:.1e} K")

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
shown = {
    "measured": x[0, :, 0].numpy(),
    "estimated by the stations": exact.outputs[0, :, 0],
    "true": task.targets[task.test][0, :, 0].numpy(),
}
low, high = shown["measured"].min(), shown["measured"].max()
colours = {"cmap": "viridis", "vmin": low, "vmax": high}
colours |= {"edgecolors": "grey", "s": 90}
pairs = graph.to_edge_index()[0].numpy()
for axis, (title, values) in zip(axes, shown.items(), strict=True):
    lines = np.stack([longitude[pairs], latitude[pairs]])
    axis.plot(*lines, color="lightgrey", linewidth=0.6, zorder=0)
    dots = axis.scatter(longitude, latitude, c=values, **colours)
    axis.set_title(title)
    axis.set(xticks=[], yticks=[])
    axis.grid(visible=False)
figure.colorbar(dots, ax=axes, label="difference to the mean (K)")
plt.show()
