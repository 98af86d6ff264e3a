"""The state machine of one node, step by step."""

import numpy as np
import pytest

from agents.networks import links_of, pair, pass_on
from agents.one_node import lone_node, result_of, said, talk
from graphact_agents import Direction, Exchange, MemoryLog, Node, Timing
from graphact_agents.log import Began, RoundClosed
from graphact_agents.messages import Kind, decode


def test_two_nodes_exchange_and_log_before_they_go_on():
    nodes = pair()
    for node, value in zip(nodes, (1.0, 2.0), strict=True):
        node.begin(0, talk(value, rounds=2), now=0.0)
    delivered = pass_on(nodes, now=0.01)
    assert [result_of(node).output for node in nodes] == [[{1: 2.0}, {1: 3.0}], [{0: 1.0}, {0: 2.0}]]
    assert len(delivered) == 4
    assert nodes[0].log.records == [Began(0, 1), RoundClosed(0, 0, (1,)), RoundClosed(0, 1, (1,))]
    assert nodes[0].counters.links_missed == 0


def test_nothing_is_sent_before_the_log_has_it():
    class Watching(MemoryLog):
        def append(self, record):
            assert not node.take_outgoing()
            super().append(record)

    node = lone_node()
    node.log = Watching()
    node.begin(0, talk(1.0, rounds=2), now=0.0)
    node.take_outgoing()
    node.receive(said(node, 1), now=0.1)
    assert node.log.records[-1] == RoundClosed(0, 0, (1,))
    assert len(node.take_outgoing()) == 1


@pytest.mark.parametrize("kind", [Began, RoundClosed])
def test_a_log_that_fails_keeps_the_value_back_and_costs_a_run(kind):
    class Full(MemoryLog):
        is_full = True

        def append(self, record):
            if self.is_full and isinstance(record, kind):
                raise OSError("the log cannot be written")
            super().append(record)

    node = lone_node()
    node.log = Full()
    node.begin(0, talk(1.0, rounds=2), now=0.0)
    assert bool(node.take_outgoing()) == (kind is RoundClosed)
    node.receive(said(node, 1), now=0.1)
    assert node.take_outgoing() == []
    (result,) = node.take_results()
    assert (result.run, result.output, result.complete) == (0, None, False)
    assert "log cannot be written" in result.failure
    node.log.is_full = False
    node.begin(1, talk(1.0), now=1.0)
    node.receive(said(node, 1, run=1), now=1.1)
    assert result_of(node).complete


def test_a_deadline_closes_a_round_without_the_missing():
    node = lone_node((1, 2))
    node.begin(0, talk(1.0), now=10.0)
    node.receive(said(node, 2), now=10.1)
    node.advance(10.999)
    assert node.busy
    node.advance(11.0)
    result = result_of(node)
    assert result.output == [{2: 5.0}]
    assert (result.used, result.missed, result.complete) == (((2,),), ((1,),), False)
    assert result.finished == 11.0
    assert node.deadline is None


def test_a_result_tells_which_run_it_was_and_when():
    node = lone_node()
    node.begin(4, talk(1.0), now=10.5, start=10.0, program_id=7)
    node.receive(said(node, 1, run=4, program=7), now=10.75)
    result = result_of(node)
    assert (result.run, result.program_id, result.started, result.finished) == (4, 7, 10.0, 10.75)
    assert node.take_results() == []


def test_deadlines_count_from_the_start_of_the_run():
    node = lone_node((1,))
    node.begin(0, talk(1.0, rounds=3), now=10.5, start=10.0)
    node.advance(11.0)
    assert node.log.records[-1] == RoundClosed(0, 0, ())
    node.advance(13.0)  # a node that slept closes all its rounds together
    assert result_of(node).used == ((), (), ())


