"""Learning by simulated agents, the file with which it goes on after a stop, and the same learning in one place."""

import hashlib
import io
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphact.agents.deployment import Deployment, check_one_model
from graphact.agents.files import READ_ERRORS, check_integer, one_line
from graphact.agents.learning.learner import PREPARATION, STEP, Learner, cost_of_step, preparation_rounds, samples_of
from graphact.agents.learning.mixing import Learning
from graphact.agents.learning.state import MemoryStore, State, from_vector, save_arrays
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.runs import Counters, Limits, Timing
from graphact.agents.simulation import Simulation
from graphact.agents.transports.memory import Faults

if TYPE_CHECKING:
    from torch import Tensor

    from graphact.graph import Graph
    from graphact.nn import GraphModule

PATIENT = Timing(slot=60.0, backoff=1.0, patience=1_000_000)
"""For the preparation: it costs nothing to wait for all neighbours when that happens once."""
SEGMENT = 20
"""Steps that are simulated at once; their logs are dropped then, and progress is reported."""
CHECKPOINT_VERSION = 1


@dataclass(frozen=True)
class Training:
    """Where simulated agents stand.

    Attributes:
        states: of every node.
        losses: for each step the mean of the losses of the nodes that finished it, before it; NaN if none did.
        counters: messages of all nodes, the preparation included.
        crashes: how many nodes died.
    """

    states: tuple[State, ...]
    losses: Array
    counters: Counters
    crashes: int

    @property
    def copies(self) -> Array:
        """The parameters of every node, ``(N, P)``."""
        return np.stack([state.parameters for state in self.states])

    @property
    def disagreement(self) -> float:
        """The largest distance of a parameter of a node from the mean of that parameter over all nodes."""
        return float(np.abs(self.copies - self.copies.mean(0)).max())

    def model(self, like: Model) -> Model:
        """The mean of the nodes' models."""
        return from_vector(self.copies.mean(0), like)


def simulate_training(
    deployments: Sequence[Deployment],
    signals: Array,
    targets: Array,
    learning: Learning | None = None,
    *,
    steps: int,
    faults: Faults | None = None,
    timing: Timing | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    progress: Callable[[Training], None] | None = None,
    begun: Training | None = None,
) -> Training:
    """Let simulated agents learn together.

    The preparation goes on until all nodes have answered, through loss, delay, duplication, corruption and forgery,
    but without the faults that cut a node off for a long time (lost links, partitions, crashes).

    Args:
        deployments: what each node holds; see :func:`graphact.agents.deploy`.
        signals: ``(M, N, F)``; a node is given its own alone.
        targets: ``(M, N, O)``, likewise; NaN where a node is not asked. Classes ``(M, N, 1)`` for the cross entropy.
        learning: how; see :class:`Learning`.
        steps: how many in all.
        faults: what goes wrong, nothing when left out; with ``timing``, ``limits`` and the ``seed`` of all faults as in
            :func:`~graphact.agents.simulate_inference`.
        progress: called every few steps, with what there is.
        begun: an earlier training of the same agents to go on with.

    Raises:
        UnsupportedModelError: agents cannot train the model.
        ValueError: nodes hold different models, or data or gradients do not fit or are not finite.

    Example:
        >>> import graphact, torch
        >>> from graphact.agents import deploy
        >>> from graphact.agents.learning import Learning, simulate_training
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> x = torch.randn(20, 3, 1)
        >>> nodes = deploy(graphact.nn.FIR([1, 1], order=1), path)
        >>> trained = simulate_training(nodes, x.numpy(), 2 * x.numpy(), Learning(rate=0.05), steps=100)
        >>> bool(trained.losses[-1] < 0.1 * trained.losses[0])
        True
    """
    learning, faults = learning or Learning(), replace(faults or Faults(), clock=0.0)  # steps follow one another
    model, links = check_one_model(deployments), [node.links for node in deployments]
    count, features = len(deployments), model.in_features
    if signals.ndim != 3 or signals.shape[1] != count or features not in (None, signals.shape[2]):
        raise ValueError(f"signals must have the shape (M, {count}, {features or 'F'}), got {signals.shape}")
    answers = 1 if learning.objective == "cross_entropy" else model.out_features(signals.shape[2])
    if targets.shape != (len(signals), count, answers):
        raise ValueError(f"targets must have the shape {(len(signals), count, answers)}, got {targets.shape}")
    learners = [
        Learner(node, learning, signals[:, i], targets[:, i], MemoryStore(None if begun is None else begun.states[i]))
        for i, node in enumerate(deployments)
    ]
    rounds = cost_of_step(model, learning, 0, 0, 1, features=signals.shape[2]).rounds
    counters, crashes, losses = prepare(learners, faults, limits, seed), 0, []
    if begun is not None:
        counters, crashes, losses = counters + begun.counters, begun.crashes, list(begun.losses)
    while True:
        training = Training(tuple(learner.state for learner in learners), np.array(losses), counters, crashes)
        if progress is not None and len(losses) > (0 if begun is None else len(begun.losses)):
            progress(training)
        if len(losses) >= check_integer("steps", steps, minimum=1):
            return training
        done, now = len(losses), min(SEGMENT, steps - len(losses))
        outcome = Simulation(
            links,
            partial(lambda first, i, run: learners[i].step(first + run), done),
            rounds=rounds,
            runs=now,
            faults=faults,
            timing=timing,
            limits=limits,
            seed=random.Random(f"training {seed} {done}").getrandbits(63),
            kind=STEP,
        ).simulate()
        counters, crashes = counters + outcome.counters, crashes + outcome.crashes
        for run in range(now):
            ended = [outcome.results[run, i].output for i in range(len(links)) if (run, i) in outcome.results]
            losses.append(float(np.mean(ended)) if ended else np.nan)


