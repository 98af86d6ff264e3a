"""Learning by simulated agents."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphact._plain_checks import check_integer
from graphact.agents.counters import Counters
from graphact.agents.deployment import Deployment, check_one_model
from graphact.agents.faults import Faults
from graphact.agents.learning.gradient import from_vector
from graphact.agents.learning.learner import PREPARATION, STEP, Learner, preparation_rounds, step_rounds
from graphact.agents.learning.settings import Learning
from graphact.agents.learning.state import MemoryStore, State
from graphact.agents.messages import Array
from graphact.agents.model import Model
from graphact.agents.settings import Limits, Timing
from graphact.agents.simulation import ProgramFactory, Simulation

PATIENT = Timing(slot=60.0, backoff=1.0, patience=1_000_000)
"""For the preparation: it costs nothing to wait for everybody when that happens once."""
SEGMENT = 20
"""Steps that are simulated at once; their logs are dropped then, and progress is told."""

Progress = Callable[["Training"], None]


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
    progress: Progress | None = None,
    begun: Training | None = None,
) -> Training:
    """Let simulated agents learn together.

    The preparation goes on until everybody has answered, through loss, delay, duplication, corruption and strangers,
    but without the faults that cut a node off for a long time (lost links, partitions, crashes).

    Args:
        deployments: what each node holds; see :func:`graphact.agents.deploy`.
        signals: ``(M, N, F)``; a node is given its own alone.
        targets: ``(M, N, O)``, likewise; NaN where a node is not asked. Classes ``(M, N, 1)`` for the cross entropy.
        learning: how; see :class:`Learning`.
        steps: how many in all.
        faults: what goes wrong; nothing when left out.
        timing: how long nodes wait.
        limits: how much nodes keep.
        seed: decides all faults.
        progress: called every few steps, with what there is.
        begun: an earlier training of the same agents to go on with.

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
    learning, faults = learning or Learning(), faults or Faults()
    model = check_one_model(deployments)
    check_samples(deployments, signals, targets, model, learning)
    stores = [MemoryStore(None if begun is None else begun.states[i]) for i in range(len(deployments))]
    learners = [
        Learner(node, learning, signals[:, i], targets[:, i], store)
        for i, (node, store) in enumerate(zip(deployments, stores, strict=True))
    ]
    places = [node.links for node in deployments]
    counters, crashes = prepare(learners, faults, limits, seed), 0
    if begun is not None:
        counters, crashes = counters + begun.counters, begun.crashes
    losses = [] if begun is None else list(begun.losses)
    rounds = step_rounds(model, learning)
    while len(losses) < check_integer("steps", steps, minimum=1):
        done, now = len(losses), min(SEGMENT, steps - len(losses))
        simulation = Simulation(
            places,
            steps_from(learners, done),
            rounds=rounds,
            runs=now,
            faults=faults,
            timing=timing,
            limits=limits,
            seed=random.Random(f"training {seed} {done}").getrandbits(63),
            kind=STEP,
        )
        outcome = simulation.simulate()
        counters, crashes = counters + outcome.counters, crashes + outcome.crashes
        for run in range(now):
            ended = [outcome.results[run, i].output for i in range(len(places)) if (run, i) in outcome.results]
            losses.append(float(np.mean(ended)) if ended else np.nan)
        training = Training(tuple(learner.state for learner in learners), np.array(losses), counters, crashes)
        if progress is not None:
            progress(training)
    return Training(tuple(learner.state for learner in learners), np.array(losses), counters, crashes)


def steps_from(learners: Sequence[Learner], first: int) -> ProgramFactory:
    """Programs of the steps from ``first`` on."""
    return lambda i, run: learners[i].step(first + run)


def prepare(learners: Sequence[Learner], faults: Faults, limits: Limits | None, seed: int) -> Counters:
    """Let all nodes prepare, and count their messages."""
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


def check_samples(
    deployments: Sequence[Deployment], signals: Array, targets: Array, model: Model, learning: Learning
) -> None:
    """Say so if signals or targets do not fit the network."""
    count, features = len(deployments), model.in_features or "F"
    if signals.ndim != 3 or signals.shape[1] != count or signals.shape[2] != (model.in_features or signals.shape[2]):
        raise ValueError(f"signals must have the shape (M, {count}, {features}), got {signals.shape}")
    answers = 1 if learning.objective == "cross_entropy" else model.out_features(signals.shape[2])
    if targets.shape != (len(signals), count, answers):
        raise ValueError(f"targets must have the shape {(len(signals), count, answers)}, got {targets.shape}")
