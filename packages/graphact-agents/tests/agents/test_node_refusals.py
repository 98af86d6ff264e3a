"""Messages and programs that one node drops, bounds and refuses."""

import numpy as np
import pytest

from agents.networks import links_of, pair, pass_on
from agents.one_node import lone_node, pending_bytes, result_of, said, talk
from graphact_agents import Exchange, Limits, Timing
from graphact_agents.log import Began
from graphact_agents.messages import TAG_BYTES, Kind, Payload, authenticate
from graphact_agents.node import OTHER_DEPLOYMENT, OTHER_VERSION


def test_requests_reach_back_to_the_run_before_and_no_further():
    node = lone_node()
    for run in range(3):
        node.begin(run, talk(float(run)), now=run)
        node.receive(said(node, 1, run=run), now=run)
        node.take_outgoing()
    for run, answers in ((0, 0), (1, 1), (2, 1), (3, 0)):
        node.receive(said(node, 1, run=run, kind=Kind.REQUEST), now=9.0)
        assert len(node.take_outgoing()) == answers
    assert node.last_heard[1] == 9.0


def test_a_node_goes_back_to_free_numbers_alone():
    node = lone_node()
    node.begin(5, talk(1.0), now=0.0)
    with pytest.raises(ValueError, match="run must not be used up, nor another in progress, got 3"):
        node.rewind_to_run(3)
    node.advance(9.0)
    with pytest.raises(ValueError, match="run must not be used up"):
        node.rewind_to_run(5)
    node.rewind_to_run(3)
    assert node.run == 2


def test_a_neighbor_of_another_version_is_named():
    node = lone_node()
    body = bytearray(said(node, 1, kind=Kind.HELLO, program=0)[:-TAG_BYTES])
    body[2] = 9
    node.receive(bytes(body) + authenticate(bytes(body), node.links.keys[1]), now=0.0)
    assert node.refusals == {1: OTHER_VERSION}


def test_a_neighbor_of_another_deployment_is_named():
    """By its greeting alone, which both ends send when they start: values of it are many."""
    node = lone_node()
    node.receive(said(node, 1, epoch=2), now=0.0)
    assert node.refusals == {}
    node.receive(said(node, 1, kind=Kind.HELLO, program=0, epoch=2), now=0.0)
    assert node.refusals == {1: OTHER_DEPLOYMENT}
    assert node.counters.other_epoch == 2


@pytest.mark.parametrize(
    ("begun", "latest"),
    [
        ({1: 900}, 900),  # nobody else is there to ask
        ({1: 900, 2: 899}, 900),
        ({1: 900, 2: 20}, 36),  # towards those that are further: they may have gone on while others were down
        ({1: 2**31, 2: 20, 3: 21}, 37),
        ({1: 900, 2: 901, 3: 3}, 901),
        ({1: 900, 2: 901, 3: 3, 4: 4}, 20),  # two of four are no majority
        ({1: 900, 2: 901, 3: 902, 4: 4}, 902),
        ({1: 1, 2: 2, 3: 3}, 3),
    ],
)
def test_a_majority_of_the_links_decides_how_far_runs_are(begun, latest):
    node = lone_node(tuple(begun))
    for j, run in begun.items():
        node.receive(said(node, j, run=run), now=0.0)
    assert node.latest_heard == latest
    for j, run in begun.items():  # however often they say it
        node.receive(said(node, j, run=run, round_=1), now=1.0)
    assert node.latest_heard == latest


def test_neighbors_that_were_not_heard_for_many_runs_have_no_say():
    node = lone_node((1, 2))
    node.receive(said(node, 1, run=7), now=0.0)
    for run in range(1, 22):
        node.receive(said(node, 2, run=900), now=20.0 * run)
        assert node.latest_heard == max(7, run - 1) + 16
        node.begin(run, talk(1.0), now=20.0 * run)
        node.advance(20.0 * run + 9.0)
    node.receive(said(node, 2, run=901), now=500.0)  # twenty runs after the last word of 1
    assert node.latest_heard == 901


