"""Problems with a known optimum, and networks to solve them on."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from graphact import Graph, nn
from graphact.training.task import LOSSES
from graphact_agents import Cost, Timing
from graphact_agents.learning import Learning, mixing, simulate_training
from graphact_agents.learning.learner import samples_of
from graphact_agents.learning.mixing import MAX_PIECE
from graphact_agents.messages import datagram_bytes
from support.on_agents import deploy

TOO_SHORT_TO_REPEAT = Timing(slot=0.0015)
"""A datagram travels for 1 ms, and no node requests it again before 20 ms: what is lost is lost."""


@dataclass(frozen=True)
class LeastSquares:
    """Taps and bias of a filter of order 1 by least squares: strongly convex, and no two nodes agree on the answer."""

    graph: Graph
    model: nn.FIR
    signals: np.ndarray
    targets: np.ndarray
    optimum: np.ndarray  # the taps, then the bias
    steepest: float  # the largest eigenvalue of the Hessian

    def train(self, steps, **options):
        learning = Learning("sgd", 0.8 / self.steepest)
        return simulate_training(
            deploy(self.model, self.graph), self.signals, self.targets, learning, steps=steps, **options
        )

    def distance(self, training):
        """Return the distance of the worst node from the optimum."""
        return abs(training.copies - self.optimum).max()


def least_squares(num_nodes=8):
    rng = np.random.default_rng(0)
    graph = Graph.nearest_neighbors(torch.from_numpy(rng.random((num_nodes, 2))), 4).normalize("spectral")
    x = rng.normal(size=(10, num_nodes, 1))
    shifted = graph.to_dense().numpy() @ x
    noise = rng.normal(size=x.shape) * rng.uniform(1, 4, (1, num_nodes, 1))
    targets = 2 * x - shifted + 1 + noise
    design = np.stack([x.ravel(), shifted.ravel(), np.ones(x.size)], axis=1)
    optimum = np.linalg.lstsq(design, targets.ravel(), rcond=None)[0]
    steepest = np.linalg.eigvalsh(2 * design.T @ design / len(design))[-1]
    model = nn.FIR([1, 1], order=1, out_features=None, bias=True).double()
    return LeastSquares(graph, model, x, targets, optimum, steepest)


def gradient_rounds(model, *, prepared=True):
    """Return the exchanges of a gradient, where the signals were shifted before or not."""
    first = model.layers[0].exchanges
    forward = model.rounds - (first if prepared and model.layers[0].kind == "filter" else 0)
    return forward + model.rounds - first


def cost_of_step(model, num_edges, num_pairs, batch, *, slot=0.18):
    """Return the cost of one step without loss, as docs/agents-learning.md counts it."""
    widths, first = model.widths(), model.layers[0].exchanges
    travelling = widths[first:] + (widths[first:] if model.layers[0].kind == "filter" else widths)
    exchanged = sum(datagram_bytes((batch, width), model.dtype) for width in travelling)
    size = sum(model.parameters[name].size for name in model.trained)
    pieces = [min(mixing.MAX_PIECE, size - start) for start in range(0, size, mixing.MAX_PIECE)] * 2
    mixed = sum(datagram_bytes((piece,), float) for piece in pieces)
    rounds, messages = len(travelling) + len(pieces), num_edges * len(travelling) + num_pairs * len(pieces)
    return Cost(rounds, messages, num_edges * exchanged + num_pairs * mixed, rounds * slot)


def step_rounds(model):
    """Return the exchanges of a step."""
    size = sum(model.parameters[name].size for name in model.trained)
    return gradient_rounds(model) + 2 * math.ceil(size / MAX_PIECE)


def train_centrally(model, graph, signals, targets, learning, steps):
    """Train a torch model with the optimizer, rate and batches of ``learning``; the loss before every step."""
    dtype = next(model.parameters()).dtype
    x, t, graph = torch.from_numpy(signals).to(dtype), torch.from_numpy(targets).to(dtype), graph.to(dtype=dtype)
    optimizer = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[learning.optimizer]
    optimizer, losses = optimizer(model.parameters(), lr=learning.rate), []
    for step in range(steps):
        batch = samples_of(step, len(signals), learning)
        optimizer.zero_grad()
        loss = mean_loss(learning.objective, model(x[batch], graph), t[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def mean_loss(objective, outputs, targets):
    """The mean over samples and nodes; a target that is NaN adds 0."""
    asked = ~targets.isnan()
    known = torch.where(asked, targets, 0.0)
    if objective == "cross_entropy":
        each = LOSSES[objective](outputs, known.squeeze(-1).long()).unsqueeze(-1)
    else:
        each = LOSSES[objective](outputs, known)
    return torch.where(asked, each, 0.0).mean()
