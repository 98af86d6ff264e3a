"""Run numbers of running agents, against a captured node."""

from agents.live import Captured, Daemon, make_network

TRIANGLE = [(0, 1), (1, 2), (0, 2)]
FAST = ["--transport", "udp", "--period", "0", "--slot", "0.1"]


def test_a_captured_node_cannot_walk_the_numbers_away_from_one_that_was_down(tmp_path):
    """F4: in steps below the limit, one after each run, past 2^33; the node that was down takes part again."""
    folders = make_network(tmp_path, [*TRIANGLE, (0, 3), (1, 3), (2, 3)], 4)
    with (
        Captured(folders[3], slot=0.1) as captured,
        Daemon(folders[0], *FAST) as first,
        Daemon(folders[1], *FAST) as second,
    ):
        with Daemon(folders[2], *FAST) as third:
            for daemon in (first, second, third):
                daemon.results(2)
        for step in range(1, 35):
            for to in (0, 1):
                captured.send_value(to, step * (2**32 - 1))
            first.next_event("result")
        with Daemon(folders[2], *FAST) as third:
            for daemon in (first, second, third):
                found = daemon.next_event("result", where=lambda event: all({3} >= {*each} for each in event["missed"]))
                assert found["run"] < 10_000
