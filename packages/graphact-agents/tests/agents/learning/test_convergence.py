"""Learning reaches a known optimum, with and without loss.

That all nodes agree proves nothing (they would agree on biased answers, too), so distances are to the optimum.
"""

import pytest

from agents.learning.problems import TOO_SHORT_TO_REPEAT, least_squares
from graphact_agents import Faults

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("steps", "faults", "bound"),
    [(250, Faults(), 1e-8), (300, Faults(link_loss=0.3), 1e-8), (300, Faults(loss=0.3), 1e-6)],
    ids=["no loss", "both ways", "one way"],
)
def test_the_optimum_is_reached(steps, faults, bound):
    problem = least_squares()
    training = problem.train(steps, faults=faults, timing=TOO_SHORT_TO_REPEAT)
    counters = training.counters
    assert counters.links_missed > 0.25 * (counters.links_used + counters.links_missed) or faults == Faults()
    assert counters.resent <= counters.data_sent / 100  # only in the preparation
    assert problem.distance(training) < bound


def test_the_optimum_is_reached_through_crashes():
    faults = Faults(loss=0.2, crash=0.02, downtime=0.01, duplicate=0.1, partition=0.05, partition_time=0.01)
    problem = least_squares()
    training = problem.train(300, faults=faults, timing=TOO_SHORT_TO_REPEAT, seed=2)
    assert training.crashes > 20
    assert len({state.steps for state in training.states}) > 1  # those that crashed made fewer steps
    assert problem.distance(training) < 1e-6
