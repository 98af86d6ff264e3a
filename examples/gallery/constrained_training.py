"""
Training below a Lipschitz limit
================================

``lipschitz_constrained`` holds the certified Lipschitz constant of a network below a
limit, in every step: outputs never move by more than the limit times the largest move
of an input. The target of every node is the largest value among itself and its
neighbours, which has the constant 1. This small network only comes near it, and uses a
larger constant to do so: limits below that cost accuracy, more the lower they are.
"""

import matplotlib.pyplot as plt
import torch

import graphact
from graphact.guarantees import (
    empirical_lipschitz,
    lipschitz_bound,
    lipschitz_constrained,
    release,
)

generator = torch.Generator().manual_seed(0)
places = torch.rand(20, 2, generator=generator, dtype=torch.float64)
graph = graphact.Graph.nearest_neighbors(places, 3).normalize("spectral")
x = torch.randn(200, 20, 1, generator=generator, dtype=torch.float64)
y = graphact.functional.neighborhood_max(x, graph, closed=True)

# %%
limits = [None, 4.0, 2.0, 1.0, 0.5]
error, constant, found = [], [], []
for limit in limits:
    torch.manual_seed(0)
    shape = {"order": 1, "activation": "max-l", "closed": True, "bias": True}
    model = graphact.nn.GCNN([1, 4], **shape).double()
    if limit is not None:
        lipschitz_constrained(model, graph, limit)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(100):
        optimizer.zero_grad()
        (model(x[:150], graph) - y[:150]).square().mean().backward()
        optimizer.step()
    if limit is not None:
        release(model)  # ordinary parameters again, as saving needs them
    error.append((model(x[150:], graph) - y[150:]).square().mean().sqrt().item())
    constant.append(lipschitz_bound(model, graph).value)
    found.append(empirical_lipschitz(model, graph, x[150:160]).value)
    constants = f"certified {constant[-1]:.2f}, a search found {found[-1]:.2f}"
    print(f"limit {limit}: {constants}, test RMSE {error[-1]:.2f}")

# %%
# A limit above what training reaches by itself (4) changes nothing. With the lower ones
# the certificate is tight: a search finds nearly as much as is certified.
names = ["none" if limit is None else f"{limit:g}" for limit in limits]
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
left.plot(names, constant, "o-", label="certified: at most")
left.plot(names, found, "s--", label="found by a search: at least")
left.set(xlabel="limit", ylabel="Lipschitz constant", ylim=(0, None))
left.legend()
right.bar(names, error)
always_mean = (y[150:] - y[:150].mean()).square().mean().sqrt()
right.axhline(always_mean, color="grey", linestyle=":", label="always the mean")
right.set(xlabel="limit", ylabel="test RMSE", ylim=(0, 0.85))
right.legend(loc="upper left")
plt.show()
