"""A process is killed with SIGKILL: the run starts again by itself, says so, and ends as if nothing had been."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from distributed.processes import environment

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("elastic_run.py")


def start(parts, out):
    """torchrun as a user starts it; restarts need a store of their own with gloo."""
    out.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "--max-restarts", "2", str(SCRIPT), str(parts), str(out)]
    log = (out / "log").open("w")
    with log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        )


def epoch_of(out, rank):
    try:
        return json.loads((out / f"checkpoint.process-{rank}.json").read_text())["epoch"]
    except (OSError, ValueError):
        return 0


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_one_process_killed(workplace, tmp_path):
    killed = tmp_path / "killed"
    run = start(workplace / "two", killed)
    try:
        wait_for(lambda: epoch_of(killed, 1) >= 8 or run.poll() is not None, 90)
        os.kill(int((killed / "pid-1").read_text()), signal.SIGKILL)
        code = run.wait(timeout=120)
    finally:
        run.kill()
    log = (killed / "log").read_text()
    assert code == 0, log
    expected, found = (load_file(out / "trained.safetensors") for out in (workplace / "undisturbed", killed))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert len(found["losses"]) == 25
    assert found["losses"][-1] < found["losses"][0]
    (told,) = [line for line in log.splitlines() if line.startswith("graphact: ")]
    assert "process 1 ended without a word in epoch" in told
    assert "it was killed, or its machine went down" in told
    assert "process 0 lost contact with it" in told or "process 0 was told to stop" in told
    assert "All processes were started again (restart 1 of at most 2)" in told
    assert "Training goes on from the checkpoint after epoch" in told
    assert not list(killed.glob("checkpoint.process-*"))