def test_recordings_of_neighbors_that_are_down_have_no_say():
    """Whoever sends their last values again and again would keep a node from the runs that the others are in."""
    node = lone_node((1, 2, 3))
    recordings = [said(node, j, run=7) for j in (1, 2)]
    for run in range(1, 22):
        now = 20.0 * run
        for recording in recordings:
            node.receive(recording, now=now)
        node.receive(said(node, 3, run=900 + run), now=now)
        node.begin(run, talk(1.0), now=now)
        node.advance(now + 9.0)
    node.receive(said(node, 3, run=922), now=440.0)
    assert node.latest_heard == 922
    node.receive(recordings[0], now=4000.0)  # when nobody was heard for long
    assert node.latest_heard == 922


def test_a_captured_node_cannot_walk_the_numbers_away_however_seldom_signals_come():
    """Nodes 1 and 2 answer in each run, 3 is down, and 4 claims to be further ahead, as far as it is believed."""
    node = lone_node((1, 2, 3, 4))
    for count in range(100):
        now, run = 3600.0 * count, max(node.run + 1, node.latest_heard)
        assert run <= 17 * count
        node.begin(run, talk(1.0), now=now)
        for j in (1, 2):
            node.receive(said(node, j, run=run), now=now)
        node.advance(now + 9.0)
        node.receive(said(node, 4, run=node.run + 2**32), now=now + 1800.0)
    assert node.counters.ahead == 0


def test_a_captured_node_cannot_walk_the_numbers_away_from_one_whose_signals_are_frequent():
    """Node 0 makes 60 runs while 1 and 2 make one."""
    node = lone_node((1, 2, 3))
    for count in range(600):
        now, run = float(count), max(node.run + 1, node.latest_heard)
        assert run <= 17 * count
        node.begin(run, talk(1.0), now=now)
        for j in (1, 2) if count % 59 == 0 else ():
            node.receive(said(node, j, run=count), now=now)
        node.advance(now + 0.9)
        node.advance(now + 1.0)
        node.receive(said(node, 3, run=node.run + 2**32), now=now + 0.5)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(run=3), "stale"),
        (dict(run=4, round_=0), "stale"),
        (dict(run=4, round_=1, program=2), "misfit"),
        (dict(run=4, round_=1, payload=Payload.from_array(np.zeros(2))), "misfit"),
        (dict(run=4, round_=1, payload=Payload.from_array(np.zeros(1, "f4"))), "misfit"),
        (dict(run=4, round_=1, epoch=2), "other_epoch"),
        (dict(run=4, round_=1, sender=3), "foreign"),
        (dict(run=4, round_=1, recipient=2), "foreign"),
    ],
)
def test_what_does_not_belong_here_is_counted_and_dropped(change, reason):
    node = lone_node((1, 2))
    node.begin(3, talk(1.0), now=0.0)
    for j in (1, 2):
        node.receive(said(node, j, run=3), now=0.0)
    node.begin(4, talk(1.0, rounds=2), now=1.0)
    for j in (1, 2):
        node.receive(said(node, j, run=4), now=1.0)
    before = node.counters.received
    sender = change.pop("sender", 1)
    node.receive(said(node, sender, **change), now=1.1)
    assert getattr(node.counters, reason) == 1
    assert node.counters.received == before
    node.receive(said(node, 2, run=4, round_=1), now=1.2)
    node.advance(5.0)
    assert node.take_results()[-1].used[-1] == (2,)


def test_duplicates_are_dropped_and_the_first_value_stays():
    node = lone_node((1, 2))
    node.receive(said(node, 1, value=1.0), now=0.0)  # before the run began
    node.receive(said(node, 1, value=2.0), now=0.0)
    node.begin(0, talk(9.0), now=0.0)
    node.receive(said(node, 1, value=3.0), now=0.0)
    node.receive(said(node, 2, value=4.0), now=0.0)
    node.receive(said(node, 2, value=5.0), now=0.0)  # its round is over
    assert result_of(node).output == [{1: 1.0, 2: 4.0}]
    assert (node.counters.duplicate, node.counters.stale) == (2, 1)


def test_early_values_wait_for_their_round_and_run():
    node = lone_node()
    for run, r in ((1, 1), (1, 0), (0, 0)):
        node.receive(said(node, 1, run=run, round_=r, value=10.0 * run + r), now=0.0)
    node.begin(0, talk(0.0), now=0.0)
    assert result_of(node).output == [{1: 0.0}]
    node.begin(1, talk(0.0, rounds=2), now=1.0)
    assert result_of(node).output == [{1: 10.0}, {1: 11.0}]
    assert pending_bytes(node) == 0


