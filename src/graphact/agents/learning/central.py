"""The same learning in one place, by torch: what agents are compared with."""

from typing import TYPE_CHECKING

import numpy as np

from graphact.agents.learning.learner import samples_of
from graphact.agents.learning.mixing import Learning
from graphact.agents.messages import Array

if TYPE_CHECKING:
    from torch import Tensor

    from graphact.graph import Graph
    from graphact.nn import GraphModule


def train_centrally(
    model: "GraphModule", graph: "Graph", signals: Array, targets: Array, learning: Learning, steps: int
) -> Array:
    """Train a model as one that sees everything, with the optimizer, the rate and the batches of ``learning``.

    Args:
        model: trained in place.
        graph: the graph.
        signals: ``(M, N, F)``.
        targets: ``(M, N, O)``; NaN asks for nothing.
        learning: the algorithm in it means nothing here.
        steps: how many.

    Returns:
        The loss before every step.
    """
    import torch

    dtype = next(model.parameters()).dtype
    x, t, graph = torch.from_numpy(signals).to(dtype), torch.from_numpy(targets).to(dtype), graph.to(dtype=dtype)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[learning.optimizer]
    optimizer = kind(model.parameters(), lr=learning.rate)
    losses = []
    for step in range(steps):
        batch = samples_of(step, len(signals), learning)
        optimizer.zero_grad()
        loss = mean_loss(learning.objective, model(x[batch], graph), t[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def mean_loss(objective: str, outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """The loss of the network: the mean over samples and nodes; a target that is NaN adds 0."""
    import torch
    import torch.nn.functional as F

    asked = ~targets.isnan()
    known = torch.where(asked, targets, 0.0)
    if objective == "cross_entropy":
        classes = known.squeeze(-1).long().flatten()
        each = F.cross_entropy(outputs.flatten(0, -2), classes, reduction="none").view(targets.shape)
    else:
        function = {"mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss}[objective]
        each = function(outputs, known, reduction="none")
    return torch.where(asked, each, 0.0).mean()