def test_a_dead_node_does_not_make_others_miss_each_other():
    """0 - 1 - 2 - 3 in a line, 0 never starts: 1 waits for it, and 2 and 3 for 1, but no other link is missed."""
    edges = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]
    nodes = [Node(p, MemoryLog(), Timing(slot=1.0, patience=9), seed=0) for p in links_of(edges, 4)]
    for node in nodes[1:]:
        node.begin(0, talk(1.0, rounds=4), now=0.0)
    for now in np.arange(0.0, 4.01, 0.05):
        for node in nodes[1:]:
            node.advance(now)
        pass_on(nodes, now)
    for node in nodes[1:]:
        assert {j for missed in result_of(node).missed for j in missed} <= {0}


def test_silent_neighbors_are_not_waited_for_until_they_speak_again():
    node = lone_node((1, 2))
    node.begin(0, talk(1.0, rounds=6), now=0.0)
    for r in range(2):
        node.receive(said(node, 2, round_=r), now=r + 0.1)
        node.advance(r + 1.0)
    node.receive(said(node, 2, round_=2), now=2.1)
    assert node.log.records[-1] == RoundClosed(0, 2, (2,))  # at once, without 1
    node.receive(said(node, 1, round_=0), now=2.2)  # late, but alive
    node.receive(said(node, 2, round_=3), now=2.3)
    assert node.log.records[-1] == RoundClosed(0, 2, (2,))
    node.receive(said(node, 1, round_=3), now=2.4)
    assert node.log.records[-1] == RoundClosed(0, 3, (1, 2))


def test_requests_back_off_and_go_to_the_missing_alone():
    node = lone_node((1, 2))
    node.begin(0, talk(1.0), now=0.0)
    node.take_outgoing()
    node.receive(said(node, 2), now=0.01)
    asked = []
    while node.busy:
        now = node.deadline
        node.advance(now)
        for to, datagram in node.take_outgoing():
            message = decode(datagram, to, 1, {0: node.links.keys[to]})
            assert (to, message.kind, message.run, message.round) == (1, Kind.REQUEST, 0, 0)
            asked.append(now)
    np.testing.assert_allclose(asked, [0.1, 0.25, 0.475, 0.8125], atol=1e-6)
    assert node.counters.requests_sent == 4


def first_request(node):
    """When a node asks for the first time for what does not come."""
    node.begin(0, talk(1.0), now=0.0)
    node.take_outgoing()
    while not node.take_outgoing():
        node.advance(now := node.deadline)
        assert now < 1.0
    return now


def test_a_seed_decides_the_jitter():
    timing = Timing(slot=1.0, request_after=0.1, jitter=0.5)
    firsts = [first_request(Node(lone_node().links, MemoryLog(), timing, seed=seed)) for seed in (*range(20), 3)]
    assert len({*firsts}) == 20
    assert firsts[3] == firsts[-1]
    assert 0.1 <= min(firsts) < max(firsts) <= 0.15


def test_greetings_and_requests_as_they_go_over_the_wire():
    node = lone_node()
    node.begin(3, talk(1.0), now=0.0, program_id=2)
    node.take_outgoing()
    node.greet()
    node.advance(0.25)
    hello, request = (decode(datagram, to, 1, {0: node.links.keys[to]}) for to, datagram in node.take_outgoing())
    assert (hello.kind, hello.sender, hello.run, hello.program_id, hello.payload.content) == (Kind.HELLO, 0, 4, 0, b"")
    assert (request.kind, request.run, request.round, request.program_id) == (Kind.REQUEST, 3, 0, 2)
    assert (node.counters.greetings_sent, node.counters.requests_sent) == (1, 1)


def test_a_request_is_answered_with_the_same_bytes_but_not_at_once_again():
    node = lone_node()
    node.begin(0, talk(1.0, rounds=2), now=0.0)
    ((_, first),) = node.take_outgoing()
    request = said(node, 1, kind=Kind.REQUEST)
    node.receive(request, now=0.01)
    assert node.take_outgoing() == []
    node.receive(request, now=0.2)
    assert node.take_outgoing() == [(1, first)]
    for _ in range(100):
        node.receive(request, now=0.21)
    assert node.take_outgoing() == []
    assert (node.counters.resent, node.counters.unanswered) == (1, 101)