def test_queues_are_bounded_for_each_neighbor():
    node = lone_node((1, 2), limits=Limits(pending_messages=10, pending_bytes=1000))
    for r in range(1000):
        node.receive(said(node, 1, round_=r), now=0.0)
    assert pending_bytes(node) == 80
    assert node.counters.overflow == 990
    node.receive(said(node, 2), now=0.0)
    assert pending_bytes(node) == 88
    for run in range(1, 1000):
        node.receive(said(node, 1, run=run), now=0.0)
    assert pending_bytes(node) <= 8 * 4  # the latest runs of 1, and what 2 said
    node.receive(said(node, 1, run=5), now=0.0)
    assert node.counters.stale == 1
    node.begin(0, talk(0.0), now=0.0)
    assert node.log.records == [Began(0, 1)]  # waits for 1, whose early value was forgotten
    node.receive(said(node, 1), now=0.1)
    assert result_of(node).output == [{1: 5.0, 2: 5.0}]


def test_bytes_of_queues_are_bounded():
    node = lone_node(limits=Limits(pending_bytes=20))
    for r in range(10):
        node.receive(said(node, 1, round_=r), now=0.0)
    assert pending_bytes(node) == 16


def test_the_archive_is_bounded():
    node = lone_node(limits=Limits(archive_bytes=20))
    node.begin(0, talk(1.0, rounds=5), now=0.0)
    for r in range(4):
        node.receive(said(node, 1, round_=r), now=0.0)
    node.take_outgoing()
    for r in range(5):
        node.receive(said(node, 1, round_=r, kind=Kind.REQUEST), now=0.5)
    assert node.counters.resent == 2


def test_greetings_tell_the_run_and_a_recorded_answer_is_refused():
    nodes = pair()
    nodes[0].begin(7, talk(1.0), now=0.0)
    nodes[0].take_outgoing()
    nodes[1].greet()
    delivered = pass_on(nodes, 0.0)
    assert nodes[1].welcomed_by == {0}
    assert nodes[1].latest_heard == 7
    welcome = delivered[-1][2]
    nodes[1].greet()
    nodes[1].receive(welcome, 0.0)
    assert nodes[1].welcomed_by == set()
    assert nodes[1].counters.stale == 1


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        (Exchange({}, shape=(1,), dtype=float), "one array for each of \\(1,\\), got \\(\\)"),
        (Exchange({1: np.zeros(1)}), "must say the shape and dtype it expects"),
        (Exchange(np.zeros(10**6)), "use smaller batches"),
    ],
)
def test_exchanges_that_make_no_sense(exchange, message):
    def program():
        yield exchange

    node = lone_node()
    with pytest.raises(ValueError, match=message):
        node.begin(0, program(), now=0.0)
    assert not node.busy


@pytest.mark.parametrize(
    ("name", "value"), [("slot", 0.0), ("request_after", -1.0), ("backoff", 0.5), ("patience", 0), ("jitter", 0)]
)
def test_bad_timing(name, value):
    with pytest.raises(ValueError, match=f"{name} must be"):
        Timing(**{name: value})


def test_bad_links():
    place = links_of([(0, 1), (1, 0)], 2)[0]
    with pytest.raises(ValueError, match="hears must be other nodes than 0, ascending, each once"):
        type(place)(0, 1, (1, 0), (), {})
    with pytest.raises(ValueError, match="keys must be those of the neighbours"):
        type(place)(0, 1, (1,), (), {})
    with pytest.raises(ValueError, match="keys must have 32 bytes"):
        type(place)(0, 1, (1,), (), {1: b"short"})
    with pytest.raises(ValueError, match="epoch must lie between 0 and 2\\^64 - 1, got -1"):
        type(place)(0, -1, (1,), (), {1: bytes(32)})
    with pytest.raises(ValueError, match="nodes must have numbers from 0 to 2\\^32 - 1"):
        type(place)(0, 1, (2**32,), (), {2**32: bytes(32)})
