"""Run a small experiment in a child process, kill it with SIGKILL at random moments, again and again, then finish it.

Usage: killed_run.py DIR KILLS SEED. The parent trains for an epoch, so that no child has to import and to load compiled
code, and then only forks and kills. The clock of a kill starts when the child has finished an epoch, so that kills fall
among epochs, checkpoints and finished cells however slow the machine is. Prints how many kills found a checkpoint and
how many found a finished cell.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from graphact.training import TrainingSettings
from graphact_lab.descriptions import find_protocol
from graphact_lab.job_progress import JobWatcher
from graphact_lab.runner import run_protocol
from graphact_lab.store import Store

PROTOCOL = replace(
    find_protocol("source-localization", "smoke"),
    methods=("relu", "max-ga", "kernel-ga"),
    training=TrainingSettings(epochs=120, batch_size=400, learning_rate=0.01),
)


class Signaller(JobWatcher):
    """Tells the parent when an epoch is over."""

    def __init__(self, pipe):
        super().__init__()
        self.pipe = pipe

    def epoch(self, epoch):
        os.write(self.pipe, b".")


def work(directory, pipe):
    torch.set_num_threads(1)
    store = Store(Path(directory))
    store.create("test")
    run_protocol(PROTOCOL, store, checkpoint_seconds=0.0, watcher=Signaller(pipe))


def start(directory):
    """Fork a child that works; return its number and the pipe on which it tells of epochs."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    try:
        work(directory, writing)
        os._exit(0)
    except BlockingIOError:
        os._exit(3)
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)


def warm_up():
    """Do once what every child would do first."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        store = Store(Path(directory))
        store.create("test")
        short = replace(PROTOCOL, training=replace(PROTOCOL.training, epochs=1))
        run_protocol(short, store, checkpoint_seconds=0.0)


def main(directory, kills, seed):
    dice = random.Random(seed)
    warm_up()
    met = {"checkpoint": 0, "cell": 0}
    for _ in range(kills):
        child, reading = start(directory)
        if not os.read(reading, 1):
            sys.exit("the run ended before it could be killed")
        time.sleep(dice.uniform(0.0, 0.4))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        met["checkpoint"] += bool(list((Path(directory) / "checkpoints").glob("*.safetensors")))
        met["cell"] += bool([file for file in (Path(directory) / "rows").iterdir() if "baselines" not in file.name])
    child, reading = start(directory)
    while os.read(reading, 65536):
        pass
    _, status = os.waitpid(child, 0)
    print(json.dumps(met))  # noqa: T201
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
