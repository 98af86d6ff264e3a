"""Random networks, models and faults, by number: what agents promise must hold for every one.

python packages/graphact-agents/tests/agents/soak.py --seeds 10000     all of them; the first that fails is printed
python packages/graphact-agents/tests/agents/soak.py --seed 4711       one of them again, with what happened
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[3] / "graphact" / "tests"))
import graphact
from agents.replay import answered_links, dense_matrix, replay, replay_inference
from agents.simulations import HostileFaults, HostileSimulation
from graphact_agents import Deployment, Limits, Timing, simulate_inference
from graphact_agents.log import RoundClosed
from graphact_agents.simulation import SimulatedInference
from support.activations import ON_AGENTS
from support.on_agents import deploy

TOLERANCE = 1e-12
SECRET = bytes(range(32))


@dataclass(frozen=True)
class Scenario:
    """One number's network, signals and misfortunes."""

    seed: int
    graph: graphact.Graph
    model: torch.nn.Module
    nodes: list[Deployment]
    signals: np.ndarray
    faults: HostileFaults
    timing: Timing
    limits: Limits

    def run(self) -> SimulatedInference:
        options = dict(faults=self.faults, timing=self.timing, limits=self.limits, seed=self.seed)
        return simulate_inference(self.nodes, self.signals, simulation=HostileSimulation, **options)


def scenario(seed):
    """The scenario of a number, always the same."""
    rng = np.random.default_rng(seed)
    graph = random_network(rng)
    model = random_model(rng, seed)
    batch = [(), (1,), (3,), (2, 2)][rng.integers(4)]
    signals = rng.normal(size=(int(rng.integers(2, 5)), *batch, graph.num_nodes, model.config()["features"][0]))
    timing = Timing(slot=float(rng.choice([0.05, 0.18])), patience=int(rng.integers(1, 4)))
    limits = Limits() if rng.random() < 0.8 else Limits(1, 4, 256, 256)
    nodes = deploy(model, graph, epoch=seed, secret=SECRET)
    faults = random_faults(rng)
    late = np.random.default_rng([seed, 1])  # what came later changes nothing of what there was
    if late.random() < 0.4 and faults != HostileFaults():
        faults = replace(faults, clock=float(late.uniform(0, 0.4)) if late.random() < 0.6 else 0.0)
        faults = replace(faults, poison=float(late.uniform(0, 0.6)) if late.random() < 0.6 else 0.0)
    return Scenario(seed, graph, model, nodes, signals, faults, timing, limits)


def random_network(rng):
    size = int(rng.integers(1, 8))
    edges = rng.random((size, size)) < rng.choice([0.0, 0.3, 0.6, 1.0], p=[0.05, 0.35, 0.4, 0.2])
    if rng.random() < 0.6:
        edges = np.triu(edges) | np.triu(edges).T
    if rng.random() < 0.6:
        np.fill_diagonal(edges, False)
    weights = rng.choice([-1.0, 1.0], edges.shape, p=[0.2, 0.8]) * rng.uniform(0.2, 1.0, edges.shape)
    weights /= max(1.0, np.abs(np.where(edges, weights, 0.0)).sum(1).max())
    target, source = np.nonzero(edges)
    return graphact.Graph.from_edge_index(np.stack([source, target]), weights[target, source], num_nodes=size)


def random_model(rng, seed):
    name = str(rng.choice([*ON_AGENTS, "fir"]))
    layers = int(rng.integers(1, 3))
    features = rng.integers(1, 4, layers + 1).tolist()
    order = rng.integers(0, 4, layers).tolist()
    out_features = None if rng.random() < 0.2 else int(rng.integers(1, 3))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if name == "fir":
            return graphact.nn.FIR(features, order=order, out_features=out_features).double()
        hops = 1 if name.endswith("-l") else int(rng.integers(1, 4))
        options = dict(bias=bool(rng.random() < 0.3), closed=bool(rng.random() < 0.3), gamma=1.0, start="uniform")
        options |= dict(per_feature=bool(rng.random() < 0.5), learn_gamma=bool(rng.random() < 0.5))
        return graphact.nn.GCNN(
            features, order=order, activation=name, hops=hops, out_features=out_features, **options
        ).double()


def random_faults(rng):
    def sometimes(value, share=0.5):
        return float(value) if rng.random() < share else 0.0

    if rng.random() < 0.05:
        return HostileFaults()
    return HostileFaults(
        loss=sometimes(rng.uniform(0, 0.5), 0.8),
        link_loss=sometimes(rng.uniform(0, 0.3), 0.2),
        delay=float(rng.choice([0.0005, 0.005, 0.03])),
        jitter=sometimes(rng.uniform(0, 0.05)),
        reorder=sometimes(rng.uniform(0, 0.3)),
        duplicate=sometimes(rng.uniform(0, 0.5)),
        corrupt=sometimes(rng.uniform(0, 0.2)),
        replay=sometimes(rng.uniform(0, 0.5)),
        forge=sometimes(rng.uniform(0, 0.3)),
        crash=sometimes(rng.uniform(0, 0.5)),
        downtime=float(rng.uniform(0, 3)),
        partition=sometimes(rng.uniform(0, 0.8)),
        partition_time=float(rng.uniform(0, 2)),
        skew=sometimes(rng.uniform(0, 0.06)),
    )


