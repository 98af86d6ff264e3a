"""Inference by simulated agents: their answers to a stream of signals, with faults."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphact_agents.deployment import Deployment, check_one_model
from graphact_agents.inference import infer
from graphact_agents.messages import (
    Array,
)
from graphact_agents.program import Program
from graphact_agents.runs import Limits, Timing
from graphact_agents.simulation import Reach, Simulation, SimulationOutcome
from graphact_agents.transports.memory import Faults


@dataclass(frozen=True)
class SimulatedInference:
    """Outputs of agents, ``(runs, ..., N, F_out)`` with NaN where a node was down or failed, and how it went."""

    outputs: Array
    outcome: SimulationOutcome


def simulate_inference(
    deployments: Sequence[Deployment],
    signals: Array,
    *,
    faults: Faults | None = None,
    timing: Timing | None = None,
    limits: Limits | None = None,
    seed: int = 0,
    reach: Reach | None = None,
) -> SimulatedInference:
    """Let simulated agents work on a stream of signals.

    Args:
        deployments: what each node holds; see :func:`graphact_agents.deploy`.
        signals: ``(runs, ..., N, F)``: one inference for each entry of the first dimension.
        faults: what goes wrong, nothing when left out; this and the others as in
            :class:`~graphact_agents.simulation.Simulation`.
        reach: the links that are there in a run, where they come and go.

    Example:
        >>> import numpy as np
        >>> from graphact_agents import Model, deploy, simulate_inference
        >>> from graphact_agents.graph_file import build_operator
        >>> ends = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
        >>> path = build_operator(ends[0], ends[1], np.ones(4), num_nodes=3)
        >>> filters = {"kind": "filter", "arrays": {"taps": "taps"}}
        >>> model = Model("GraphFilter", {}, {"taps": np.ones((2, 1, 1))}, [filters])
        >>> simulate_inference(deploy(model, path), np.array([[[1.0], [2.0], [4.0]]])).outputs.ravel()
        array([3., 7., 6.])
    """
    model = check_one_model(deployments)
    if signals.ndim < 3 or signals.shape[-2] != len(deployments):
        expected = f"(runs, ..., N, F) with N = {len(deployments)}, the number of nodes"
        raise ValueError(f"signals must have the shape {expected}, got {signals.shape}")

    def program(i: int, run: int) -> Program[Array]:
        return infer(model, deployments[i].row, signals[run, ..., i, :])

    outcome = Simulation(
        [deployment.links for deployment in deployments],
        program,
        rounds=model.rounds,
        runs=len(signals),
        faults=faults,
        timing=timing,
        limits=limits,
        seed=seed,
        reach=reach,
    ).simulate()
    outputs = np.full((*signals.shape[:-1], model.out_features(signals.shape[-1])), np.nan, model.dtype)
    for (run, i), result in outcome.results.items():
        if result.output is not None:
            outputs[run, ..., i, :] = result.output
    return SimulatedInference(outputs, outcome)
