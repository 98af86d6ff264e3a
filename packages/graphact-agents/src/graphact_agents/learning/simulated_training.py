"""Learning by simulated agents."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from graphact_agents.arguments import check_integer
from graphact_agents.deployment import Deployment, check_one_model
from graphact_agents.learning.learner import PREPARATION, STEP, Learner, preparation_rounds, step_rounds
from graphact_agents.learning.mixing import Learning
from graphact_agents.learning.state import State, from_vector
from graphact_agents.messages import Array
from graphact_agents.model import Model
from graphact_agents.runs import Counters, Timing
from graphact_agents.simulation import Simulation
from graphact_agents.transports.memory import Faults

PATIENT = Timing(slot=60.0, backoff=1.0, patience=1_000_000)
"""For the preparation: it costs nothing to wait for all neighbours when that happens once."""
SEGMENT = 20
"""Steps that are simulated at once; their logs are dropped then."""


@dataclass(frozen=True)
class Training:
    """The state of a simulated training.

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
    seed: int = 0,
) -> Training:
    """Let simulated agents learn together.

    The preparation goes on until all nodes have answered, through loss, delay, duplication, corruption and forgery,
    but without the faults that cut a node off for a long time (lost links, partitions, crashes).

    Args:
        deployments: what each node holds; see :func:`graphact_agents.deploy`.
        signals: ``(M, N, F)``; a node is given its own alone.
        targets: ``(M, N, O)``, likewise; NaN where a node is not asked. Classes ``(M, N, 1)`` for the cross entropy.
        learning: how; see :class:`Learning`.
        steps: how many in all.
        faults: what goes wrong, nothing when left out; with ``timing`` and the ``seed`` of all faults as in
            :func:`~graphact_agents.simulate_inference`.

    Raises:
        IncompatibleModelError: agents cannot train the model.
        ValueError: nodes hold different models, or data or gradients do not fit or are not finite.

    Example:
        >>> import numpy as np
        >>> from graphact_agents import Model, deploy
        >>> from graphact_agents.graph_file import build_operator
        >>> from graphact_agents.learning import Learning, simulate_training
        >>> ends = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> path = build_operator(ends[0], ends[1], np.ones(4), num_nodes=3)
        >>> x = np.random.default_rng(0).normal(size=(20, 3, 1))
        >>> filters = {"kind": "filter", "arrays": {"taps": "taps"}}
        >>> nodes = deploy(Model("GraphFilter", {}, {"taps": np.zeros((2, 1, 1))}, [filters]), path)
        >>> trained = simulate_training(nodes, x, 2 * x, Learning(rate=0.05), steps=100)
        >>> bool(trained.losses[-1] < 0.1 * trained.losses[0])
        True
    """
    learning, faults = learning or Learning(), faults or Faults()
    model, links = check_one_model(deployments), [node.links for node in deployments]
    count, features = len(deployments), model.in_features
    if signals.ndim != 3 or signals.shape[1] != count or features not in (None, signals.shape[2]):
        raise ValueError(f"signals must have the shape (M, {count}, {features or 'F'}), got {signals.shape}")
    answers = 1 if learning.objective == "cross_entropy" else model.out_features(signals.shape[2])
    if targets.shape != (len(signals), count, answers):
        raise ValueError(f"targets must have the shape {(len(signals), count, answers)}, got {targets.shape}")
    learners = [Learner(node, learning, signals[:, i], targets[:, i]) for i, node in enumerate(deployments)]
    counters, crashes, losses = prepare(learners, faults, seed), 0, list[float]()
    for done in range(0, check_integer("steps", steps, minimum=1), SEGMENT):
        now = min(SEGMENT, steps - done)
        outcome = Simulation(
            links,
            partial(lambda first, i, run: learners[i].step(first + run), done),
            rounds=step_rounds(model),
            runs=now,
            faults=faults,
            timing=timing,
            seed=random.Random(f"training {seed} {done}").getrandbits(63),
            program_id=STEP,
        ).simulate()
        counters, crashes = counters + outcome.counters, crashes + outcome.crashes
        for run in range(now):
            ended = [outcome.results[run, i].output for i in range(len(links)) if (run, i) in outcome.results]
            losses.append(float(np.mean(ended)) if ended else np.nan)
    return Training(tuple(learner.state for learner in learners), np.array(losses), counters, crashes)


def prepare(learners: Sequence[Learner], faults: Faults, seed: int) -> Counters:
    """Let all nodes prepare; returns the counts of their messages."""
    outcome = Simulation(
        [learner.links for learner in learners],
        lambda i, _: learners[i].prepare(),
        rounds=preparation_rounds(learners[0].model, learners[0].signals.shape),
        faults=replace(faults, link_loss=0.0, crash=0.0, partition=0.0),
        timing=PATIENT,
        seed=random.Random(f"preparation {seed}").getrandbits(63),
        program_id=PREPARATION,
    ).simulate()
    if not all((0, i) in outcome.results and outcome.results[0, i].complete for i in range(len(learners))):
        raise RuntimeError(f"the network loses too much to prepare: {faults}")
    return outcome.counters
