"""Running agents whose clock is set while they work."""

import signal
import time

import pytest

from agents.live import PATIENCE, Captured, Daemon, make_network

ANY_CLOCK = """
import pathlib, sys, time
real, place = time.time, pathlib.Path(sys.argv.pop(1))
time.time = lambda: real() + float(place.read_text() or 0)
from graphact_agents.command import main
sys.exit(main())
"""
"""Starts graphact with a clock that is off by the number in a file: the clock of the machine cannot be set."""


class Clock:
    """Seconds by which the clock of one process is off; set atomically, since the process reads it all the time."""

    def __init__(self, path):
        self.path = path
        self.set(0)

    def set(self, seconds):
        new = self.path.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.path)

    def start(self, folder, *options):
        return Daemon(folder, *options, command=("-c", ANY_CLOCK, str(self.path)))


@pytest.mark.parametrize("step", [3600, 1e8])
def test_a_clock_that_was_in_the_future_for_a_moment_silences_nobody(tmp_path, step):
    """One node of three is an hour, or years, ahead for two runs, is set right, and takes part again at once."""
    folders = make_network(tmp_path, [(0, 1), (1, 2), (0, 2)], 3)
    options = ["--transport", "udp", "--period", "1.5", "--slot", "0.5"]
    clock = Clock(tmp_path / "clock")
    with (
        clock.start(folders[0], *options) as daemon,
        Daemon(folders[1], *options) as second,
        Daemon(folders[2], *options) as third,
    ):
        before = daemon.next_event("result", where=lambda event: event["complete"])["run"]
        clock.set(step)
        ahead = [daemon.next_event("result", where=lambda event: event["run"] > before + 2000) for _ in range(2)]
        clock.set(0)
        after = daemon.next_event("result", where=lambda event: event["complete"])
        assert before < after["run"] < before + 2000
        assert before + step / 1.5 < ahead[-1]["run"] + 10
        for other in (second, third):
            refused = other.next_event("refused", where=lambda event: event["neighbor"] == 0)
            assert refused["reason"] == "its run is more than 2 ahead of the clock of this node"
            other.next_event("result", where=lambda event: event["complete"] and event["run"] >= after["run"])
        daemon.kill()  # and the numbers that it used in the future stay known
        with clock.start(folders[0], *options) as again:
            assert again.next_event("result", where=lambda event: event["complete"])["run"] > after["run"]
        begun = [line for line in (folders[0] / "log.jsonl").read_text().splitlines() if '"program"' in line]
        assert f"[{ahead[0]['run']}, " in begun[-1]


def test_a_clock_set_back_within_a_run_holds_nothing_up(tmp_path):
    """Nor does it keep a node from ending when it is told to: twice, within a run each time."""
    folders = make_network(tmp_path, [(0, 1)], 2)
    clock = Clock(tmp_path / "clock")
    options = ["--transport", "udp", "--period", "5", "--slot", "1.5"]

    def wait_for_a_run(runs):
        until = time.monotonic() + PATIENCE
        while runs + 1 > (count := log.read_text().count('"program"') if log.exists() else 0):
            assert time.monotonic() < until
            time.sleep(0.01)
        return count

    log = folders[0] / "log.jsonl"
    with clock.start(folders[0], *options) as daemon:
        begun = wait_for_a_run(0)
        clock.set(-3000)
        begun_at = time.monotonic()
        result = daemon.next_event("result")
        assert result["seconds"] < 4.6  # three slots; node 1 is not there
        assert time.monotonic() - begun_at < 30
        clock.set(0)
        wait_for_a_run(begun)
        clock.set(-3000)
        assert daemon.end(signal.SIGTERM) == 0


def test_numbers_that_a_clock_used_too_early_are_not_used_again(tmp_path):
    """An hour later the node is silent for the runs that it was in before, and tells no second value for a tag."""
    folders = make_network(tmp_path, [(0, 1)], 2)
    options = ["--transport", "udp", "--period", "0.6", "--slot", "0.2"]  # short: its neighbour says nothing
    clock = Clock(tmp_path / "clock")
    with Captured(folders[1], slot=0.2, period=0.6), clock.start(folders[0], *options) as daemon:
        low = daemon.next_event("result")["run"]
        clock.set(3600)
        early = [daemon.next_event("result", where=lambda event: event["run"] > low + 1000)["run"] for _ in range(3)]
        clock.set(0)
        low = daemon.next_event("result", where=lambda event: event["run"] < early[-1] - 1000)["run"]
        clock.set(3596)
        late = [daemon.next_event("result")["run"] for _ in range(12)]
        used = [*early, low, *late]
        assert late[-1] > early[-1]
        assert len(set(used)) == len(used)
