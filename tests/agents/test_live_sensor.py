"""Running agents whose sensor command misbehaves."""

import signal
import sys
import time
from pathlib import Path

import pytest
from agents.live import PATIENCE, Daemon, make_network

OPTIONS = ["--transport", "udp", "--period", "2", "--slot", "0.5", "--lead", "1.9"]


@pytest.fixture
def folder(tmp_path):
    return make_network(tmp_path, [(0, 1)], 2)[0]


def alive(pid):
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


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
    started = [int(pid) for pid in pids.read_text().split()]
    until = time.monotonic() + PATIENCE
    while any(map(alive, started)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, started))


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
    started = [int(pid) for pid in pids.read_text().split()]
    until = time.monotonic() + PATIENCE
    while any(map(alive, started)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(alive, started))


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["exit 3"], "the sensor command failed with exit code 3"),
        (["head -c 3000000 /dev/zero"], "the sensor command printed more than 1048576 bytes"),
        (["echo NaN"], "the sensor command: a signal must be finite, got nan"),
        (["kill -9 $$"], "the sensor command failed with exit code -9"),
    ],
)
def test_a_command_that_fails_is_told(folder, tmp_path, lines, reason):
    with Daemon(folder, *OPTIONS, "--sensor", command(tmp_path / "sensor", *lines)) as daemon:
        assert daemon.next_event("skipped", where=lambda event: event["reason"] == reason)


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
