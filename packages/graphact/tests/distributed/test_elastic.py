"""A process is killed with SIGKILL: the run starts again by itself, says so, and ends as if nothing had been."""

import os
import re
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


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_one_process_killed(workplace, tmp_path):
    killed = tmp_path / "killed"
    run = start(workplace / "two", killed)
    try:
        wait_for(lambda: (killed / "checkpoint").exists() or run.poll() is not None, 90)
        time.sleep(0.1)  # into the epochs after it
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
    assert re.search(r"training goes on after epoch (5|10|15|20) of 25 \(restart 1 of at most 2\), checkpoint ", told)
