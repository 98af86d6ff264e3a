"""Running agents that read signals from standard input: too many of them, too long ones, and bytes that are no text."""

import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from agents.live import PATIENCE, Daemon, make_network
from graphact import nn

OPTIONS = ["--transport", "udp", "--slot", "0.2", "--signals", "-"]


@pytest.fixture
def folder(tmp_path):
    return make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())[0]


def memory(daemon):
    """MiB."""
    lines = Path(f"/proc/{daemon.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def write_all(daemon, content):
    with daemon.process.stdin as stream:
        daemon.process.stdin = None  # closed here, and by nobody else
        stream.write(content)


@pytest.mark.parametrize("period", ["0.6", "0"])
def test_who_writes_faster_than_runs_is_held_up(folder, period):
    """And takes little memory, with a clock and without."""
    with (
        subprocess.Popen(["yes", "[1.0]"], stdout=subprocess.PIPE) as endless,
        Daemon(folder, *OPTIONS, "--period", period, stdin=endless.stdout) as daemon,
    ):
        daemon.next_event("result")
        before = memory(daemon)
        daemon.results(4)
        assert memory(daemon) - before < 8
        endless.kill()


def test_lines_that_are_none_are_skipped_and_the_end_is_told(folder):
    lines = [b"[1.0]", b"\xff", b"[" * 3_000_000, b"[2.0]"]
    with Daemon(folder, *OPTIONS, "--period", "0.6", stdin=subprocess.PIPE) as daemon:
        daemon.next_event("ready")

        threading.Thread(target=write_all, args=(daemon, b"\n".join(lines))).start()
        daemon.next_event("result")
        for reason in ("a line must hold a JSON array of numbers, got '\ufffd'", "a line has more than 1048576 bytes"):
            daemon.next_event("skipped", where=lambda event, reason=reason: event["reason"] == reason)
        daemon.next_event("result")
        assert daemon.next_event("end")["reason"] == "the stream has ended"
        assert daemon.process.wait(PATIENCE) == 0


def test_lines_are_used_in_their_order_and_none_is_left_out(folder):
    """Also when all have come before the first run: a file in the place of a sensor."""
    with Daemon(folder, *OPTIONS, "--period", "0.6", stdin=subprocess.PIPE) as daemon:
        write_all(daemon, b"[1.0]\n[2.0]\n[3.0]\n")
        time.sleep(0.1)
        outputs = [event["output"][0] for event in daemon.results(3)]
        assert outputs[0] != outputs[1] != outputs[2]
        assert outputs[2] - outputs[1] == pytest.approx(outputs[1] - outputs[0], abs=1e-12)


@pytest.mark.parametrize("runs", [[], ["--runs", "1"]])
def test_an_open_and_silent_stream_does_not_keep_an_agent_from_ending(folder, runs):
    with Daemon(folder, *OPTIONS, "--period", "0.6", *runs, stdin=subprocess.PIPE) as daemon:
        daemon.next_event("skipped")
        if not runs:
            daemon.process.send_signal(signal.SIGTERM)
        daemon.next_event("end")
        assert daemon.process.wait(PATIENCE) == 0
        assert b"Fatal" not in daemon.process.stderr.read()
