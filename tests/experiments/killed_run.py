"""Run a small experiment in a child process, kill it with SIGKILL at random moments, again and again, then finish it.

Usage: killed_run.py DIR KILLS SEED. The parent only forks and kills; it trains nothing itself.
"""

import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from graphact.experiments.presets import find_protocol
from graphact.experiments.running import run_protocol
from graphact.experiments.store import Store
from graphact.training import TrainingSettings

PROTOCOL = replace(
    find_protocol("source-localization", "smoke"),
    methods=("relu", "max-ga", "kernel-ga"),
    training=TrainingSettings(epochs=40, batch_size=200, learning_rate=0.01),
)


def work(directory):
    torch.set_num_threads(1)
    store = Store(Path(directory))
    store.create({"command": "test"})
    run_protocol(PROTOCOL, store, checkpoint_seconds=0.0)


def in_child(function):
    child = os.fork()
    if child == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    return child


def main(directory, kills, seed):
    dice = random.Random(seed)
    killed = 0
    while killed < kills:
        child = in_child(lambda: work(directory))
        time.sleep(dice.uniform(0.02, 0.5))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"the run ended by itself after {killed} kills, with status {status}")
        killed += 1
    _, status = os.waitpid(in_child(lambda: work(directory)), 0)
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