def test_a_value_is_sent_again_after_half_the_waiting_time_of_a_request():
    """Counted from the last time it went to the one that asks, whoever else asked since."""
    node = Node(lone_node((1, 2)).links, MemoryLog(), Timing(slot=9.0, request_after=0.5), seed=0)
    node.begin(0, talk(1.0), now=0.0)
    node.take_outgoing()
    asked = [(1, 0.249), (1, 0.25), (1, 0.499), (2, 0.25), (1, 0.5), (2, 0.499), (2, 0.5)]
    for j, now in asked:
        node.receive(said(node, j, kind=Kind.REQUEST), now=now)
        assert [to for to, _ in node.take_outgoing()] == ([j] if now in (0.25, 0.5) else []), (j, now)
    assert (node.counters.resent, node.counters.unanswered, node.counters.data_sent) == (4, 3, 6)


def test_run_numbers_are_never_used_twice():
    node = lone_node()
    node.begin(5, talk(1.0), now=0.0)
    with pytest.raises(RuntimeError, match="run 5 is in progress"):
        node.begin(6, talk(1.0), now=0.0)
    reborn = Node(node.links, node.log)  # after a crash in run 5
    for run in (5, 4):
        with pytest.raises(ValueError, match=f"run must be higher than 5, the last one of this node, got {run}"):
            reborn.begin(run, talk(2.0), now=1.0)
    reborn.receive(said(reborn, 1, run=5), now=1.0)
    assert reborn.counters.stale == 1
    reborn.begin(6, talk(2.0), now=1.0)


def test_directions():
    """0 is heard by 1 only: forward 1 hears 0, backward 0 hears 1, both ways both."""
    for direction, expected in (
        (Direction.FORWARD, [{}, {0: 0.0}]),
        (Direction.BACKWARD, [{1: 1.0}, {}]),
        (Direction.BOTH, [{1: 1.0}, {0: 0.0}]),
    ):
        nodes = [Node(place, MemoryLog()) for place in links_of([(1, 0)], 2)]
        for i, node in enumerate(nodes):
            node.begin(0, talk(float(i), direction=direction), now=0.0)
        pass_on(nodes, 0.0)
        assert [result_of(node).output for node in nodes] == [[heard] for heard in expected]


def test_one_value_for_each_neighbor():
    def tell_each(node):
        values = {j: np.array([10.0 * node + j]) for j in range(3) if j != node}
        return dict((yield Exchange(values, Direction.BOTH, shape=(1,), dtype=float)))

    edges = [(i, j) for i in range(3) for j in range(3) if i != j]
    nodes = [Node(place, MemoryLog()) for place in links_of(edges, 3)]
    for i, node in enumerate(nodes):
        node.begin(0, tell_each(i), now=0.0)
    pass_on(nodes, 0.0)
    assert result_of(nodes[1]).output == {0: np.array([1.0]), 2: np.array([21.0])}


def test_a_program_without_exchanges_ends_at_once():
    node = lone_node()
    node.begin(0, talk(1.0, rounds=0), now=3.0)
    assert result_of(node).output == []


def test_a_value_changed_after_it_was_sent_is_sent_again_unchanged():
    value = np.array([1.0])

    def program():
        yield Exchange(value)

    node = lone_node()
    node.begin(0, program(), now=0.0)
    ((_, first),) = node.take_outgoing()
    value[:] = 2.0
    node.receive(said(node, 1, kind=Kind.REQUEST), now=0.5)
    assert node.take_outgoing() == [(1, first)]


def test_a_late_joiner_takes_part_in_the_run_that_begins_next():
    nodes = pair(slot=1.0)
    for run in range(3):
        nodes[0].begin(run, talk(1.0), now=10.0 * run)
        pass_on(nodes, 10.0 * run)
        nodes[0].advance(10.0 * run + 1.0)
        assert result_of(nodes[0]).missed == ((1,),)
    late = Node(nodes[1].links, MemoryLog(), nodes[1].timing)
    late.greet()
    nodes[1] = late
    pass_on(nodes, 25.0)
    assert late.latest_heard == 2
    for node in nodes:
        node.begin(3, talk(2.0), now=30.0)
    pass_on(nodes, 30.0)
    assert [result_of(node).complete for node in nodes] == [True, True]
