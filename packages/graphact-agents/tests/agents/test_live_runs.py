"""Run numbers of running agents, against a captured node."""

from agents.live import Captured, Daemon, make_network
from graphact_agents.messages import HEADER, MAGIC, MAX_RUN, VERSION, Kind, authenticate

TRIANGLE = [(0, 1), (1, 2), (0, 2)]
FAST = ["--transport", "udp", "--period", "0", "--slot", "0.1"]


def test_a_captured_node_cannot_end_a_network_without_a_clock(tmp_path):
    """Node 2 names the highest run numbers there are, in range and out of range; 0 and 1 go on with theirs."""
    folders = make_network(tmp_path, TRIANGLE, 3)
    with (
        Captured(folders[2], slot=0.1) as captured,
        Daemon(folders[0], *FAST) as first,
        Daemon(folders[1], *FAST) as second,
    ):
        for daemon in (first, second):
            daemon.results(2)
        for to in (0, 1):
            for run in (MAX_RUN, MAX_RUN - 1, 2**62):
                captured.send_value(to, run)
                captured.send_value(to, run, kind=Kind.WELCOME)
            fields = (MAGIC, VERSION, Kind.DATA, 1, 2, 1, 0, 2, to, captured.links.epoch, 2**64 - 2, 0)
            body = HEADER.pack(*fields) + b"\1\0\0\0" + bytes(8)
            captured.send(to, body + authenticate(body, captured.links.keys[to], captured.digest))
        for daemon in (first, second):
            refused = daemon.next_event("refused")
            assert (refused["neighbor"], refused["reason"].split(" ahead")[0]) == (
                2,
                "its run is more than 4294967296",
            )
            runs = [result["run"] for result in daemon.results(4)]
            assert runs == list(range(runs[0], runs[0] + 4))
            assert runs[-1] < 10_000


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
