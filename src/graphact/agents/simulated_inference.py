"""Inference by simulated agents."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphact.agents.deployment import Deployment, check_one_model
from graphact.agents.faults import Faults
from graphact.agents.inference import infer
from graphact.agents.messages import Array
from graphact.agents.program import Program
from graphact.agents.replay import answered_links, replay
from graphact.agents.settings import Limits, Timing
from graphact.agents.simulation import Outcome, Simulation


@dataclass(frozen=True)
class SimulatedInference:
    """What agents answered.

    Attributes:
        outputs: ``(runs, ..., N, F_out)``; NaN where a node was down.
        outcome: how they got there.
    """

    outputs: Array
    outcome: Outcome


def simulate_inference(
    deployments: Sequence[Deployment],
    signals: Array,
    *,
    faults: Faults | None = None,
    timing: Timing | None = None,
    limits: Limits | None = None,
    seed: int = 0,
) -> SimulatedInference:
    """Let simulated agents work on a stream of signals.

    Args:
        deployments: what each node holds; see :func:`graphact.agents.deploy`.
        signals: ``(runs, ..., N, F)``: one inference for each entry of the first dimension.
        faults: what goes wrong; nothing when left out.
        timing: how long nodes wait.
        limits: how much nodes keep.
        seed: decides everything random.

    Example:
        >>> import graphact, torch
        >>> from graphact.agents import deploy, simulate_inference
        >>> path = graphact.Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> model, x = graphact.nn.GCNN([1, 4], order=2, activation="median-ga"), torch.randn(5, 3, 1)
        >>> answer = simulate_inference(deploy(model, path), x.numpy())
        >>> bool((torch.from_numpy(answer.outputs) - model(x, path)).abs().max() < 1e-6)
        True
    """
    model = check_one_model(deployments)
    if signals.ndim < 3 or signals.shape[-2] != len(deployments):
        raise ValueError(
            f"signals must have the shape (runs, ..., N, F) with N = {len(deployments)}, the number of nodes, "
            f"got {signals.shape}"
        )

    def program(i: int, run: int) -> Program[Array]:
        return infer(deployments[i].model, deployments[i].row, signals[run, ..., i, :])

    outcome = Simulation(
        [deployment.links for deployment in deployments],
        program,
        rounds=model.rounds,
        runs=len(signals),
        faults=faults,
        timing=timing,
        limits=limits,
        seed=seed,
    ).simulate()
    outputs = np.full((*signals.shape[:-1], model.out_features(signals.shape[-1])), np.nan, model.dtype)
    for (run, i), result in outcome.results.items():
        outputs[run, ..., i, :] = result.output
    return SimulatedInference(outputs, outcome)


def replay_inference(deployments: Sequence[Deployment], signals: Array, outcome: Outcome) -> Array:
    """The same inferences computed in one place, with the links that answered according to the logs."""
    model, matrix = deployments[0].model, dense_matrix(deployments)
    logs = [log.records for log in outcome.logs]
    links = (answered_links(logs, run, model.rounds) for run in range(len(signals)))
    return np.stack([replay(model, matrix, x, *answered) for x, answered in zip(signals, links, strict=True)])


def dense_matrix(deployments: Sequence[Deployment]) -> Array:
    """The shift operator whose rows the nodes hold."""
    matrix = np.zeros((len(deployments), len(deployments)))
    for i, deployment in enumerate(deployments):
        matrix[i, list(deployment.row.hears)] = deployment.row.weights
        matrix[i, i] = deployment.row.diagonal
    return matrix