def prepare(learners: Sequence[Learner], faults: Faults, limits: Limits | None, seed: int) -> Counters:
    """Let all nodes prepare; returns the counts of their messages."""
    outcome = Simulation(
        [learner.links for learner in learners],
        lambda i, _: learners[i].prepare(),
        rounds=preparation_rounds(learners[0].model, learners[0].signals.shape),
        faults=replace(faults, link_loss=0.0, crash=0.0, partition=0.0),
        timing=PATIENT,
        limits=limits,
        seed=random.Random(f"preparation {seed}").getrandbits(63),
        kind=PREPARATION,
    ).simulate()
    if not all((0, i) in outcome.results and outcome.results[0, i].complete for i in range(len(learners))):
        raise RuntimeError(f"the network loses too much to prepare: {faults}")
    return outcome.counters


# Checkpoints


def write_training(training: Training, path: str | os.PathLike[str], identity: str) -> None:
    """Write where a training stands; ``identity`` tells trainings apart, see :func:`identity_of`."""
    described = {"version": CHECKPOINT_VERSION, "identity": identity, "nodes": len(training.states)}
    described |= {"counters": asdict(training.counters), "crashes": training.crashes}
    arrays: dict[str, Any] = {"losses": training.losses, "described": np.array(json.dumps(described))}
    for i, state in enumerate(training.states):
        arrays |= state.to_arrays(f"{i} ")
    save_arrays(path, arrays)


def read_training(path: str | os.PathLike[str], identity: str) -> Training | None:
    """Read a file, None if there is none; ValueError if it is damaged, of another version or of another training."""
    if not Path(path).exists():
        return None
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as content:
            described = json.loads(str(content["described"]))
            states = tuple(State.from_arrays(content, f"{i} ") for i in range(described["nodes"]))
            counters, crashes = Counters(**described["counters"]), int(described["crashes"])
            training = Training(states, content["losses"], counters, crashes)
            version, found = described["version"], described["identity"]
    except READ_ERRORS as error:
        raise ValueError(f"{path}: not the checkpoint of a training: {one_line(error)}") from error
    if version != CHECKPOINT_VERSION:
        raise ValueError(f"{path}: must be a checkpoint of version {CHECKPOINT_VERSION}, got {version}")
    if found != identity:
        other = "another training (other model, graph, samples or options)"
        raise ValueError(f"{path}: the checkpoint of {other}; name another file, or delete it")
    return training


def identity_of(described: Any, *arrays: Array) -> str:
    """SHA-256 over what makes a training what it is."""
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# In one place, by torch: what agents are compared with


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
    optimizers = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimizer = optimizers[learning.optimizer](model.parameters(), lr=learning.rate)
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

    from graphact.data.task import LOSSES

    asked = ~targets.isnan()
    known = torch.where(asked, targets, 0.0)
    if objective == "cross_entropy":
        each = LOSSES[objective](outputs, known.squeeze(-1).long()).unsqueeze(-1)
    else:
        each = LOSSES[objective](outputs, known)
    return torch.where(asked, each, 0.0).mean()
