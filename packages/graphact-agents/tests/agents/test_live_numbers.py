"""Running agents, and numbers that are not finite."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

from agents.live import Captured, Daemon, make_network, make_pairs
from graphact import nn
from graphact_agents.events import EventWriter

OPTIONS = ["--transport", "udp", "--period", "2", "--slot", "0.6"]


def test_neighbors_values_that_are_not_finite_are_refused_and_told(tmp_path):
    """Each of them to an agent of its own."""
    values = (np.nan, np.inf, -np.inf)
    folders, others = make_pairs(tmp_path, len(values))
    with ExitStack() as stack:
        neighbors = [stack.enter_context(Captured(other, slot=0.6, period=2.0)) for other in others]
        daemons = [stack.enter_context(Daemon(folder, *OPTIONS)) for folder in folders]
        runs = [daemon.next_event("result")["run"] for daemon in daemons]
        for number in range(1, 4):
            for captured, run, value in zip(neighbors, runs, values, strict=True):
                for round_ in range(3):
                    captured.send_value(captured.links.neighbors[0], run + number, round_, value=[value])
            for daemon in daemons:
                result = daemon.next_event("result")
                assert result["complete"] is False
                assert np.isfinite(result["output"]).all()
        for daemon, value in zip(daemons, values, strict=True):
            refused = [event["reason"] for event in daemon.events if event["event"] == "refused"]
            assert "its value is not finite" in refused, value
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.next_event("end")["counters"]["not_finite"] > 0, value


@pytest.mark.parametrize("schedule", [["--period", "0.6"], ["--period", "0"]], ids=["clock", "no clock"])
def test_entries_of_a_file_that_are_missing_are_skipped_in_their_runs(tmp_path, schedule):
    folders = make_network(tmp_path, [(0, 1)], 2, nn.FIR([1, 1], order=1).double())
    np.save(folders[0] / "x.npy", np.where(np.arange(50) % 4 == 3, np.nan, 1.0)[:, np.newaxis])
    options = ["--transport", "udp", *schedule, "--slot", "0.2"]
    with Daemon(folders[0], *options) as first, Daemon(folders[1], *options) as second:
        skipped = first.next_event("skipped", where=lambda event: "a signal must be finite, got nan" in event["reason"])
        assert skipped["run"] % 50 % 4 == 3
        for daemon in (first, second):
            daemon.next_event("result", where=lambda event: event["complete"] and event["run"] > skipped["run"])
        told = [event["run"] for event in first.events if event["event"] == "skipped"]
        assert len(told) == len(set(told))


def test_numbers_that_leave_the_range_at_one_node_stay_there(tmp_path):
    """1e308 is a signal; what becomes of it is not finite, is not sent, and the run of that node fails."""
    model = nn.GCNN([1, 1], order=1, activation="max-ga").double()
    for parameter in model.parameters():
        parameter.data.fill_(3.0)
    folders = make_network(tmp_path, [(0, 1), (1, 2), (0, 2)], 3, model)
    np.save(folders[0] / "x.npy", np.full((50, 1), 1e308))
    with (
        Daemon(folders[0], *OPTIONS) as first,
        Daemon(folders[1], *OPTIONS) as second,
        Daemon(folders[2], *OPTIONS) as third,
    ):
        assert "is not finite" in first.next_event("failed")["reason"]
        for daemon in (second, third):
            for _ in range(2):
                event = daemon.next_event(where=lambda event: event["event"] in ("result", "failed"))
                assert event["event"] == "failed" or np.isfinite(event["output"]).all()


@pytest.mark.parametrize(("number", "message"), [(np.nan, "must be finite"), (1e200, "must be finite")])
def test_learning_from_such_numbers_ends_in_one_line_and_writes_no_model(tmp_path, number, message):
    model = nn.GCNN([1, 2], order=1, activation="max-ga", out_features=1).double()
    (folder,) = make_network(tmp_path, [], 1, model)
    x = np.ones((4, 1))
    x[2] = number
    np.save(folder / "signals.npy", x)
    np.save(folder / "targets.npy", np.ones((4, 1)))
    (folder / "learning.json").write_text(json.dumps({"learning": {"rate": 0.01}, "steps": 30, "first": 0}))
    words = [sys.executable, "-m", "graphact_agents.command", "learn", str(folder), "--transport", "udp"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
    assert not (folder / "trained.safetensors").exists()


def test_events_are_json_without_nan():
    """``json.dumps`` writes NaN where JSON knows none."""
    with EventWriter() as events, pytest.raises(ValueError, match="not JSON compliant"):
        events.write({"event": "result", "output": [float("nan")]})
