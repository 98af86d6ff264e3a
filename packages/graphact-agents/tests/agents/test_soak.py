"""Deterministic simulation: what agents promise, under random faults. `make soak` runs 10,000 of these seeds."""

import dataclasses
import re
from collections import Counter

import numpy as np
import pytest

from agents import rollouts, soak
from agents.simulations import HostileFaults
from graphact_agents import Node
from graphact_agents.log import UsedRuns
from graphact_agents.runs import RunInProgress
from support.on_agents import deploy

SEEDS = 240


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_seeds(first):
    for seed in range(first, first + 20):
        try:
            soak.check(soak.scenario(seed))
        except Exception as error:
            raise AssertionError(
                f"seed {seed} fails; again: python packages/graphact-agents/tests/agents/soak.py --seed {seed}"
            ) from error


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, 60))
def test_values_of_two_deployments_never_mix(first):
    counts = Counter()
    for seed in range(first, first + 60):
        counts.update(rollouts.check_rollout(seed))
    assert min(counts.values()) > 100  # results in both, complete ones, and messages of the other that were refused


def test_rollouts_between_deployments_of_one_number_are_found(monkeypatch):
    """The check can fail: without the number of the deployment values mix."""
    monkeypatch.setattr(rollouts, "deploy", lambda *given, epoch, **options: deploy(*given, epoch=1, **options))
    with pytest.raises(AssertionError, match="is off the replay of its deployment"):
        [rollouts.check_rollout(seed) for seed in range(20)]


def test_the_seeds_meet_every_fault():
    met = np.zeros(len(dataclasses.fields(HostileFaults)), bool)
    crashes = replayed = forged = partitions = poisoned = 0
    for seed in range(60):
        case = soak.scenario(seed)
        met |= [getattr(case.faults, f.name) != f.default for f in dataclasses.fields(HostileFaults)]
        outcome = case.run().outcome
        crashes += outcome.crashes
        replayed += outcome.network["replayed"]
        forged += outcome.counters.forged
        partitions += case.faults.partition > 0
        poisoned += outcome.counters.ahead
    assert met.all()
    assert min(crashes, replayed, forged, partitions, poisoned) > 10


def test_full_queues_cost_links_and_are_told():
    """A neighbour that hears fewer runs ahead; what finds no room at either end is missed, without any fault."""
    answer = soak.check(soak.scenario(9724))
    assert answer.outcome.counters.overflow > 0
    assert not all(result.complete for result in answer.outcome.results.values())


def test_a_seed_decides_everything():
    case = soak.scenario(17)
    first, second = case.run(), soak.scenario(17).run()
    np.testing.assert_array_equal(first.outputs, second.outputs)
    assert first.outcome.counters == second.outcome.counters
    assert first.outcome.network == second.outcome.network
    assert [log.records for log in first.outcome.logs] == [log.records for log in second.outcome.logs]


def accepts_stale_rounds(self, message, now):
    if self._active and message.round < self._active.round:
        message = message._replace(round=self._active.round)
    return original_hear(self, message, now)


def uses_more_than_it_logs(self):
    used, missed = original_close(self)
    return used[:-1] if used else used, missed


def forgets_marks(self, message):
    original_accept(self, message._replace(mark=False))


def uses_numbers_twice(self, run):
    return run


original_hear, original_close = Node._on_value, RunInProgress.close_round
original_accept = RunInProgress.accept


def check_some(seeds):
    for seed in range(seeds):
        soak.check(soak.scenario(seed))


@pytest.mark.parametrize(
    ("owner", "method", "fault", "seeds"),
    [
        (Node, "_on_value", accepts_stale_rounds, 20),
        (RunInProgress, "close_round", uses_more_than_it_logs, 20),
        (RunInProgress, "accept", forgets_marks, 20),
        (UsedRuns, "next_free", uses_numbers_twice, 60),
    ],
)
def test_broken_nodes_are_found(owner, method, fault, seeds, monkeypatch):
    """The checks can fail: a node with a fault does not get through a few seeds."""
    monkeypatch.setattr(owner, method, fault)
    with pytest.raises(AssertionError, match="at node"):
        check_some(seeds)


def test_a_failing_seed_is_printed_and_runs_again_by_its_number(monkeypatch, capsys):
    monkeypatch.setattr(soak, "TOLERANCE", 1e-40)
    assert soak.main(["--seeds", "30"]) == 1
    number = re.search(
        r"again: python packages/graphact-agents/tests/agents/soak.py --seed (\d+)", capsys.readouterr().out
    )[1]
    with pytest.raises(AssertionError, match="off the replay"):
        soak.main(["--seed", number])
    monkeypatch.undo()
    assert soak.main(["--seed", number]) == 0
    printed = capsys.readouterr().out
    assert "Faults(" in printed
    assert "Counters(" in printed
