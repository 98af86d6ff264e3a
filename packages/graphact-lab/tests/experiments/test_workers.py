"""Processes that --jobs starts end with the one that started them, whatever ends that one."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are found in /proc")]

COMMAND = [
    "run",
    "source-localization",
    "--preset",
    "quick",  # with a cell for each process, and epochs that are short: a process that is told to stop ends its epoch
    "--activation",
    "max-ga",
    "--activation",
    "median-ga",
    "--activation",
    "kernel-ga",
    "--device",
    "cpu",
    "--jobs",
    "3",
]
STARTING = 120  # seconds that a process may take to begin, on a machine that is busy


def children(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def holds_a_cell(pid):
    """Return whether a process works on a cell, which it holds by a lock."""
    try:
        return any(handle.readlink().suffix == ".lock" for handle in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize(
    ("end", "while_working"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGTERM, True)]
)
def test_workers_end_with_their_parent(tmp_path, end, while_working):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(
            [sys.executable, "-m", "graphact_lab.cli", *COMMAND, "--out", str(tmp_path / "out")],
            stdout=log, stderr=log, env=environment, start_new_session=True,
        )  # fmt: skip
    workers = []
    try:
        wait_for(lambda: len(children(run.pid)) == 2 or run.poll() is not None, STARTING)
        workers = children(run.pid)
        assert len(workers) == 2, (tmp_path / "log").read_text()
        if while_working:
            wait_for(lambda: all(map(holds_a_cell, workers)), STARTING)
        os.kill(run.pid, end)
        run.wait(timeout=STARTING)
        wait_for(lambda: not any(map(is_running, workers)), STARTING)  # which may have been about to import torch
    finally:
        for pid in [run.pid, *workers]:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        run.wait()
