"""Running agents whose sensor command misbehaves."""

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from agents.live import PATIENCE, Daemon, make_network, make_pairs
from graphact import nn

OPTIONS = ["--transport", "udp", "--period", "2", "--slot", "0.5", "--lead", "1.9"]


@pytest.fixture
def folder(tmp_path):
    return make_network(tmp_path, [(0, 1)], 2)[0]


def alive(pid):
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def check_ended(pids):
    """Wait until none of the processes in a file is alive."""
    started, until = [int(pid) for pid in pids.read_text().split()], time.monotonic() + PATIENCE
    while any(map(alive, started)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, started))


def command(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o700)
    return str(path)


def test_a_child_that_holds_the_pipe_holds_nothing_up_and_is_killed(folder, tmp_path):
    """The command answers and ends; what it left behind keeps standard output open for long."""
    pids = tmp_path / "pids"
    sensor = command(tmp_path / "sensor", f"sleep 600 & echo $! >> {pids}", "echo 7.5")
    with Daemon(folder, *OPTIONS, "--sensor", sensor) as daemon:
        first = daemon.next_event("result")
        results = [first, *daemon.results(3)]
        assert [result["run"] - first["run"] for result in results] == [0, 1, 2, 3]
        assert daemon.end(signal.SIGTERM) == 0
    check_ended(pids)


def test_a_command_that_does_not_end_is_killed_with_its_children(folder, tmp_path):
    pids = tmp_path / "pids"
    sensor = command(tmp_path / "sensor", f"sleep 600 & echo $! >> {pids}", f"echo $$ >> {pids}", "wait")
    with Daemon(folder, *OPTIONS, "--sensor", sensor) as daemon:
        skipped = [
            daemon.next_event("skipped", where=lambda event: "has not ended in time" in event["reason"])
            for _ in range(3)
        ]
        assert skipped[2]["run"] - skipped[0]["run"] == 2
        assert daemon.end(signal.SIGTERM) == 0
    check_ended(pids)


MAX_FAILURES = [
    ("exit 3", "the sensor command failed with exit code 3"),
    ("head -c 3000000 /dev/zero", "the sensor command printed more than 1048576 bytes"),
    ("echo NaN", "the sensor command: a signal must be finite, got nan"),
    ("kill -9 $$", "the sensor command failed with exit code -9"),
    (
        "echo '[[[[[1.0]]]]]'",
        "the sensor command: a signal must have at most 4 dimensions, none of them 0, got the shape (1, 1, 1, 1, 1)",
    ),
    (
        f"exec {sys.executable} -c 'print([[1.0]] * 9000)'",
        "the sensor command: a signal of shape (9000, 1) makes messages of 72060 bytes, and one holds 65507: use "
        "smaller batches",
    ),
]


def test_commands_that_fail_are_told(tmp_path):
    """And the agents go on; each has a command of its own."""
    folders, _ = make_pairs(tmp_path, len(MAX_FAILURES))
    with ExitStack() as stack:
        daemons = [
            stack.enter_context(Daemon(folder, *OPTIONS, "--sensor", command(tmp_path / f"sensor-{i}", line)))
            for i, (folder, (line, _)) in enumerate(zip(folders, MAX_FAILURES, strict=True))
        ]
        for daemon, (_, reason) in zip(daemons, MAX_FAILURES, strict=True):
            first = daemon.next_event("skipped", where=lambda event, reason=reason: event["reason"] == reason)
            assert daemon.next_event("skipped", where=lambda event, run=first["run"] + 1: event["run"] == run)
        for daemon in daemons:
            daemon.process.send_signal(signal.SIGTERM)
        assert [daemon.process.wait(PATIENCE) for daemon in daemons] == [0] * len(daemons)


def test_a_command_that_is_not_there(folder):
    with Daemon(folder, *OPTIONS, "--sensor", "/nowhere/sensor") as daemon:
        reason = "the sensor command cannot be started: No such file or directory"
        daemon.next_event("skipped", where=lambda event: event["reason"] == reason)


def test_a_sensor_without_a_clock(folder, tmp_path):
    """Each run waits for the command, however long it takes."""
    sensor = f"{sys.executable} -c 'import time; time.sleep(0.5); print([2.5])'"
    options = ["--transport", "udp", "--period", "0", "--slot", "0.2"]
    with Daemon(folder, *options, "--sensor", sensor) as daemon:
        assert len(daemon.results(2)) == 2


def test_commands_that_fail_once_without_a_clock_stop_no_network(tmp_path):
    """At the same run on all nodes, so that no neighbour goes on with it: each is started again after a pause."""
    options = ["--transport", "udp", "--period", "0", "--slot", "0.2", "--status", "0", "--sensor"]
    once = [f"[ -e {tmp_path}/failed-$1 ] || [ ! -e {tmp_path}/go ] || {{ touch {tmp_path}/failed-$1; exit 7; }}"]
    sensor = command(tmp_path / "sensor", *once, "echo '[1.0]'")
    first, second = make_network(tmp_path, [(0, 1)], 2)
    with Daemon(first, *options, f"{sensor} 0") as a, Daemon(second, *options, f"{sensor} 1") as b:
        for daemon in (a, b):
            daemon.next_event("result")
        (tmp_path / "go").touch()
        for daemon in (a, b):
            told = daemon.next_event("skipped")
            assert told["reason"] == "the sensor command failed with exit code 7"
            assert daemon.next_event("result", where=lambda event, run=told["run"]: event["run"] > run)
            assert [event["event"] for event in daemon.events].count("skipped") == 1


def test_a_dead_neighbor_leaves_time_for_the_sensor(tmp_path):
    """Each run takes all of its time, and the next one begins at once: its command was started meanwhile."""
    folder = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=2).double())[0]
    sensor = command(tmp_path / "sensor", "sleep 0.2", "echo '[1.0]'")
    with Daemon(folder, "--transport", "udp", "--slot", "0.5", "--sensor", sensor) as daemon:
        first = daemon.next_event("result")["run"]
        assert [event["run"] - first for event in daemon.results(4)] == [1, 2, 3, 4]


@pytest.mark.parametrize("period", ["2", "0"])
def test_runs_that_are_skipped_count_towards_runs(folder, tmp_path, period):
    """A sensor that always fails: the agent ends after as many skipped runs as it was asked to take part in."""
    sensor = command(tmp_path / "sensor", "exit 3")
    options = ["--transport", "udp", "--period", period, "--slot", "0.5", "--lead", "1.9", "--runs", "2"]
    with Daemon(folder, *options, "--sensor", sensor) as daemon:
        end = daemon.next_event("end", timeout=20.0)
        assert [event["event"] for event in daemon.events] == ["ready", "skipped", "skipped", "end"]
        assert end["reason"] == "2 runs are done, of which 2 were skipped"