def check(case):
    """Everything agents promise. Returns what happened."""
    answer = case.run()
    outcome, rounds = answer.outcome, case.nodes[0].model.rounds
    assert set(outcome.results) >= outcome.survived, "a node that was up has not ended its run"
    for (run, i), result in outcome.results.items():
        longest = max(rounds, 1) * case.timing.slot
        assert result.finished <= result.started + longest + 1e-9, f"run {run} at node {i} went past its deadline"
        closed = [r for r in outcome.logs[i].records if isinstance(r, RoundClosed) and r.run == run]
        assert [r.used for r in closed] == list(result.used), f"run {run} at node {i} used other links than it logged"
        for used, missed in zip(result.used, result.missed, strict=True):
            assert sorted((*used, *missed)) == list(case.nodes[i].links.hears), "a link is neither used nor missed"
    check_replay(case, answer)
    check_complete(case, answer)
    counters = outcome.counters
    lacked_room = counters.overflow and counters.unanswered  # a full queue, and the sender has no room for it either
    if case.faults == HostileFaults() and not lacked_room:
        check_without_faults(case, answer)
    return answer


def check_replay(case, answer):
    """Nothing stale, repeated, foreign or of a dead node was used: the logs alone give the same numbers."""
    expected = replay_inference(case.nodes, case.signals, answer.outcome)
    for run, i in answer.outcome.results:
        actual, wanted = answer.outputs[run, ..., i, :], expected[run, ..., i, :]
        error = np.abs(actual - wanted) / np.maximum(1.0, np.abs(wanted))
        assert error.max() <= TOLERANCE, f"run {run} at node {i} is off the replay by {error.max()}"


def check_complete(case, answer):
    """A result is complete exactly if it is that of the centralised model."""
    logs, matrix = [log.records for log in answer.outcome.logs], dense_matrix(case.nodes)
    model, count = case.nodes[0].model, len(case.nodes)
    hears = np.zeros(matrix.shape, bool)
    for i, node in enumerate(case.nodes):
        hears[i, list(node.links.hears)] = True
    every = np.broadcast_to(hears, (model.rounds, count, count)), np.ones((model.rounds, count), bool)
    for run, x in enumerate(case.signals):
        whole, expected = whole_answers(logs, run, hears, model.rounds), replay(model, matrix, x, *every)
        for i in (i for i in range(count) if (run, i) in answer.outcome.results):
            told = answer.outcome.results[run, i].complete
            assert told == whole[i], f"run {run} at node {i} is called {'complete' if told else 'incomplete'}"
            if told:
                error = np.abs(answer.outputs[run, ..., i, :] - expected[..., i, :])
                error = error / np.maximum(1.0, np.abs(expected[..., i, :]))
                assert error.max() <= TOLERANCE, f"run {run} at node {i} is complete, and off by {error.max()}"


def whole_answers(logs, run, hears, rounds):
    """The nodes that had every link in every round, at themselves and at all nodes that their answer depends on."""
    used, closed = answered_links(logs, run, rounds)
    whole = np.ones(len(hears), bool)
    for r in range(rounds):
        whole = whole & closed[r] & np.array([(used[r, i] & whole)[hears[i]].all() for i in range(len(hears))])
    return whole


def check_without_faults(case, answer):
    assert all(result.complete for result in answer.outcome.results.values())
    with torch.no_grad():
        expected = case.model(torch.from_numpy(case.signals), case.graph).numpy()
    np.testing.assert_allclose(answer.outputs, expected, rtol=TOLERANCE, atol=TOLERANCE)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many scenarios (default: 10,000)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (default: 0)")
    parser.add_argument("--seed", type=int, help="this one only, and say what happened")
    options = parser.parse_args(arguments)
    from agents.rollouts import check_rollout  # which takes networks and faults from here

    torch.set_num_threads(1)
    if options.seed is not None:
        case = scenario(options.seed)
        print(f"{case.graph}\n{case.model}\n{case.faults}\n{case.timing}\n{case.limits}")  # noqa: T201
        outcome = check(case).outcome
        print(f"{outcome.counters}\n{outcome.network}\ncrashes: {outcome.crashes}")  # noqa: T201
        print(f"rollout into another deployment: {check_rollout(options.seed)}")  # noqa: T201
        return 0
    begun, used, missed, crashes, rollouts = time.perf_counter(), 0, 0, 0, Counter()
    for seed in range(options.first, options.first + options.seeds):
        try:
            outcome = check(scenario(seed)).outcome
            rollouts.update(check_rollout(seed))
        except Exception as error:
            print(f"\nseed {seed} fails: {type(error).__name__}: {error}")  # noqa: T201
            print(f"again: python packages/graphact-agents/tests/agents/soak.py --seed {seed}")  # noqa: T201
            return 1
        used, missed = used + outcome.counters.links_used, missed + outcome.counters.links_missed
        crashes += outcome.crashes
        if (seed + 1) % 500 == 0:
            print(f"{seed + 1 - options.first} seeds, {time.perf_counter() - begun:.0f} s", flush=True)  # noqa: T201
    print(  # noqa: T201
        f"{options.seeds} seeds hold: {used + missed} links awaited, {missed / max(1, used + missed):.1%} missed, "
        f"{crashes} crashes, every result within {TOLERANCE} of the replay, none past its deadline;\n"
        f"rollouts: {rollouts['results']} results, {rollouts['after']} of them in another deployment, "
        f"{rollouts['other_epoch']} authentic messages of the other one refused"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
