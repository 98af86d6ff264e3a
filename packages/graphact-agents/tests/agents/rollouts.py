"""Simulated networks in which nodes restart into another deployment, by number: values of two never mix."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from agents import soak
from agents.replay import replay_complete, replay_inference
from graphact_agents import Limits, MemoryLog, Node, Timing, infer
from graphact_agents.simulation import Simulation
from support.on_agents import deploy

RUNS = 6
FORTH, BACK = 0.7, 0.2
"""How often a node that comes back is in the second deployment, and from there again in the first."""


class Rollout(Simulation):
    """A simulation whose nodes come back in one of two deployments, each with a log of its own.

    ``deployed`` maps (run, node) to the deployment that the node was in.
    """

    def __init__(self, deployments, signals, **options):
        self.deployments, self.signals = deployments, signals
        before, after = ([node.links for node in nodes] for nodes in deployments)
        rounds = max(nodes[0].model.rounds for nodes in deployments)
        super().__init__(before, self._program_of, rounds=rounds, runs=len(signals), **options)
        self.logs = [self.outcome.logs, [MemoryLog() for _ in before]]
        self.current, self.deployed = [0] * len(before), {}
        neighbors = {p.node: frozenset({*p.neighbors, *q.neighbors}) for p, q in zip(before, after, strict=True)}
        self.network.neighbors = neighbors
        self._pairs = {(min(i, j), max(i, j)) for i, others in neighbors.items() for j in others}

    def _program_of(self, i, run):
        self.deployed[run, i] = self.current[i]
        node = self.deployments[self.current[i]][i]
        return infer(node.model, node.row, self.signals[run, ..., i, :])

    def _start(self, i):
        if self.network.now > 0 and self._random.random() < (BACK if self.current[i] else FORTH):
            self.current[i] = 1 - self.current[i]
        links, log = self.deployments[self.current[i]][i].links, self.logs[self.current[i]][i]
        self._lives += 1
        self.nodes[i] = Node(links, log, self.timing, self.limits, seed=self.seed + 1000 * self._lives)
        return self.nodes[i]


def rollout(seed):
    """The rollout of a number, always the same: two graphs and models, one set of keys or two, random faults."""
    rng = np.random.default_rng([seed, 2])
    first = soak.random_network(rng)
    size = first.num_nodes
    while (second := soak.random_network(rng)).num_nodes != size:
        pass
    models = [soak.random_model(rng, seed)]
    features = models[0].config()["features"][0]
    while (other := soak.random_model(rng, int(rng.integers(2**31)))).config()["features"][0] != features:
        pass
    models.append(models[0] if rng.random() < 0.3 else other)
    secrets = [soak.SECRET, soak.SECRET if rng.random() < 0.7 else bytes(32)]
    graphs = [first, first if rng.random() < 0.5 else second]
    nodes = [
        deploy(model, graph, epoch=2 * seed + number, secret=secret)
        for number, (model, graph, secret) in enumerate(zip(models, graphs, secrets, strict=True))
    ]
    faults = replace(soak.random_faults(rng), crash=float(rng.uniform(0.2, 0.7)), downtime=float(rng.uniform(0, 1)))
    signals = rng.normal(size=(RUNS, size, features))
    timing = Timing(slot=float(rng.choice([0.05, 0.18])), patience=int(rng.integers(1, 4)))
    return Rollout(nodes, signals, faults=faults, timing=timing, limits=Limits(), seed=seed)


def check_rollout(seed):
    """Each result is that of its own deployment alone, by the logs of that deployment; what happened."""
    case = rollout(seed)
    outcome = case.simulate()
    counts = {"results": 0, "after": 0, "complete": 0, "other_epoch": outcome.counters.other_epoch}
    for number, nodes in enumerate(case.deployments):
        evidence = SimpleNamespace(logs=case.logs[number])
        expected, central = replay_inference(nodes, case.signals, evidence), replay_complete(nodes, case.signals)
        for (run, i), result in outcome.results.items():
            if case.deployed[run, i] != number:
                continue
            error = np.abs(result.output - expected[run, i]) / np.maximum(1.0, np.abs(expected[run, i]))
            assert error.max() <= soak.TOLERANCE, (
                f"run {run}, node {i} is off the replay of its deployment by {error.max()}"
            )
            if result.complete:
                error = np.abs(result.output - central[run, i]) / np.maximum(1.0, np.abs(central[run, i]))
                assert error.max() <= soak.TOLERANCE, f"run {run} at node {i} is complete, and off by {error.max()}"
            counts["results"] += 1
            counts["after"] += number
            counts["complete"] += result.complete
    return counts
